//! Paging on demand: the driver's answer to a PAGE_FAULT event.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::{eqe::PageFaultType, layout::layout};

layout! {
    /// Lets a queue go on that met a page fault. The event said type, queue and token.
    pub struct PageFaultResumeIn, 16, "page_fault_resume_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        /// The pages could not be brought: the access fails.
        0x08 [31:31] error: bool,
        0x08 [26:24] page_fault_type: PageFaultType,
        /// Queue of the WQE; the token again, if a peer named the memory.
        0x08 [23:0] wq_number: u32,
        /// Queue pair or DC target that waits.
        0x0c [23:0] token: u32,
    }

    /// Output of PAGE_FAULT_RESUME.
    pub struct PageFaultResumeOut, 16, "page_fault_resume_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

command! { PAGE_FAULT_RESUME, PageFaultResumeIn => PageFaultResumeOut }
