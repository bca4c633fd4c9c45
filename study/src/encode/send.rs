//! Send requests.

use super::{
    Encoded, Refusal,
    fields::{Fields, Piece, pieces},
    key, peer,
};
use crate::structure::Transport;
use mlx5_direct::{
    doorbell::DoorbellMode,
    mlx5::ids::{Qpn, Rkey},
    queue::{
        Anything, Atomic, Checksums, Complete, Connected, Drafted, Flags, Gather, Paired, PostError,
        PostList, RawPacket, Rc, Remote, Request, SendDraft, SendLimits, SgeList, Uc, Ud, Xrc,
    },
};
use serde_json::Value;
use std::num::NonZeroU16;

/// What all parts of a request look at.
pub(super) struct Context<'a> {
    pub(super) fields: &'a Fields<'a>,
    pub(super) opcode: &'a str,
    pub(super) flags: Flags,
    n_wqebbs: u64,
}

/// As much as any card's WQE holds.
const LIMITS: SendLimits =
    SendLimits { max_sge: 61, max_inline_bytes: 972, max_message_bytes: 1 << 31, min_header_bytes: 0 };

pub(super) fn encode(fields: &Fields<'_>) -> Result<Encoded, Refusal> {
    let name = fields.text("transport")?;
    let transport = Transport::by_name(name).ok_or_else(|| {
        Refusal::new("transport", format!("is {name:?}, but there are RC, UC, UD, XRC and RAW_PACKET"))
    })?;
    let qpn = Qpn::new(fields.number("qpn", 0xff_ffff)? as u32);
    let index = fields.number("wqe_index", 0xffff)? as u16;
    let size_name = if fields.get("ring_wqebbs").is_none() && fields.get("sq_wqebbs").is_some() {
        "sq_wqebbs"
    } else {
        "ring_wqebbs"
    };
    let n_wqebbs = fields.number(size_name, 1 << 15)?;
    if !n_wqebbs.is_power_of_two() {
        return Err(Refusal::new(
            size_name,
            format!("is {n_wqebbs}, but a ring has a power of two of WQEBBs, 1 to 32768"),
        ));
    }
    if let Some(slot) = fields.number_if("ring_slot", 0x7fff)?
        && slot != u64::from(index) % n_wqebbs
    {
        let wanted = u64::from(index) % n_wqebbs;
        let why =
            format!("is {slot}, but WQE {index} of a ring of {n_wqebbs} WQEBBs begins at slot {wanted}");
        return Err(Refusal::new("ring_slot", why));
    }
    let context = Context { fields, opcode: opcode(fields.text("opcode")?), flags: flags(fields)?, n_wqebbs };
    let place = (qpn, n_wqebbs.ilog2() as u8, index);
    let mut notes = Vec::new();
    let drafted = match transport {
        Transport::Rc => draft::<Rc>(place, |list, any| reliable(list, any, &context))?,
        Transport::Uc if context.opcode == "SEND_INVAL" => {
            notes.push("InfiniBand has no SEND with invalidate on UC (9.4.1); libmlx5 writes the same as for RC, and so is this");
            draft::<Rc>(place, |list, any| reliable(list, any, &context))?
        }
        Transport::Uc => draft::<Uc>(place, |list, any| connected(list, any, &context))?,
        Transport::Ud => draft::<Ud>(place, |list, any| datagram(list, any, &context))?,
        Transport::Xrc => draft::<Xrc>(place, |list, any| extended(list, any, &context))?,
        Transport::Raw => draft::<RawPacket>(place, |list, any| frame(list, any, &context))?,
        Transport::Dc => {
            return Err(Refusal::new(
                "transport",
                "is DC, of which this driver has no queues: it decodes them only",
            ));
        }
    };
    if fields.objects("sges")?.iter().any(|sge| matches!(sge.number_if("length", 1 << 31), Ok(Some(0)))) {
        notes.push("pieces of length 0 are skipped: their byte_count would mean 2^31");
    }
    let used_bytes = drafted.wqe.len();
    Ok(Encoded { drafted, transport: Some(transport), used_bytes, notes })
}

