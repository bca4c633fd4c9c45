//! An event taken apart.

use super::json::{fields, hex};
use crate::{facts, record::Structure};
use mlx5_direct::mlx5::{
    eqe::{
        CqErrorSyndrome, Eqe as Layout64, EqeCmd, EqeComp, EqeCongestion, EqeCqErr, EqeDct, EqePageFaultRdma,
        EqePageFaultWqe, EqePageReq, EqePortModule, EqePortState, EqeQpSrq, EqeTempWarning, EqeVportChange,
        EqeXrqErr, EventType, PortChange,
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
        EventType::PAGE_FAULT if sub_type == 0 => EqePageFaultWqe::DESC,
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

fn data_is_queue(kind: EventType, sub_type: u8) -> bool {
    data(kind, sub_type).is_some_and(|desc| desc.name == EqeQpSrq::DESC.name)
}
