//! An event taken apart.

use super::json::{fields, hex};
use crate::{facts, record::Structure};
use mlx5_direct::mlx5::{
    eqe::{
        CqErrorSyndrome, Eqe as Layout64, EqeCmd, EqeComp, EqeCongestion, EqeCqErr, EqeDct, EqePageFaultRdma,
        EqePageFaultWqe, EqePageReq, EqePortModule, EqePortState, EqeQpSrq, EqeTempWarning, EqeVportChange,
        EqeXrqErr, EventType, PageFaultSubType, PageFaultType, PortChange,
    },
    layout::{Desc, Layout},
};
use serde_json::{Map, Value, json};

/// Bytes of an EQE.
const EQE_BYTES: usize = 64;
/// Where an EQE has what its event is about.
const DATA_OFFSET: usize = 0x20;

/// An event taken apart.
#[derive(Debug, Clone)]
pub struct Eqe {
    /// As `--json` has it.
    pub json: Map<String, Value>,
    /// The entry, and what its event is about.
    pub structures: Vec<Structure>,
    /// In one sentence.
    pub says: String,
    /// What to look at next.
    pub check: Vec<String>,
}

/// Takes apart an EQE of 64 bytes: `None` if there are others.
pub fn eqe(bytes: &[u8]) -> Option<Eqe> {
    let bytes = bytes.first_chunk::<EQE_BYTES>().filter(|_| bytes.len() == EQE_BYTES)?;
    let entry = Layout64::from_bytes(*bytes);
    let kind = entry.type_();
    let mut structures =
        vec![Structure { title: "EQE".into(), offset_bytes: 0, desc: Layout64::DESC, bytes: bytes.to_vec() }];
    let mut json = Map::new();
    json.insert("event_type".into(), json!(format!("0x{:02x} {}", kind.0, kind.name().unwrap_or("unknown"))));
    json.insert("sub_type".into(), hex(entry.sub_type(), 2));
    json.insert("signature".into(), hex(entry.signature(), 2));
    json.insert("owner".into(), json!(u8::from(entry.owner())));
    if let Some(desc) = data(kind, entry.sub_type()) {
        let about = Structure {
            title: "event data".into(),
            offset_bytes: DATA_OFFSET,
            desc,
            bytes: entry.event_data()[..desc.size_bytes].to_vec(),
        };
        json.insert("event_data".into(), fields(&about));
        structures.push(about);
    }
    let known = facts::event_of_type(kind);
    let check = known.map(|event| event.check.to_owned()).filter(|check| check != "nothing");
    Some(Eqe {
        json,
        structures,
        says: sentence(&entry, known.map(|event| event.says)),
        check: check.into_iter().collect(),
    })
}

/// The layout of what an event is about.
fn data(kind: EventType, sub_type: u8) -> Option<&'static Desc> {
    Some(match kind {
        EventType::COMP => EqeComp::DESC,
        EventType::CMD => EqeCmd::DESC,
        EventType::PAGE_REQUEST => EqePageReq::DESC,
        EventType::CQ_ERROR => EqeCqErr::DESC,
        EventType::XRQ_ERROR => EqeXrqErr::DESC,
        EventType::DCT_DRAINED | EventType::DCT_KEY_VIOLATION => EqeDct::DESC,
        EventType::PORT_CHANGE => EqePortState::DESC,
        EventType::PAGE_FAULT if sub_type == PageFaultSubType::WQE.0 => EqePageFaultWqe::DESC,
        EventType::PAGE_FAULT => EqePageFaultRdma::DESC,
        EventType::NIC_VPORT_CHANGE => EqeVportChange::DESC,
        EventType::PORT_MODULE_EVENT => EqePortModule::DESC,
        EventType::TEMP_WARN_EVENT => EqeTempWarning::DESC,
        EventType::DB_BF_CONGESTION => EqeCongestion::DESC,
        EventType::PATH_MIG
        | EventType::COMM_EST
        | EventType::SQ_DRAINED
        | EventType::WQ_CATAS_ERROR
        | EventType::PATH_MIG_FAILED
        | EventType::WQ_INVAL_REQ_ERROR
        | EventType::WQ_ACCESS_ERROR
        | EventType::SRQ_CATAS_ERROR
        | EventType::SRQ_LAST_WQE
        | EventType::SRQ_RQ_LIMIT => EqeQpSrq::DESC,
        _ => return None,
    })
}