fn draft<T: mlx5_direct::queue::Transport>(
    (qpn, log_wq_size, index): (Qpn, u8, u16),
    write: impl FnOnce(&mut PostList<'_, T>, Anything) -> Result<(), Refusal>,
) -> Result<Drafted, Refusal> {
    SendDraft::<T>::new(qpn, log_wq_size, index, LIMITS, DoorbellMode::Auto).post(write)
}

/// An opcode by the driver's name; verbs have others for some.
fn opcode(name: &str) -> &str {
    match name {
        "SEND_WITH_IMM" => "SEND_IMM",
        "SEND_WITH_INV" => "SEND_INVAL",
        "RDMA_WRITE_WITH_IMM" => "RDMA_WRITE_IMM",
        "ATOMIC_CMP_AND_SWP" => "ATOMIC_CS",
        "ATOMIC_FETCH_AND_ADD" => "ATOMIC_FA",
        "TSO" => "LSO",
        other => other,
    }
}

fn flags(fields: &Fields<'_>) -> Result<Flags, Refusal> {
    let mut flags = Flags::NONE;
    for (name, flag) in [
        ("signaled", Flags::SIGNALED),
        ("fence", Flags::FENCE),
        ("solicited", Flags::SOLICITED),
        ("follows_local_inv", Flags::AFTER_INVALIDATE),
    ] {
        if fields.flag(name)? || has_flag(fields, &name.to_ascii_uppercase()) {
            flags = flags | flag;
        }
    }
    Ok(flags)
}

/// Whether a flag is in the list that verbs have.
fn has_flag(fields: &Fields<'_>, name: &str) -> bool {
    matches!(fields.get("flags"), Some(Value::Array(list)) if list.iter().any(|flag| flag == name))
}

/// Why a queue refuses a request, by the field that it refuses.
pub(super) fn refused(context: &Context<'_>, error: PostError) -> Refusal {
    let fields = context.fields;
    let n_pieces = fields
        .objects("sges")
        .map_or(0, |list| list.len())
        .max(fields.objects("interleaved").map_or(0, |list| list.len()));
    match error {
        PostError::QueueFull => Refusal::new(
            "ring_wqebbs",
            format!("is {}, but the request takes more WQEBBs than that", context.n_wqebbs),
        ),
        PostError::TooManySge => {
            let most = if context.opcode == "RDMA_READ" { 30 } else { 61 };
            Refusal::new(
                "sges",
                format!(
                    "names {n_pieces} pieces, but a request of this kind holds {most} at most, less what its other segments take"
                ),
            )
        }
        PostError::InlineTooLong => Refusal::new(
            "inline",
            "is too long: ds counts 63 segments, so 972 bytes fit at most (UD 940, XRC 956, raw packets 716)",
        ),
        PostError::MessageTooLong => {
            Refusal::new("sges", "adds up to more than 2^31 bytes, the longest message")
        }
        PostError::MixedInline => {
            Refusal::new("inline", "stands beside sges: a request carries data or names memory, not both")
        }
        PostError::HeaderLength => {
            Refusal::new("header", "has a wrong length: 14 to 258 bytes of a frame's head go in a request")
        }
        error => Refusal::new("opcode", format!("is {}, which is refused: {error}", context.opcode)),
    }
}

impl Context<'_> {
    fn u32(&self, names: &[&str]) -> Result<u32, Refusal> {
        Ok(self.fields.number_of(names, u32::MAX.into())? as u32)
    }

    fn imm(&self) -> Result<u32, Refusal> {
        self.u32(&["imm", "imm_data"])
    }

    fn rkey_to_invalidate(&self) -> Result<Rkey, Refusal> {
        Ok(Rkey::new(self.u32(&["invalidate_rkey"])?))
    }

    fn remote(&self) -> Result<Remote, Refusal> {
        Ok(Remote {
            addr: self.fields.number("remote_addr", u64::MAX)?,
            rkey: Rkey::new(self.u32(&["rkey"])?),
        })
    }

    fn no_such_opcode<T>(&self, transport: &str) -> Result<T, Refusal> {
        Err(Refusal::new("opcode", format!("is {:?}, which {transport} has not", self.opcode)))
    }

    fn at<R>(&self, result: Result<R, PostError>) -> Result<R, Refusal> {
        result.map_err(|error| refused(self, error))
    }

    fn operand(&self, name: &str) -> Result<u64, Refusal> {
        self.fields.number(name, u64::MAX)
    }

    /// The pieces of a request that must name some, if only an empty list.
    fn pieces(&self) -> Result<Vec<Piece>, Refusal> {
        if self.fields.get("sges").is_none() {
            return Err(Refusal::new(
                "sges",
                "is missing: a list of {addr, length, lkey}, which may be empty",
            ));
        }
        pieces(self.fields)
    }

    /// Ends a request that names memory.
    fn named<K: SgeList + Complete, T: mlx5_direct::queue::Transport>(
        &self,
        mut request: Request<'_, '_, K, T>,
        any: Anything,
    ) -> Result<(), Refusal> {
        if self.fields.get("inline").is_some() {
            return Err(Refusal::new(
                "inline",
                format!("stands in {}, which only names memory", self.opcode),
            ));
        }
        for piece in self.pieces()? {
            let lease = any.lease(piece.lkey, piece.addr, piece.len_bytes);
            request = self.at(request.local(lease, 0..piece.len_bytes))?;
        }
        request.finish();
        Ok(())
    }

    /// Ends a request that names memory or carries data.
    fn gathered<T: mlx5_direct::queue::Transport>(
        &self,
        request: Request<'_, '_, Gather, T>,
        any: Anything,
    ) -> Result<(), Refusal> {
        let Some(data) = self.fields.get("inline") else { return self.named(request, any) };
        if !self.fields.objects("sges")?.is_empty() {
            return Err(refused(self, PostError::MixedInline));
        }
        let pieces = self.inline_pieces(data)?;
        let (first, rest) =
            pieces.split_first().map_or((&[][..], &[][..]), |(first, rest)| (&first[..], rest));
        let mut request = self.at(request.inline(first))?;
        for piece in rest {
            request = self.at(request.inline(piece))?;
        }
        request.finish();
        Ok(())
    }

    /// Inline data, in the pieces in which it was given.
    fn inline_pieces(&self, data: &Value) -> Result<Vec<Vec<u8>>, Refusal> {
        if let Value::Array(list) = data {
            return list.iter().map(bytes_of).collect();
        }
        let data = self.fields.bytes("inline")?;
        let Some(lengths) = self.fields.numbers("inline_pieces")? else { return Ok(vec![data]) };
        let total = lengths.iter().fold(0u64, |sum, len| sum.saturating_add(*len));
        if total != data.len() as u64 {
            let why = format!("add up to {total} bytes, but inline has {}", data.len());
            return Err(Refusal::new("inline_pieces", why));
        }
        let mut rest = &data[..];
        Ok(lengths
            .iter()
            .map(|len| {
                let (piece, behind) = rest.split_at(*len as usize);
                rest = behind;
                piece.to_vec()
            })
            .collect())
    }

    /// Ends an atomic.
    fn atomic<T: Paired>(&self, request: Request<'_, '_, Atomic, T>, any: Anything) -> Result<(), Refusal> {
        let pieces = self.pieces()?;
        let [piece] = &pieces[..] else {
            return Err(Refusal::new(
                "sges",
                format!("names {} pieces, but an atomic brings its 8 bytes to one", pieces.len()),
            ));
        };
        if piece.len_bytes != 8 {
            return Err(Refusal::new(
                "sges[0].length",
                format!("is {}, but an atomic brings 8 bytes", piece.len_bytes),
            ));
        }
        self.at(request.local(any.lease(piece.lkey, piece.addr, 8), 0))?.finish();
        Ok(())
    }
}

