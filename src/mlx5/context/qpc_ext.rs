//! What follows a queue pair's context in the commands of newer devices.

use crate::mlx5::layout::layout;

layout! {
    /// The extended context; bits of `opt_param_mask_95_32` say which fields count.
    pub struct QpcExt, 192, "qpc_ext" {
        /// MMO requests, memory to memory, may be posted.
        0x00 [29:29] mmo: bool,
        /// DC initiator: the stream whose error is over.
        0x00 [15:0] dci_stream_channel_id: u16,
        0x04 [31:0] qos_queue_group_id_requester: u32,
        0x08 [31:0] qos_queue_group_id_responder: u32,
    }
}
