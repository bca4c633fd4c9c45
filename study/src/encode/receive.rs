//! Receive requests.

use super::{
    Encoded, Refusal,
    fields::{Fields, pieces},
};
use mlx5_direct::{
    mlx5::ids::Qpn,
    queue::{PostError, RecvDraft},
    wqe::{DataSeg, SEGMENT_BYTES},
};

pub(super) fn encode(fields: &Fields<'_>) -> Result<Encoded, Refusal> {
    let qpn = Qpn::new(fields.number("qpn", 0xff_ffff)? as u32);
    let index_name = if fields.get("index").is_none() && fields.get("wqe_index").is_some() {
        "wqe_index"
    } else {
        "index"
    };
    let index = fields.number(index_name, 0xffff)? as u16;
    let stride = fields.number("stride", 512)?;
    if !stride.is_power_of_two() || stride < SEGMENT_BYTES as u64 {
        return Err(Refusal::new(
            "stride",
            format!("is {stride}, but 16, 32, 64, 128, 256 or 512 bytes is wanted"),
        ));
    }
    let pieces = pieces(fields)?;
    // The ring is as large as can be: no index of this one WQE is out of it.
    let draft = RecvDraft::new(qpn, 8, stride.ilog2() as u8, index);
    let drafted = draft.post(|list, any| {
        let mut request = list.recv(0).map_err(refusal)?;
        for piece in &pieces {
            let lease = any.lease(piece.lkey, piece.addr, piece.len_bytes);
            request = request.local(lease, 0..piece.len_bytes).map_err(|error| match error {
                PostError::TooManySge => Refusal::new(
                    "sges",
                    format!(
                        "names {} pieces, but a stride of {stride} bytes holds {}",
                        pieces.len(),
                        stride / 16
                    ),
                ),
                error => refusal(error),
            })?;
        }
        request.finish();
        Ok(())
    })?;
    let segments = drafted.wqe.as_chunks::<SEGMENT_BYTES>().0;
    let end = segments.iter().position(|segment| DataSeg::from_bytes(*segment).is_terminator());
    let used_bytes = end.map_or(drafted.wqe.len(), |n| (n + 1) * SEGMENT_BYTES);
    let mut notes = Vec::new();
    if pieces.iter().any(|piece| piece.len_bytes == 0) {
        notes.push("pieces of length 0 are skipped: their byte_count would mean 2^31");
    }
    Ok(Encoded { drafted, transport: None, used_bytes, notes })
}

fn refusal(error: PostError) -> Refusal {
    Refusal::new("sges", format!("is refused: {error}"))
}
