//! The port's subnet management agent: it answers what a subnet manager gets and sets.
#![forbid(unsafe_code)]

use super::{
    port::{Changes, IbPort, N_GUIDS, N_PKEYS},
    smp::{
        ATTRIBUTE_BYTES, BAD_VALUE, EXTENDED_PORT_INFO, GUID_INFO, NODE_DESCRIPTION, NODE_INFO, PKEY_TABLE,
        PORT_INFO, SET, SL_TO_VL_TABLE, Smp, UNSUPPORTED, VL_ARBITRATION_TABLE,
    },
};

/// Entries of a table in one attribute.
const GUIDS_IN_BLOCK: usize = 8;
const PKEYS_IN_BLOCK: usize = 32;
/// `NodeInfo:NodeType`: channel adapter.
const CHANNEL_ADAPTER: u8 = 1;
/// `NodeInfo:VendorID`: Mellanox.
const VENDOR_ID: [u8; 3] = [0x00, 0x02, 0xc9];

/// What a node says of itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    pub(super) system_image_guid: u64,
    pub(super) node_guid: u64,
    pub(super) device_id: u16,
}

type Attribute = [u8; ATTRIBUTE_BYTES];

/// The answer to a request, and what it changed.
pub(super) fn answer(port: &mut IbPort, node: Node, request: &Smp) -> (Smp, Changes) {
    let mut changes = Changes::default();
    let mut result = Ok(());
    if request.method() == SET {
        match set(port, request) {
            Ok(changed) => changes = changed,
            Err(status) => result = Err(status),
        }
    }
    (request.answer(result.and_then(|()| get(port, node, request))), changes)
}

fn get(port: &IbPort, node: Node, request: &Smp) -> Result<Attribute, u16> {
    let (modifier, mut value) = (request.modifier(), [0; ATTRIBUTE_BYTES]);
    match request.attribute_id() {
        NODE_DESCRIPTION => value = port.node_description,
        NODE_INFO => {
            value[..4].copy_from_slice(&[1, 1, CHANNEL_ADAPTER, 1]);
            value[4..12].copy_from_slice(&node.system_image_guid.to_be_bytes());
            value[12..20].copy_from_slice(&node.node_guid.to_be_bytes());
            value[20..28].copy_from_slice(&port.guids[0].to_be_bytes());
            value[28..30].copy_from_slice(&(N_PKEYS as u16).to_be_bytes());
            value[30..32].copy_from_slice(&node.device_id.to_be_bytes());
            value[36] = 1;
            value[37..40].copy_from_slice(&VENDOR_ID);
        }
        // 0 is the port that is asked.
        PORT_INFO if modifier & 0xff > 1 => return Err(BAD_VALUE),
        PORT_INFO => value = port.info(),
        GUID_INFO => {
            let block = block(&port.guids, GUIDS_IN_BLOCK, modifier)?;
            for (into, guid) in value.chunks_exact_mut(8).zip(block) {
                into.copy_from_slice(&guid.to_be_bytes());
            }
        }
        PKEY_TABLE => {
            let block = block(&port.pkeys, PKEYS_IN_BLOCK, modifier & 0xffff)?;
            for (into, pkey) in value.chunks_exact_mut(2).zip(block) {
                into.copy_from_slice(&pkey.to_be_bytes());
            }
        }
        // All zero: no FDR10.
        EXTENDED_PORT_INFO => {}
        SL_TO_VL_TABLE => value[..8].copy_from_slice(&port.sl_to_vl),
        VL_ARBITRATION_TABLE => {
            let part = (modifier >> 16).checked_sub(1).ok_or(BAD_VALUE)?;
            value = *port.vl_arbitration.get(part as usize).ok_or(BAD_VALUE)?;
        }
        _ => return Err(UNSUPPORTED),
    }
    Ok(value)
}

fn set(port: &mut IbPort, request: &Smp) -> Result<Changes, u16> {
    let (modifier, value) = (request.modifier(), request.attribute());
    let mut changes = Changes::default();
    match request.attribute_id() {
        PORT_INFO if modifier & 0xff > 1 => return Err(BAD_VALUE),
        PORT_INFO => return port.set_info(value),
        GUID_INFO => {
            let first = modifier == 0;
            let own = port.guids[0];
            for (guid, new) in
                block_mut(&mut port.guids, GUIDS_IN_BLOCK, modifier)?.iter_mut().zip(value.chunks(8))
            {
                *guid = new.iter().fold(0, |guid, byte| guid << 8 | u64::from(*byte));
            }
            // The first is the port's own, and nobody's to change.
            if first {
                port.guids[0] = own;
            }
            changes.guids = true;
        }
        PKEY_TABLE => {
            let block = block_mut(&mut port.pkeys, PKEYS_IN_BLOCK, modifier & 0xffff)?;
            let new: Vec<u16> = value.chunks_exact(2).map(|b| u16::from_be_bytes([b[0], b[1]])).collect();
            changes.pkeys = *block != new;
            block.copy_from_slice(&new);
        }
        EXTENDED_PORT_INFO => {}
        SL_TO_VL_TABLE => port.sl_to_vl.copy_from_slice(&value[..8]),
        VL_ARBITRATION_TABLE => {
            let part = (modifier >> 16).checked_sub(1).ok_or(BAD_VALUE)?;
            *port.vl_arbitration.get_mut(part as usize).ok_or(BAD_VALUE)? = *value;
        }
        _ => return Err(UNSUPPORTED),
    }
    Ok(changes)
}

fn block<T>(table: &[T], n: usize, index: u32) -> Result<&[T], u16> {
    table.chunks_exact(n).nth(index as usize).ok_or(BAD_VALUE)
}

fn block_mut<T>(table: &mut [T], n: usize, index: u32) -> Result<&mut [T], u16> {
    table.chunks_exact_mut(n).nth(index as usize).ok_or(BAD_VALUE)
}

const _: () = assert!(N_GUIDS.is_multiple_of(GUIDS_IN_BLOCK) && N_PKEYS.is_multiple_of(PKEYS_IN_BLOCK));
