//! Devices, ports and their addresses.

use crate::{
    bench::Bench,
    outcome::{Outcome, fail},
    pair::DEADLINE,
};
use mlx5_direct::{
    Context,
    backend::{AsyncEvent, GidType, PortState},
};
use std::time::Instant;

pub(super) fn query(bench: &Bench) -> Outcome {
    for ctx in bench.ends() {
        let attr = ctx.device();
        let limits = [attr.max_qp, attr.max_qp_wr, attr.max_cq, attr.max_cqe, attr.max_mr, attr.max_msg_size];
        if limits.contains(&0) || attr.fw_ver.is_empty() {
            return fail(format!("a limit is 0: {attr:?}"));
        }
        let port = ctx.port(1)?;
        if port.state != PortState::Active {
            return fail(format!("port 1 is {:?}", port.state));
        }
        let index = ctx.usual_gid_index(1)?;
        let gid = ctx.gid(1, index.into())?;
        if gid.gid_type != GidType::RoceV2 {
            return fail(format!("GID {index} is {gid}"));
        }
        for port in [0, attr.phys_port_cnt + 1] {
            if ctx.port(port).is_ok() {
                return fail(format!("port {port} was not refused"));
            }
        }
    }
    Ok(())
}

/// Brings the port up again, whatever became of the scenario.
struct PortUp<'c>(&'c Context);

impl Drop for PortUp<'_> {
    fn drop(&mut self) {
        // A device that refuses this has told the scenario so.
        let _ = self.0.set_port(1, true);
    }
}

pub(super) fn link(bench: &Bench) -> Outcome {
    let [ctx, _] = bench.ends();
    let _restored = PortUp(ctx);
    for up in [false, true] {
        ctx.set_port(1, up)?;
        let start = Instant::now();
        loop {
            match ctx.next_async_event(DEADLINE.saturating_sub(start.elapsed()))? {
                Some(AsyncEvent::PortChange { port: 1, up: now }) if now == up => break,
                Some(_) => {}
                None => return fail(format!("no event within {DEADLINE:?} that the port is up: {up}")),
            }
        }
        let state = ctx.port(1)?.state;
        if (state == PortState::Active) != up {
            return fail(format!("the port was told to be up: {up}, and is {state:?}"));
        }
    }
    Ok(())
}
