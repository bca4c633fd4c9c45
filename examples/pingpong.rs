//! Messages back and forth between two queue pairs, sleeping for each on a completion event.
//!
//! `cargo run --example pingpong`

use mlx5_direct::{
    Access, Connection, Context, Cq, CqAttr, Events, Mr, Qp, QpInit,
    backend::prm::OpenOptions,
    queue::{Flags, Lease},
};
use mlx5_model::Model;
use std::{error::Error, time::Duration};

const LEN: u64 = 64;

/// One end. What a queue pair uses outlives it whatever the order here: it holds it.
struct End {
    qp: Qp,
    cq: Cq,
    mr: Mr,
    lease: Lease,
}

impl End {
    fn new(ctx: &Context) -> Result<Self, Box<dyn Error>> {
        let pd = ctx.alloc_pd()?;
        let cq = ctx.create_cq(&CqAttr { events: Events::Own, ..CqAttr::default() })?;
        let mut qp = pd.create_qp(&QpInit::default(), &cq, &cq)?;
        let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE)?;
        let lease = qp.lease(&mr)?;
        Ok(Self { qp, cq, mr, lease })
    }

    /// Posts the receive for the next message, then sends one.
    fn send(&mut self, n: u64, text: &str) -> Result<(), Box<dyn Error>> {
        self.qp.post_recv(n, &[self.lease.slice(0..LEN)])?;
        let mut list = self.qp.post_list();
        list.send(n, Flags::SIGNALED)?.inline(text.as_bytes())?.finish();
        list.ring();
        Ok(())
    }

    /// Sleeps until a message is here.
    fn receive(&mut self) -> Result<String, Box<dyn Error>> {
        // The other end must be gone if nothing comes for so long.
        while self.cq.wait(Duration::from_secs(5))? {
            let mut done = self.cq.poll();
            while let Some(completion) = done.next() {
                completion.status()?;
                self.qp.retire(&completion)?;
                if completion.is_recv() {
                    let mut text = vec![0; completion.byte_len() as usize];
                    self.mr.read(0, &mut text);
                    return Ok(String::from_utf8(text)?);
                }
            }
        }
        Err("no message within 5 s".into())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let model = Model::new("ports=2".parse()?)?;
    let mut a = End::new(&Context::open(model.function(0)?, OpenOptions::default())?)?;
    let mut b = End::new(&Context::open(model.function(1)?, OpenOptions::default())?)?;
    let how = Connection::default();
    let (to_a, to_b) = (a.qp.address(how.port, how.gid_index)?, b.qp.address(how.port, how.gid_index)?);
    a.qp.connect(&to_b, &how)?;
    b.qp.connect(&to_a, &how)?;

    b.qp.post_recv(0, &[b.lease.slice(0..LEN)])?;
    for n in 1..=3 {
        a.send(n, &format!("ping {n}"))?;
        println!("b: {}", b.receive()?);
        b.send(n, &format!("pong {n}"))?;
        println!("a: {}", a.receive()?);
    }
    Ok(())
}
