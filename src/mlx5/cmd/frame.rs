//! How a command travels: slots of the command queue, mailboxes, signatures.

use crate::mlx5::layout::{layout, wire_enum};

layout! {
    /// Slot of the command queue (Linux `mlx5_cmd_layout`).
    pub struct CmdEntry, 64, "cmd_queue_entry" {
        /// [`PCI_CMD_XPORT`].
        0x00 [31:24] type_: u8,
        /// Bytes of the whole input, the 16 inline included.
        0x04 [31:0] input_length: u32,
        /// IOVA of the first mailbox; 0 if all is inline.
        0x08 [63:0] input_mailbox_ptr: u64,
        /// First 16 bytes of the input.
        0x10 [bytes] input_inline: [u8; 16],
        /// First 16 bytes of the output.
        0x20 [bytes] output_inline: [u8; 16],
        /// IOVA of the first mailbox for the output; 0 if all is inline.
        0x30 [63:0] output_mailbox_ptr: u64,
        /// Bytes of the whole output, the 16 inline included.
        0x38 [31:0] output_length: u32,
        /// Same as in all mailboxes of the command.
        0x3c [31:24] token: u8,
        /// [`entry_signature`].
        0x3c [23:16] signature: u8,
        /// Valid when the device has given the slot back.
        0x3c [7:1] delivery_status: DeliveryStatus,
        /// Set by software last, cleared by the device when done.
        0x3c [0:0] hw_owned: bool,
    }

    /// Mailbox (Linux `mlx5_cmd_prot_block`): a link of the chain that carries what does not fit inline.
    pub struct MailboxBlock, 576, "cmd_mailbox_block" {
        0x00 [bytes] data: [u8; 512],
        0x200 [struct] trailer: MailboxTrailer,
    }

    /// Tail of a mailbox.
    pub struct MailboxTrailer, 64, "cmd_mailbox_block+0x200" {
        /// IOVA of the next mailbox; 0 ends the chain.
        0x30 [63:0] next: u64,
        /// Place in the chain, from 0.
        0x38 [31:0] block_num: u32,
        /// Same as the slot's.
        0x3c [23:16] token: u8,
        /// [`ctrl_signature`] of the block.
        0x3c [15:8] ctrl_signature: u8,
        /// [`block_signature`] of the block.
        0x3c [7:0] signature: u8,
    }
}

wire_enum! {
    /// What the command interface says of a command, before firmware saw it.
    pub struct DeliveryStatus(u8), "cmd_delivery_status" {
        OK = 0x00,
        /// A signature is wrong.
        SIGNAT_ERR = 0x01,
        /// Tokens of slot and mailboxes differ.
        TOK_ERR = 0x02,
        /// A mailbox is out of order in its chain.
        BAD_BLK_NUM_ERR = 0x03,
        /// The output mailbox is not aligned.
        OUT_PTR_ALIGN_ERR = 0x04,
        /// The input mailbox is not aligned.
        IN_PTR_ALIGN_ERR = 0x05,
        /// Firmware failed.
        FW_ERR = 0x06,
        /// The input length does not fit the command.
        IN_LENGTH_ERR = 0x07,
        /// The output length does not fit the command.
        OUT_LENGTH_ERR = 0x08,
        /// A reserved field is not zero.
        RES_FLD_NOT_CLR_ERR = 0x09,
        /// The slot itself is malformed.
        CMD_DESCR_ERR = 0x10,
    }
}

/// [`CmdEntry::type_`] of a command that travels by PCI.
pub const PCI_CMD_XPORT: u8 = 7;
/// Bytes of input, and of output, that the slot itself carries.
pub const INLINE_BYTES: usize = 16;
/// Bytes of data in a mailbox.
pub const MAILBOX_DATA_BYTES: usize = 512;
/// Alignment of mailboxes that drivers use.
pub const MAILBOX_ALIGN_BYTES: usize = 1024;
/// Slots that a command queue has at most.
pub const MAX_COMMANDS: usize = 32;