fn bytes_of(value: &Value) -> Result<Vec<u8>, Refusal> {
    let wrong = || Refusal::new("inline", "has a piece that is no even number of hexadecimal digits");
    let text = value.as_str().ok_or_else(wrong)?;
    let map = [("inline".to_owned(), Value::from(text))].into_iter().collect();
    Fields::new(&map).bytes("inline")
}

/// What all transports between two queue pairs have: nothing, and changes of keys. Whether it was one of these.
fn common<T: Paired>(
    list: &mut PostList<'_, T>,
    any: Anything,
    context: &Context<'_>,
) -> Result<bool, Refusal> {
    if context.opcode == "NOP" {
        context.at(list.nop(0, context.flags))?.finish();
    } else if key::is_change(context.opcode) {
        key::write(list, any, context)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// RC.
fn reliable(list: &mut PostList<'_, Rc>, any: Anything, c: &Context<'_>) -> Result<(), Refusal> {
    match c.opcode {
        "SEND_INVAL" => c.gathered(c.at(list.send_inval(0, c.rkey_to_invalidate()?, c.flags))?, any),
        "RDMA_READ" => c.named(c.at(list.rdma_read(0, c.remote()?, c.flags))?, any),
        "ATOMIC_CS" => {
            let (compare, swap) = (c.operand("compare")?, c.operand("swap")?);
            c.atomic(c.at(list.compare_swap(0, c.remote()?, compare, swap, c.flags))?, any)
        }
        "ATOMIC_FA" => c.atomic(c.at(list.fetch_add(0, c.remote()?, c.operand("add")?, c.flags))?, any),
        _ => connected(list, any, c),
    }
}

/// What RC and UC have.
fn connected<T: Connected>(
    list: &mut PostList<'_, T>,
    any: Anything,
    c: &Context<'_>,
) -> Result<(), Refusal> {
    if common(list, any, c)? {
        return Ok(());
    }
    let request = match c.opcode {
        "SEND" => list.send(0, c.flags),
        "SEND_IMM" => list.send_imm(0, c.imm()?, c.flags),
        "RDMA_WRITE" => list.rdma_write(0, c.remote()?, c.flags),
        "RDMA_WRITE_IMM" => list.rdma_write_imm(0, c.remote()?, c.imm()?, c.flags),
        _ => return c.no_such_opcode("a connection of this kind"),
    };
    c.gathered(c.at(request)?, any)
}

/// UD.
fn datagram(list: &mut PostList<'_, Ud>, any: Anything, c: &Context<'_>) -> Result<(), Refusal> {
    if c.opcode == "NOP" {
        c.at(list.nop(0, c.flags))?.finish();
        return Ok(());
    }
    if !matches!(c.opcode, "SEND" | "SEND_IMM") {
        return c.no_such_opcode("UD");
    }
    let to = peer::address(c.fields)?;
    let request = match c.opcode {
        "SEND" => list.send(0, &to, c.flags),
        _ => list.send_imm(0, &to, c.imm()?, c.flags),
    };
    c.gathered(c.at(request)?, any)
}

/// XRC.
fn extended(list: &mut PostList<'_, Xrc>, any: Anything, c: &Context<'_>) -> Result<(), Refusal> {
    if common(list, any, c)? {
        return Ok(());
    }
    let srq = peer::shared_queue(c.fields)?;
    let request = match c.opcode {
        "SEND" => list.send(0, srq, c.flags),
        "SEND_IMM" => list.send_imm(0, srq, c.imm()?, c.flags),
        "SEND_INVAL" => list.send_inval(0, srq, c.rkey_to_invalidate()?, c.flags),
        "RDMA_WRITE" => list.rdma_write(0, srq, c.remote()?, c.flags),
        "RDMA_WRITE_IMM" => list.rdma_write_imm(0, srq, c.remote()?, c.imm()?, c.flags),
        "RDMA_READ" => return c.named(c.at(list.rdma_read(0, srq, c.remote()?, c.flags))?, any),
        "ATOMIC_CS" => {
            let (compare, swap) = (c.operand("compare")?, c.operand("swap")?);
            return c.atomic(c.at(list.compare_swap(0, srq, c.remote()?, compare, swap, c.flags))?, any);
        }
        "ATOMIC_FA" => {
            return c.atomic(c.at(list.fetch_add(0, srq, c.remote()?, c.operand("add")?, c.flags))?, any);
        }
        _ => return c.no_such_opcode("XRC"),
    };
    c.gathered(c.at(request)?, any)
}

/// Raw packets.
fn frame(list: &mut PostList<'_, RawPacket>, any: Anything, c: &Context<'_>) -> Result<(), Refusal> {
    let checksums = match has_flag(c.fields, "IP_CSUM") || c.fields.flag("checksums")? {
        true => Checksums::ALL,
        false => Checksums::NONE,
    };
    let header = if c.fields.get("header").is_some() { c.fields.bytes("header")? } else { Vec::new() };
    match c.opcode {
        "NOP" => c.at(list.nop(0, c.flags))?.finish(),
        "SEND" => return c.gathered(c.at(list.send_with_header(0, &header, checksums, c.flags))?, any),
        "LSO" => {
            let mss = c.fields.number("mss", 0xffff)? as u16;
            let mss =
                NonZeroU16::new(mss).ok_or_else(|| Refusal::new("mss", "is 0, but segments have bytes"))?;
            return c.named(c.at(list.lso(0, &header, mss, checksums, c.flags))?, any);
        }
        _ => return c.no_such_opcode("a raw packet queue"),
    }
    Ok(())
}