fn sentence(entry: &Layout64, says: Option<&str>) -> String {
    let data = entry.event_data();
    let kind = entry.type_();
    let about = match kind {
        EventType::COMP => format!("CQ {} has completions", EqeComp::from_bytes(data).cqn()),
        EventType::CMD => format!("commands are done, of slots 0x{:x}", EqeCmd::from_bytes(data).vector()),
        EventType::CQ_ERROR => {
            let event = EqeCqErr::from_bytes(data);
            let why = match event.syndrome() {
                CqErrorSyndrome(1) => "it overflowed",
                CqErrorSyndrome(2) => "the device may not write it",
                _ => "the reason is unknown",
            };
            format!("CQ {} is dead: {why} ({})", event.cqn(), event.syndrome())
        }
        EventType::PORT_CHANGE => {
            let port = EqePortState::from_bytes(data).port_num();
            format!("port {port}: {}", PortChange(entry.sub_type()))
        }
        EventType::PAGE_REQUEST => {
            let event = EqePageReq::from_bytes(data);
            let n = event.num_pages() as i32;
            let what = if n < 0 { "gives back" } else { "wants" };
            format!("function {} {what} {} pages", event.func_id(), n.unsigned_abs())
        }
        EventType::PAGE_FAULT => page_fault(PageFaultSubType(entry.sub_type()), data),
        EventType::TEMP_WARN_EVENT => {
            let event = EqeTempWarning::from_bytes(data);
            let sensors = facts::sensors(event.sensor_warning_msb(), event.sensor_warning_lsb());
            format!("too hot at sensors {sensors:?}")
        }
        _ if data_is_queue(kind, entry.sub_type()) => {
            format!("queue 0x{:x}", EqeQpSrq::from_bytes(data).qp_srq_n())
        }
        _ => String::new(),
    };
    let text: Vec<_> =
        [about.as_str(), says.unwrap_or("")].into_iter().filter(|text| !text.is_empty()).collect();
    format!(
        "event {kind}: {}",
        if text.is_empty() { "no more is known of it".into() } else { text.join(": ") }
    )
}

fn page_fault(sub_type: PageFaultSubType, data: [u8; 28]) -> String {
    if sub_type == PageFaultSubType::WQE {
        let event = EqePageFaultWqe::from_bytes(data);
        let queue = match event.wqe_pftype_wq_type() {
            PageFaultType::RMP => "shared receive queue",
            PageFaultType::RESP => "the receive queue of QP",
            _ => "the send queue of QP",
        };
        return format!(
            "pages are missing that WQE {} of {queue} 0x{:x} names, {} bytes into its message; QP 0x{:x} waits for \
             PAGE_FAULT_RESUME",
            event.wqe_index(),
            event.wqe_pftype_wq_wq_num(),
            event.bytes_committed(),
            event.wqe_token()
        );
    }
    let event = EqePageFaultRdma::from_bytes(data);
    let does = if event.rdma_pftype_token_type().is_written() { "writes" } else { "reads" };
    format!(
        "pages are missing that a peer {does} by rkey 0x{:x}, {} bytes into the {} at 0x{:x}; QP 0x{:x} waits for \
         PAGE_FAULT_RESUME",
        event.rdma_r_key(),
        event.bytes_committed(),
        event.rdma_op_len(),
        event.rdma_va(),
        event.rdma_pftype_token_token()
    )
}

fn data_is_queue(kind: EventType, sub_type: u8) -> bool {
    data(kind, sub_type).is_some_and(|desc| desc.name == EqeQpSrq::DESC.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_faults_say_who_waits_for_what() {
        let says = |sub_type: PageFaultSubType, data| {
            let entry = Layout64::new().with_type_(EventType::PAGE_FAULT).with_sub_type(sub_type.0);
            eqe(&entry.with_event_data(data).to_bytes()).unwrap().says
        };
        let wqe = EqePageFaultWqe::new()
            .with_bytes_committed(4096)
            .with_wqe_index(7)
            .with_wqe_token(0x107)
            .with_wqe_pftype_wq_type(PageFaultType::RMP)
            .with_wqe_pftype_wq_wq_num(0x21);
        assert_eq!(
            says(PageFaultSubType::WQE, wqe.to_bytes()),
            "event PAGE_FAULT (0xc): pages are missing that WQE 7 of shared receive queue 0x21 names, 4096 bytes into its message; QP \
             0x107 waits for PAGE_FAULT_RESUME"
        );
        let rdma = EqePageFaultRdma::new()
            .with_rdma_r_key(0x1242)
            .with_rdma_op_len(8192)
            .with_rdma_va(0x7000)
            .with_rdma_pftype_token_type(PageFaultType::remote(true))
            .with_rdma_pftype_token_token(0x107);
        assert_eq!(
            says(PageFaultSubType::RDMA, rdma.to_bytes()),
            "event PAGE_FAULT (0xc): pages are missing that a peer writes by rkey 0x1242, 0 bytes into the 8192 at 0x7000; QP 0x107 \
             waits for PAGE_FAULT_RESUME"
        );
    }
}
