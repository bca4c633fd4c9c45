//! Two connected ends, driven from one thread, and what is measured on them.

mod bw;
mod lat;
mod patience;
mod progress;

pub(crate) use bw::{Rate, bandwidth};
pub(crate) use lat::{Latencies, check_message, latency};
pub(crate) use patience::{Patience, Watched};
pub(crate) use progress::Progress;

use crate::{
    device::Device,
    endpoint::{Endpoint, PORT},
    failure::Failure,
    payload::Payload,
    plan::{Measure, Plan},
};
use mlx5_direct::Connection;
use std::time::Duration;

/// End `a`, which starts everything.
pub(crate) const A: usize = 0;
/// End `b`, which answers.
pub(crate) const B: usize = 1;

/// Two connected ends.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) ends: [Endpoint; 2],
    pub(crate) plan: Plan,
    payload: Payload,
}

impl Link {
    /// Connects two ends on the device as `plan` asks.
    pub(crate) fn connect(device: &Device, plan: &Plan, measure: Measure) -> Result<Self, Failure> {
        let on = device.ends();
        let ends_on_first = if device.functions().len() == 1 { 2 } else { 1 };
        for end in on {
            plan.check_device(end.device(), &end.port(PORT)?, measure, ends_on_first)?;
        }
        let mut a = Endpoint::new("a", on[A], plan, measure)?;
        let mut b = Endpoint::new("b", on[B], plan, measure)?;
        let how = Connection { port: PORT, ..Connection::default() };
        let (to_b, to_a) = (b.addresses(&how)?, a.addresses(&how)?);
        a.connect(&to_b, &how)?;
        b.connect(&to_a, &how)?;
        Ok(Self { ends: [a, b], plan: plan.clone(), payload: Payload::new(plan.seed) })
    }

    /// Fills both receive queues.
    fn fill_recv_queues(&mut self) -> Result<(), Failure> {
        for end in &mut self.ends {
            for lane in 0..end.lanes.len() {
                end.fill_recv_queue(lane)?;
            }
        }
        Ok(())
    }

    /// Waits for completions at `end` until `ready`.
    fn wait(&mut self, end: usize, what: &str, ready: impl Fn(&Endpoint) -> bool) -> Result<(), Failure> {
        let mut patience = Patience::new(self);
        loop {
            let n = self.ends[end].drain()?;
            if ready(&self.ends[end]) {
                return Ok(());
            }
            if n == 0 {
                patience.idle(self, end, what)?;
            } else {
                patience = Patience::new(self);
            }
        }
    }

    /// Waits until the memory of `end` shows `byte` at `offset`.
    fn wait_memory(&mut self, end: usize, offset: usize, byte: u8, what: &str) -> Result<(), Failure> {
        let mut patience = Patience::new(self);
        while self.ends[end].mr.load_u8(offset) != byte {
            patience.idle(self, end, what)?;
        }
        Ok(())
    }
}

impl Watched for Link {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn sleep(&mut self, end: usize, timeout: Duration) -> Result<(), Failure> {
        self.ends[end].sleep(timeout)
    }

    fn look(&mut self) -> Result<(), Failure> {
        self.ends[A].drain()?;
        self.ends[B].drain()?;
        Ok(())
    }

    fn ends(&self) -> &[Endpoint] {
        &self.ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Op, Transport};
    use mlx5_model::Model;
    use std::time::Instant;

    const TIMEOUT: Duration = Duration::from_millis(300);

    fn plan(op: Op, events: bool) -> Plan {
        let (batch, depth, signal_every, qps) = (1, 16, 1, 1);
        Plan {
            transport: Transport::Rc,
            op,
            size: 8,
            iters: 64,
            inline: false,
            batch,
            depth,
            signal_every,
            events,
            qps,
            seed: 7,
            timeout: TIMEOUT,
            explain: false,
            two_hosts: false,
            window_bytes: 0,
        }
    }

    /// Connects, lets `mishap` happen, and runs: the error, and how long it took.
    fn run(op: Op, events: bool, measure: Measure, mishap: impl FnOnce(&Model)) -> (String, Duration) {
        let model = Model::new("ports=2".parse().unwrap()).unwrap();
        let device = Device::on(model.clone(), &crate::device::options(Duration::from_secs(10))).unwrap();
        let mut link = Link::connect(&device, &plan(op, events), measure).unwrap();
        mishap(&model);
        let start = Instant::now();
        let result = match measure {
            Measure::Latency => latency(&mut link).map(drop),
            Measure::Bandwidth => bandwidth(&mut link).map(drop),
        };
        (result.unwrap_err().message().unwrap(), start.elapsed())
    }

    #[test]
    fn a_pulled_cable_ends_the_run_at_its_deadline() {
        for events in [false, true] {
            for (op, measure) in [
                (Op::Send, Measure::Latency),
                (Op::Read, Measure::Latency),
                (Op::WriteImm, Measure::Bandwidth),
                (Op::Faa, Measure::Bandwidth),
            ] {
                let (message, took) = run(op, events, measure, |model| model.set_port(1, false));
                assert!(took < Duration::from_secs(10), "{took:?}");
                // Whichever comes first: the transport gives up, or the deadline passes.
                let told = message.contains("within 300ms (--timeout and time for the bytes): a posted")
                    || message.contains("TRANSPORT_RETRY_EXC_ERR");
                assert!(told, "{op:?} {events}: {message}");
            }
        }
    }

    #[test]
    fn a_write_that_never_arrives_ends_the_run_at_its_deadline() {
        let (message, _) = run(Op::Write, false, Measure::Latency, |model| model.set_port(1, false));
        assert!(
            message.contains("the arrival of an RDMA WRITE") || message.contains("RETRY_EXC"),
            "{message}"
        );
    }

    #[test]
    fn a_device_that_left_the_bus_is_told() {
        for events in [false, true] {
            let (message, took) =
                run(Op::Send, events, Measure::Latency, |model| model.inject(&"@0 gone".parse().unwrap()));
            assert!(message.contains("device is gone"), "{message}");
            assert!(took < Duration::from_secs(10), "{took:?}");
        }
    }

    #[test]
    fn wrong_bytes_are_found() {
        let model = Model::new("".parse().unwrap()).unwrap();
        let device = Device::on(model, &crate::device::options(Duration::from_secs(10))).unwrap();
        let mut link = Link::connect(&device, &plan(Op::Write, false), Measure::Bandwidth).unwrap();
        bandwidth(&mut link).unwrap();
        let b = &link.ends[B];
        let at = b.places.incoming(0, 3);
        b.mr.write(at + 5, &[!0]);
        let error = crate::payload::verify(&b.mr, at, &[0; 8], "message 3").unwrap_err();
        assert!(
            error.message().unwrap().starts_with("payload of message 3 is wrong: byte 0 of 8"),
            "{error:?}"
        );
    }
}
