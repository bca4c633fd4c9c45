//! Requests encoded: what a work request is in memory, by the queues of the driver.
//!
//! A request is JSON, with the names that `docs` of the vectors have: `kind`, `transport`, `qpn`, `wqe_index`, `ring_wqebbs`,
//! `opcode` and what the opcode takes. Fields that are not known are passed over; one that is missing or impossible is
//! refused by its name.

mod fields;
mod key;
mod peer;
mod receive;
mod send;

pub use fields::Refusal;

use crate::structure::Transport;
use fields::Fields;
use mlx5_direct::queue::Drafted;
use serde_json::{Map, Value, json};

/// A request, encoded.
#[derive(Debug, Clone)]
pub struct Encoded {
    /// The request, and what tells the device of it.
    pub drafted: Drafted,
    /// How its queue pair talks; `None` of a receive request.
    pub transport: Option<Transport>,
    /// Bytes of a receive WQE that count: as far as the end of its list.
    pub used_bytes: usize,
    /// What is said beside it.
    pub notes: Vec<&'static str>,
}

impl Encoded {
    /// The WQE, as far as it counts.
    pub fn wqe(&self) -> &[u8] {
        &self.drafted.wqe[..self.used_bytes]
    }

    /// As `mlx5 encode --json` prints it: in the forms of the vectors.
    pub fn json(&self, id: Option<&Value>) -> Value {
        let mut map = Map::new();
        if let Some(id) = id {
            map.insert("id".into(), id.clone());
        }
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        if self.transport.is_none() {
            map.insert("index".into(), json!(self.drafted.wqe_index));
            map.insert("stride".into(), json!(self.drafted.wqe.len()));
        }
        map.insert("wqe".into(), json!(hex(self.wqe())));
        if self.transport.is_some() {
            map.insert("ds".into(), json!(self.drafted.wqe.len() / 16));
            map.insert("wqebbs".into(), json!(self.drafted.n_wqebbs));
        }
        map.insert("record".into(), json!(hex(&self.drafted.record)));
        if self.transport.is_some() {
            map.insert("register".into(), json!(hex(&self.drafted.register)));
        }
        Value::Object(map)
    }
}

/// Encodes a request.
///
/// # Errors
/// The field that is missing or impossible, with the rule.
pub fn encode(request: &Value) -> Result<Encoded, Refusal> {
    let Some(map) = request.as_object() else {
        return Err(Refusal::new("request", "is no JSON object"));
    };
    let fields = Fields::new(map);
    match fields.text("kind")? {
        "send" => send::encode(&fields),
        "recv" => receive::encode(&fields),
        other => Err(Refusal::new("kind", format!("is {other:?}, but there are \"send\" and \"recv\""))),
    }
}
