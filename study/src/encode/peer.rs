//! Whom a request is for, where it says so.

use super::{Refusal, fields::Fields};
use mlx5_direct::{
    mlx5::ids::Qpn,
    queue::{AddressHandle, RemoteSrq},
    wqe::AvSeg,
};
use std::net::Ipv6Addr;

/// From `enum ibv_rate` to `stat_rate` (`MLX5_STAT_RATE_OFFSET`).
const STAT_RATE_OFFSET: u64 = 5;

/// The shared receive queue that an XRC request is for.
pub(super) fn shared_queue(fields: &Fields<'_>) -> Result<RemoteSrq, Refusal> {
    Ok(RemoteSrq::new(fields.number("remote_srqn", 0xff_ffff)? as u32))
}

/// The address handle of a datagram: `ud`, or as verbs have it `av`, `remote_qpn` and `remote_qkey`.
pub(super) fn address(fields: &Fields<'_>) -> Result<AddressHandle, Refusal> {
    let is_split = fields.get("ud").is_none() && fields.get("av").is_some();
    let (av, qpn, qkey) = match is_split {
        true => {
            let (qpn, qkey) =
                (fields.number("remote_qpn", 0xff_ffff)?, fields.number("remote_qkey", u32::MAX.into())?);
            (fields.object("av")?, qpn, qkey)
        }
        false => {
            let ud = fields.object("ud")?;
            let (qpn, qkey) = (ud.number("remote_qpn", 0xff_ffff)?, ud.number("qkey", u32::MAX.into())?);
            (ud, qpn, qkey)
        }
    };
    Ok(AddressHandle::new(vector(&av)?).with_peer(Qpn::new(qpn as u32), qkey as u32))
}

/// The address vector: of InfiniBand, or of RoCE if there is a MAC address.
fn vector(fields: &Fields<'_>) -> Result<AvSeg, Refusal> {
    let av = AvSeg::new().with_ext(true);
    let is_roce = fields.get("dmac").is_some();
    let av = match is_roce {
        true => av
            // The priority stands one bit further up.
            .with_sl((fields.number_if("sl", 7)?.unwrap_or(0) << 1) as u8)
            .with_rlid_or_udp_sport(fields.number_if("udp_sport", 0xffff)?.unwrap_or(0) as u16)
            .with_rmac(exactly(fields, "dmac")?),
        false => av
            .with_sl(fields.number("sl", 15)? as u8)
            .with_mlid(fields.number_if("src_path_bits", 127)?.unwrap_or(0) as u8)
            .with_rlid_or_udp_sport(fields.number("dlid", 0xffff)? as u16),
    };
    let rate = fields.number_if("static_rate", 15 - STAT_RATE_OFFSET)?.unwrap_or(0);
    let av = av.with_stat_rate(if rate == 0 { 0 } else { (rate + STAT_RATE_OFFSET) as u8 });
    // The parts of the global header: apart in `ud`, among the others in `av`.
    let is_global = fields.flag("is_global")?;
    let grh = match (fields.get("grh").is_some(), is_global || is_roce) {
        (true, _) => fields.object("grh")?,
        (false, true) => fields.clone(),
        (false, false) => return Ok(av),
    };
    let class = ["traffic_class", "tclass"];
    let flow_label = grh.number_if("flow_label", u32::MAX.into())?.unwrap_or(0);
    if flow_label > 0xf_ffff {
        let why = format!("is 0x{flow_label:x}, but a flow label has 20 bits: at most 0xfffff");
        return Err(Refusal::new(grh.path("flow_label"), why));
    }
    Ok(av
        // Of RoCE libmlx5 leaves it clear: there always is one.
        .with_grh(!is_roce)
        .with_src_addr_index(grh.number("sgid_index", 255)? as u8)
        .with_hop_limit(grh.number("hop_limit", 255)? as u8)
        .with_tclass(grh.number_of(&class, 255)? as u8)
        .with_flow_label(flow_label as u32)
        .with_rgid(exactly(&grh, "dgid")?))
}

/// So many bytes: hexadecimal digits, or as addresses are written, with colons.
fn exactly<const N: usize>(fields: &Fields<'_>, name: &str) -> Result<[u8; N], Refusal> {
    let text = fields.text(name)?;
    if N == 16
        && let Ok(address) = text.parse::<Ipv6Addr>()
    {
        return Ok(core::array::from_fn(|i| address.octets()[i % 16]));
    }
    let bytes = match text.contains(':') {
        true => text.split(':').map(|octet| u8::from_str_radix(octet, 16)).collect::<Result<Vec<_>, _>>(),
        false => Ok(fields.bytes(name)?),
    };
    let bytes =
        bytes.map_err(|_| Refusal::new(fields.path(name), format!("is {text:?}, which is no address")))?;
    let n = bytes.len();
    bytes
        .try_into()
        .map_err(|_| Refusal::new(fields.path(name), format!("has {n} bytes, but {N} are wanted")))
}
