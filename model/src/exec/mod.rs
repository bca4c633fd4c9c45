//! WQEs, and the transports: RC and XRC, UC, DC, datagrams.
//!
//! One [`RcQp`] is the transport engine of one RC or XRC queue pair, requester and responder. It is a passive state
//! machine over a [`Host`]:
//!
//! | call | when |
//! |---|---|
//! | `RcQp::new(QpConfig)` | the QP is created: state RST |
//! | `set_state(host, QpState, QpConfig)` | a legal transition was made, or attributes changed (same state) |
//! | `doorbell(host, sq_counter)` | the send doorbell rang; the counter is dbrec word 1 |
//! | `receive(host, &Packet)` | a packet with this QP as destination passed its ICRC |
//! | `run(host, budget_packets) -> bool` | until false: nothing more to do without a new event |
//! | `next_deadline() -> Option<u64>`, `timer(host)` | a timer is due at that `Host::now` |
//! | `resume(Ring, error)` | the driver has answered the page fault of that side |
//! | `part(host)` | the QP is destroyed |
//! | `state()`, `progress()` | for QUERY_QP; the engine itself may enter ERR |
//!
//! [`UcQp`] is the same for UC and [`UdQp`] for datagrams, without timers. A DC initiator is an [`RcQp`] too; a [`DcTarget`] has
//! no state but what it knows of initiators.
//!
//! After every call but `next_deadline`, `state` and `progress`, call `run`. In ERR too: what is posted there,
//! by doorbell or by receive counter, is flushed by `run`.
#![forbid(unsafe_code)]

mod answers;
mod atomic;
mod completion;
pub mod config;
mod counter;
mod courier;
mod cqe;
mod dc;
mod engine;
pub mod host;
mod local;
mod paging;
mod progress;
mod psn;
mod rc;
mod receive;
mod rendezvous;
mod replies;
mod request;
mod requester;
mod responder;
mod tag_list;
mod tag_matching;
mod timers;
mod uc;
mod ud;
mod umr;
mod wqe;

pub use config::{DcStreams, Path, QpConfig, QpState, Service, SharedQueue};
pub use counter::Counter;
pub use cqe::Cqe;
pub use dc::DcTarget;
pub use engine::Engine;
pub use host::{
    Host, KeyFault, Need, QpEvent, Right, Ring, RingFault, RoceKind, Rule, SharedWqe, SourceAddress, Station,
    Wake,
};
pub use local::LOG_MAX_COPY_BYTES;
pub use paging::{FaultedMemory, PageFault};
pub use progress::QpProgress;
pub use rc::RcQp;
pub use tag_list::{TagList, TagMemory, TagOutcome, TakenTag};
pub use uc::UcQp;
pub use ud::UdQp;
pub use umr::{UmrFault, UmrList, UmrRequest};
