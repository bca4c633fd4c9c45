//! The table of scenarios.

mod data;
mod device;
mod errors;
mod latency;
mod load;
mod unreliable;

use crate::{bench::Bench, outcome::Outcome};
use hdrhistogram::Histogram;
use mlx5_direct::backend::LinkLayer;

/// Something that may be run on a device.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// What holds if it passes.
    pub(crate) asserts: &'static str,
    /// What the device must have for it.
    pub(crate) needs: &'static [Need],
    pub(crate) run: Run,
}

/// What a scenario does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Run {
    /// It checks.
    Check(fn(&Bench) -> Outcome),
    /// It checks, and measures nanoseconds.
    Measure(fn(&Bench) -> Outcome<Histogram<u64>>),
}

/// What a device may lack.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Need {
    /// 8-byte atomics.
    Atomics,
    /// Two functions, cabled.
    TwoFunctions,
    /// An Ethernet port, with RoCE.
    Ethernet,
}

impl Need {
    /// Why the bench does not have it.
    pub(crate) fn missing_on(self, bench: &Bench) -> Option<String> {
        let [first, last] = bench.ends();
        match self {
            Self::Atomics if !first.device().atomic_cap => {
                Some("the device has no atomics (atomic_cap)".into())
            }
            Self::TwoFunctions if first.name() == last.name() => {
                Some("needs two functions: --device model:ports=2, or two cards with a comma between".into())
            }
            Self::Ethernet => match first.port(1) {
                Ok(port) if port.link_layer == LinkLayer::Ethernet => None,
                Ok(port) => Some(format!("needs an Ethernet port, and port 1 is {:?}", port.link_layer)),
                Err(error) => Some(format!("port 1 does not say what it is: {error}")),
            },
            _ => None,
        }
    }
}