/// Complement of the xor of all bytes.
fn xor8(bytes: &[u8]) -> u8 {
    !bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

/// Signature of a slot: over the slot as it is handed over, with the signature byte zero.
///
/// A slot that carries it has xor 0xff over its 64 bytes.
pub fn entry_signature(entry: &CmdEntry) -> u8 {
    xor8(&entry.with_signature(0).to_bytes())
}

/// Signature of a mailbox's trailer, written first: over its bytes before the two signatures.
pub fn ctrl_signature(trailer: &MailboxTrailer) -> u8 {
    xor8(&trailer.to_bytes()[..62])
}

/// Signature of a mailbox: over data and trailer before the last byte, the trailer's signature included.
pub fn block_signature(data: &[u8; MAILBOX_DATA_BYTES], trailer: &MailboxTrailer) -> u8 {
    !(xor8(data) ^ xor8(&trailer.to_bytes()[..63]))
}

/// Mailboxes that carry `length` bytes beside the slot's own.
pub const fn n_mailboxes(length: usize) -> usize {
    length.saturating_sub(INLINE_BYTES).div_ceil(MAILBOX_DATA_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlx5::layout::painted;

    #[test]
    fn golden_bytes() {
        let entry = CmdEntry::from_bytes([0xa5; 64]);
        assert_eq!(
            entry.with_type_(PCI_CMD_XPORT).with_input_length(0x110).to_bytes(),
            painted(&[(0, &[7]), (4, &[0, 0, 1, 0x10])])
        );
        assert_eq!(entry.with_token(0x5a).to_bytes(), painted(&[(60, &[0x5a])]));
        assert_eq!(entry.with_hw_owned(false).to_bytes(), painted(&[(63, &[0xa4])]));
        let done = entry.with_delivery_status(DeliveryStatus::TOK_ERR).with_hw_owned(false);
        assert_eq!(done.to_bytes(), painted(&[(63, &[4])]));
        assert_eq!(done.delivery_status(), DeliveryStatus::TOK_ERR);
        let trailer =
            MailboxTrailer::from_bytes([0xa5; 64]).with_next(0x1000).with_block_num(2).with_token(9);
        assert_eq!(
            trailer.to_bytes(),
            painted(&[(0x30, &[0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 2]), (0x3d, &[9])])
        );
    }

    #[test]
    fn a_signed_entry_sums_to_ones() {
        let entry = CmdEntry::new().with_type_(7).with_token(0x31).with_hw_owned(true).with_signature(0x99);
        // 7 ^ 0x31 ^ 1 = 0x37; whatever stood in the signature does not count.
        assert_eq!(entry_signature(&entry), !0x37);
        let signed = entry.with_signature(entry_signature(&entry));
        assert_eq!(signed.to_bytes().iter().fold(0, |sum, byte| sum ^ byte), 0xff);
    }

    #[test]
    fn a_signed_mailbox_sums_to_ones_twice() {
        // All bytes but the first go away.
        let mut data = core::array::from_fn(|n| n as u8 & 0x7f);
        data[0] = 0x5a;
        let mut trailer = MailboxTrailer::new().with_token(0x31).with_block_num(3);
        assert_eq!(block_signature(&data, &trailer), !(0x5a ^ 0x32), "whether the trailer is signed or not");
        trailer.set_ctrl_signature(ctrl_signature(&trailer));
        assert_eq!(trailer.ctrl_signature(), !0x32);
        trailer.set_signature(block_signature(&data, &trailer));
        let xor = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum ^ byte);
        assert_eq!(xor(&trailer.to_bytes()[..63]), 0xff);
        assert_eq!(xor(&data) ^ xor(&trailer.to_bytes()), 0xff);
    }

    #[test]
    fn mailboxes_needed() {
        assert_eq!([0, 16, 17, 528, 529].map(n_mailboxes), [0, 0, 1, 1, 2]);
    }
}
