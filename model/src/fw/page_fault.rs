//! Paging on demand: page faults are told to the driver as events, and answered by PAGE_FAULT_RESUME.
#![forbid(unsafe_code)]

use super::{
    Function,
    dispatch::{Input, Output, done},
    refusal::Refusal,
};
use crate::exec::{FaultedMemory, PageFault, Ring};
use mlx5_direct::mlx5::{
    caps::{OdpCap, OdpPerTransportServiceCap},
    cmd::PageFaultResumeIn,
    eqe::{EqePageFaultRdma, EqePageFaultWqe, EventType, PageFaultSubType, PageFaultType},
};
use std::collections::BTreeMap;

/// Faults that the driver has not answered yet, by queue pair or DC target and whether it is the requester's: what the answer
/// must say too, type and queue.
pub(super) type PageFaults = BTreeMap<(u32, bool), (PageFaultType, u32)>;

/// Where memory may be missing. Datagrams cannot be asked for again, so they are received into memory that is there.
pub(super) fn capabilities() -> OdpCap {
    let shared = OdpPerTransportServiceCap::new()
        .with_send(true)
        .with_write(true)
        .with_read(true)
        .with_atomic(true)
        .with_srq_receive(true);
    OdpCap::new()
        .with_rc_odp_caps(shared.with_receive(true))
        .with_xrc_odp_caps(shared)
        .with_dc_odp_caps(shared)
        .with_ud_odp_caps(OdpPerTransportServiceCap::new().with_send(true))
}

impl Function {
    /// Tells the driver of a fault. Returns false if it still has to answer for another of the same side.
    pub(super) fn page_fault(&mut self, fault: &PageFault) -> bool {
        let token = fault.qpn.get();
        let (committed, packet_length) = (fault.bytes_committed as u32, fault.packet_bytes as u16);
        let (kind, queue, sub_type, data) = match fault.memory {
            FaultedMemory::Wqe { kind, queue, index } => {
                let data = EqePageFaultWqe::new()
                    .with_bytes_committed(committed)
                    .with_wqe_index(index)
                    .with_wqe_packet_length(packet_length)
                    .with_wqe_token(token)
                    .with_wqe_pftype_wq_type(kind)
                    .with_wqe_pftype_wq_wq_num(queue);
                (kind, queue, PageFaultSubType::WQE, data.to_bytes())
            }
            FaultedMemory::Remote { rkey, addr, len_bytes, is_written } => {
                let kind = PageFaultType::remote(is_written);
                let data = EqePageFaultRdma::new()
                    .with_bytes_committed(committed)
                    .with_rdma_r_key(rkey)
                    .with_rdma_packet_length(packet_length)
                    .with_rdma_op_len(len_bytes)
                    .with_rdma_va(addr)
                    .with_rdma_pftype_token_type(kind)
                    .with_rdma_pftype_token_token(token);
                (kind, token, PageFaultSubType::RDMA, data.to_bytes())
            }
        };
        let side = (token, fault.side() == Ring::Send);
        if self.page_faults.contains_key(&side) {
            return false;
        }
        self.page_faults.insert(side, (kind, queue));
        self.event(EventType::PAGE_FAULT, sub_type.0, data);
        true
    }

    pub(super) fn page_fault_resume(&mut self, input: &Input<'_>) -> Output {
        let input: PageFaultResumeIn = input.get()?;
        let (number, kind) = (input.token(), input.page_fault_type());
        let side = (number, kind.is_requester());
        if self.page_faults.get(&side) != Some(&(kind, input.wq_number())) {
            return Err(Refusal::NO_SUCH_FAULT);
        }
        self.page_faults.remove(&side);
        let error = input.error();
        if self.dcts.contains(number) {
            self.with_dct(number, |target, _| target.resume(error));
        } else {
            let ring = if kind.is_requester() { Ring::Send } else { Ring::Receive };
            self.with_engine(number, |engine, _| engine.resume(ring, error));
        }
        self.ready.insert(number);
        done()
    }

    /// A queue pair or DC target is destroyed: nobody waits any more.
    pub(super) fn forget_page_faults(&mut self, number: u32) {
        self.page_faults.remove(&(number, true));
        self.page_faults.remove(&(number, false));
    }
}