/// Every scenario, in the order in which they are run.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "query_device_port_gid",
        asserts: "limits are not zero, the port is active, the usual GID is of RoCE v2, port 0 is refused",
        needs: &[Need::Ethernet],
        run: Run::Check(device::query),
    },
    Scenario {
        name: "link_down_and_up",
        asserts: "a disabled port goes down and tells by an event, an enabled one comes up again",
        needs: &[Need::TwoFunctions],
        run: Run::Check(device::link),
    },
    Scenario {
        name: "send_recv_1000",
        asserts: "1000 messages arrive once each, in order, with their bytes",
        needs: &[],
        run: Run::Check(data::send_recv),
    },
    Scenario {
        name: "send_imm",
        asserts: "immediate data arrive beside the message",
        needs: &[],
        run: Run::Check(data::send_imm),
    },
    Scenario {
        name: "inline_all_sizes",
        asserts: "inline data of every size from 0 to the limit arrive; one byte more is refused",
        needs: &[],
        run: Run::Check(data::inline),
    },
    Scenario {
        name: "write",
        asserts: "the peer's memory holds the bytes and nothing around them changes; no receive is used",
        needs: &[],
        run: Run::Check(data::write),
    },
    Scenario {
        name: "write_imm",
        asserts: "as write, and one receive completes with the immediate data",
        needs: &[],
        run: Run::Check(data::write_imm),
    },
    Scenario {
        name: "read",
        asserts: "the peer's bytes are in own memory when the READ completes",
        needs: &[],
        run: Run::Check(data::read),
    },
    Scenario {
        name: "compare_swap",
        asserts: "memory changes only where it compares equal; the old value comes back",
        needs: &[Need::Atomics],
        run: Run::Check(data::compare_swap),
    },
    Scenario {
        name: "fetch_add",
        asserts: "1000 additions give their sum; each brings the value before it",
        needs: &[Need::Atomics],
        run: Run::Check(data::fetch_add),
    },
    Scenario {
        name: "unsignaled_then_signaled",
        asserts: "one completion retires the silent requests before it; the queue refuses when full",
        needs: &[],
        run: Run::Check(data::unsignaled),
    },
    Scenario {
        name: "event_wakes_sleeper",
        asserts: "a sleeper wakes for a message that comes later, and does not wake without one",
        needs: &[],
        run: Run::Check(data::event),
    },
    Scenario {
        name: "rnr_then_post",
        asserts: "a message without receive waits, and arrives once one is posted",
        needs: &[],
        run: Run::Check(errors::rnr_then_post),
    },
    Scenario {
        name: "rnr_exceeded",
        asserts: "with rnr_retry 1 a message without receive fails by name, and what follows is flushed",
        needs: &[],
        run: Run::Check(errors::rnr_exceeded),
    },
    Scenario {
        name: "remote_access_error",
        asserts: "a WRITE without the right fails by name at the sender, memory is untouched",
        needs: &[],
        run: Run::Check(errors::remote_access),
    },
    Scenario {
        name: "remote_bounds_error",
        asserts: "a READ one byte beyond the peer's memory fails by name",
        needs: &[],
        run: Run::Check(errors::remote_bounds),
    },
    Scenario {
        name: "local_access_error",
        asserts: "a receive into memory without LOCAL_WRITE fails by name at both ends",
        needs: &[],
        run: Run::Check(errors::local_access),
    },
    Scenario {
        name: "short_receive",
        asserts: "a message longer than its receive fails by name at both ends",
        needs: &[],
        run: Run::Check(errors::short_receive),
    },
    Scenario {
        name: "recover_after_error",
        asserts: "a queue pair in ERR goes through RST and works again",
        needs: &[],
        run: Run::Check(errors::recover),
    },
    Scenario {
        name: "long_messages",
        asserts: "4 MiB and some bytes arrive by SEND, WRITE and READ",
        needs: &[],
        run: Run::Check(load::long_messages),
    },
    Scenario {
        name: "sq_index_wrap_65536",
        asserts: "70,000 requests complete once each, in order, beyond the 16 bits of their index",
        needs: &[],
        run: Run::Check(load::index_wrap),
    },
    Scenario {
        name: "parallel_pairs",
        asserts: "32 pairs at once, 200 messages each, every byte at its place",
        needs: &[],
        run: Run::Check(load::many_pairs),
    },
    Scenario {
        name: "mr_reg_dereg",
        asserts: "a peer writes the last bytes of 500 registrations of odd sizes, and none of one that is ended",
        needs: &[],
        run: Run::Check(load::register_often),
    },
    Scenario {
        name: "qp_destroy_outstanding",
        asserts: "queue pairs go while packets fly, from either end; the next pair works",
        needs: &[],
        run: Run::Check(load::destroy_busy),
    },
    Scenario {
        name: "uc_send_write",
        asserts: "over an unreliable connection SEND and WRITE, with immediate data and without, of one packet and of many",
        needs: &[],
        run: Run::Check(unreliable::uc_send_write),
    },
    Scenario {
        name: "uc_nobody_answers",
        asserts: "what has no receive or no right is lost, its sender succeeds, and what comes after it arrives",
        needs: &[],
        run: Run::Check(unreliable::uc_nobody_answers),
    },
    Scenario {
        name: "uc_send_queue_error",
        asserts: "a request that fails by name stops the send queue (SQER), which flushes; receiving goes on, and it starts again",
        needs: &[],
        run: Run::Check(unreliable::uc_send_queue_error),
    },
    Scenario {
        name: "ud_send_grh",
        asserts: "datagrams come behind 40 bytes of header that name both ends, the completion names the sender, answers arrive",
        needs: &[],
        run: Run::Check(unreliable::ud_send_grh),
    },
    Scenario {
        name: "ud_wrong_qkey",
        asserts: "a datagram with a wrong Q_Key is dropped, its sender succeeds, and the next one with the right key arrives",
        needs: &[],
        run: Run::Check(unreliable::ud_wrong_qkey),
    },
    Scenario {
        name: "ud_over_mtu_refused",
        asserts: "a datagram as long as the MTU arrives, one of a byte more is refused before it is posted",
        needs: &[],
        run: Run::Check(unreliable::ud_over_mtu),
    },
    Scenario {
        name: "send_latency",
        asserts: "half a round trip of 64 bytes by SEND, polled",
        needs: &[],
        run: Run::Measure(latency::send),
    },
    Scenario {
        name: "write_latency",
        asserts: "half a round trip of 64 bytes by WRITE, seen in memory",
        needs: &[],
        run: Run::Measure(latency::write),
    },
    Scenario {
        name: "read_latency",
        asserts: "a READ of 64 bytes, from post to completion",
        needs: &[],
        run: Run::Measure(latency::read),
    },
    Scenario {
        name: "fetch_add_latency",
        asserts: "an addition, from post to completion",
        needs: &[Need::Atomics],
        run: Run::Measure(latency::fetch_add),
    },
    Scenario {
        name: "send_event_latency",
        asserts: "half a round trip of 64 bytes by SEND, both ends asleep",
        needs: &[],
        run: Run::Measure(latency::send_events),
    },
];
