//! Requests that change memory keys.

use super::{
    Refusal,
    fields::{Fields, pieces},
    send::{Context, refused},
};
use mlx5_direct::{
    mlx5::ids::Rkey,
    queue::{Anything, Flags, IndirectKey, KeyAccess, Paired, PostList, Sge, Strided, Window, WindowAccess},
};
use serde_json::Value;

/// Whether an opcode is of this kind.
pub(super) fn is_change(opcode: &str) -> bool {
    matches!(opcode, "LOCAL_INV" | "BIND_MW" | "MR_LIST" | "MR_INTERLEAVED")
}

/// Writes a request that changes a key.
pub(super) fn write<T: Paired>(
    list: &mut PostList<'_, T>,
    any: Anything,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    let (fields, flags) = (context.fields, context.flags);
    match context.opcode {
        "LOCAL_INV" => {
            let rkey = Rkey::new(fields.number("invalidate_rkey", u32::MAX.into())? as u32);
            list.local_inv(0, rkey, flags).map_err(|e| refused(context, e))?.finish();
        }
        "BIND_MW" => bind(list, any, context)?,
        "MR_LIST" => {
            let pieces: Vec<_> = pieces(fields)?
                .into_iter()
                .map(|piece| Sge { lkey: piece.lkey, addr: piece.addr, len_bytes: piece.len_bytes as u32 })
                .collect();
            let key = indirect(fields, pieces.len())?;
            any.umr_list(list, key, &pieces, access(fields)?, flags)
                .map_err(|e| refused(context, e))?
                .finish();
        }
        _ => {
            let (pieces, repeat_count) = pattern(fields)?;
            // The pattern itself is one more entry.
            let key = indirect(fields, pieces.len() + 1)?;
            any.umr_interleaved(list, key, repeat_count, &pieces, access(fields)?, flags)
                .map_err(|e| refused(context, e))?
                .finish();
        }
    }
    Ok(())
}

fn indirect(fields: &Fields<'_>, n_entries: usize) -> Result<IndirectKey, Refusal> {
    let key = Rkey::new(fields.number("mkey", u32::MAX.into())? as u32);
    Ok(IndirectKey::new(key, n_entries as u32))
}

fn pattern(fields: &Fields<'_>) -> Result<(Vec<Strided>, u32), Refusal> {
    let piece = |piece: &Fields<'_>| {
        Ok(Strided {
            lkey: mlx5_direct::mlx5::ids::Lkey::new(piece.number("lkey", u32::MAX.into())? as u32),
            addr: piece.number("addr", u64::MAX)?,
            len_bytes: piece.number("bytes_count", 0xffff)? as u16,
            skip_bytes: piece.number("bytes_skip", 0xffff)? as u16,
        })
    };
    let pieces = fields.objects("interleaved")?.iter().map(piece).collect::<Result<_, _>>()?;
    Ok((pieces, fields.number("repeat_count", u32::MAX.into())? as u32))
}

/// Names of rights, as verbs have them.
fn rights<'a>(fields: &Fields<'a>) -> Result<Vec<&'a str>, Refusal> {
    let wrong =
        || Refusal::new(fields.path("access"), "is no list of rights, as [\"LOCAL_WRITE\", \"REMOTE_READ\"]");
    match fields.get("access") {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) => list.iter().map(|name| name.as_str().ok_or_else(wrong)).collect(),
        Some(_) => Err(wrong()),
    }
}

fn access(fields: &Fields<'_>) -> Result<KeyAccess, Refusal> {
    rights(fields)?.into_iter().try_fold(KeyAccess::LOCAL_READ, |access, name| {
        Ok(access
            | match name {
                "LOCAL_WRITE" => KeyAccess::LOCAL_WRITE,
                "REMOTE_WRITE" => KeyAccess::REMOTE_WRITE,
                "REMOTE_READ" => KeyAccess::REMOTE_READ,
                "REMOTE_ATOMIC" => KeyAccess::REMOTE_ATOMIC,
                other => {
                    return Err(Refusal::new(
                        fields.path("access"),
                        format!("has {other:?}, which is no right of a key"),
                    ));
                }
            })
    })
}

/// Binds a memory window of type 2. Those of type 1 belong to a protection domain, and are for drivers.
fn bind<T: Paired>(list: &mut PostList<'_, T>, any: Anything, context: &Context<'_>) -> Result<(), Refusal> {
    let (fields, flags): (_, Flags) = (context.fields, context.flags);
    let bind = fields.object("bind")?;
    if fields.number_if("mw_type", 2)? == Some(1) {
        return Err(Refusal::new("mw_type", "is 1, but this driver's encoder writes windows of type 2 here"));
    }
    let rkey = fields.number("mw_rkey", u32::MAX.into())? as u32;
    let next = rkey & !0xff | rkey.wrapping_add(1) & 0xff;
    if let Some(wanted) = fields.number_if("new_rkey", u32::MAX.into())?
        && wanted != u64::from(next)
    {
        return Err(Refusal::new(
            "new_rkey",
            format!("is 0x{wanted:x}, but after 0x{rkey:x} comes 0x{next:x}"),
        ));
    }
    let access = rights(&bind)?.into_iter().try_fold(WindowAccess::default(), |access, name| {
        Ok(access
            | match name {
                "REMOTE_WRITE" => WindowAccess::REMOTE_WRITE,
                "REMOTE_READ" => WindowAccess::REMOTE_READ,
                "REMOTE_ATOMIC" => WindowAccess::REMOTE_ATOMIC,
                "ZERO_BASED" => WindowAccess::ZERO_BASED,
                other => {
                    return Err(Refusal::new(
                        "bind.access",
                        format!("has {other:?}, which is no right of a window"),
                    ));
                }
            })
    })?;
    let len_bytes = bind.number("length", u64::MAX)?;
    let lkey = mlx5_direct::mlx5::ids::Lkey::new(bind.number("mr_lkey", u32::MAX.into())? as u32);
    let memory = any.bindable(lkey, bind.number("addr", u64::MAX)?, len_bytes);
    let mut window = Window::new(Rkey::new(rkey));
    let request = list.bind_mw(0, &mut window, &memory.view(0..len_bytes, access), flags);
    request.map_err(|e| refused(context, e))?.finish();
    Ok(())
}
