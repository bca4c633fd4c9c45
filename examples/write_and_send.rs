//! Two queue pairs on the two ports of a software ConnectX: an RDMA WRITE of data, then a SEND that says so.
//!
//! `cargo run --example write_and_send`

use mlx5_direct::{Access, Connection, Context, CqAttr, QpInit, backend::prm::OpenOptions, queue::Flags};
use mlx5_model::Model;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The driver does not know what is behind a PCI function. Here it is the model.
    let model = Model::new("ports=2".parse()?)?;
    let near = Context::open(model.function(0)?, OpenOptions::default())?;
    let far = Context::open(model.function(1)?, OpenOptions::default())?;

    // At each end: a protection domain, a completion queue, a queue pair, and memory that it may name.
    let (near_pd, far_pd) = (near.alloc_pd()?, far.alloc_pd()?);
    let mut near_cq = near.create_cq(&CqAttr::default())?;
    let mut far_cq = far.create_cq(&CqAttr::default())?;
    let mut near_qp = near_pd.create_qp(&QpInit::default(), &near_cq, &near_cq)?;
    let mut far_qp = far_pd.create_qp(&QpInit::default(), &far_cq, &far_cq)?;
    let source = near_pd.alloc_mr(4096, Access::LOCAL_WRITE)?;
    let target = far_pd.alloc_mr(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let (source_lease, target_lease) = (near_qp.lease(&source)?, far_qp.lease(&target)?);

    // Each tells the other its address (on two hosts: over a socket), and connects: RST → INIT → RTR → RTS.
    let how = Connection::default();
    let to_near = near_qp.address(how.port, how.gid_index)?;
    let to_far = far_qp.address(how.port, how.gid_index)?;
    near_qp.connect(&to_far, &how)?;
    far_qp.connect(&to_near, &how)?;

    // The receiver posts where a message may go: the last 64 bytes.
    far_qp.post_recv(1, &[target_lease.slice(4032..4096)])?;

    // The sender posts two requests and rings once. Nothing is posted before `ring`.
    source.write(0, b"written by RDMA");
    let mut list = near_qp.post_list();
    list.rdma_write(2, target.remote(0), Flags::NONE)?.local(source_lease, 0..15)?.finish();
    list.send(3, Flags::SIGNALED)?.inline(b"it is there")?.finish();
    list.ring();

    // The receiver polls. Messages are in order: when the SEND is here, so is the WRITE.
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let mut done = far_cq.poll();
        if let Some(completion) = done.next() {
            completion.status()?;
            let (mut data, mut message) = ([0; 15], vec![0; completion.byte_len() as usize]);
            target.read(0, &mut data);
            target.read(4032, &mut message);
            println!("{:?}: {:?}", String::from_utf8_lossy(&message), String::from_utf8_lossy(&data));
            println!("receive request {} is done", far_qp.retire(&completion)?.wr_id);
            break;
        }
        assert!(Instant::now() < deadline, "no message within 5 s");
    }

    // The sender learns from one completion that both requests are done.
    loop {
        let mut done = near_cq.poll();
        if let Some(completion) = done.next() {
            completion.status()?;
            println!("request {} and all before it are done", near_qp.retire(&completion)?.wr_id);
            break;
        }
        assert!(Instant::now() < deadline, "no completion within 5 s");
    }
    model.assert_clean();
    Ok(())
}
