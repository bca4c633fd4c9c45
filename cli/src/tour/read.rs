//! RDMA READ.

use super::{
    TourArgs,
    dump::{Facts, memory},
    flow,
    page::{Page, Step},
    scene::Scene,
};
use crate::failure::Failure;
use mlx5_direct::Access;
use mlx5_model::trace::{Kind, Record};

const SHORT: &str = "In short: A posts one request and rings a doorbell. A's card asks B's card, which reads B's memory and answers. A's card writes the \
    bytes into A's memory, and then a completion. B's program does nothing and sees nothing.";

pub(super) fn read(args: &TourArgs) -> Result<Page, Failure> {
    let mut scene = Scene::new(args, Access::REMOTE_READ)?;
    let facts = Facts::of(&scene);
    let (size, posts) = (args.size, args.posts);
    let all = size as usize * posts as usize;
    scene.b.mr.write(0, &flow::text("B", all));

    let mut steps = vec![flow::before(
        &scene,
        "local write, remote read",
        "B has also told A where its memory is, and the key. A cannot guess them, and needs nothing else of B.",
    )];

    let (lease, remote) = (scene.a.lease, scene.b.mr.remote(0));
    let posted = scene.a.post(|list| {
        for n in 0..posts {
            let at = u64::from(n * size);
            let from = mlx5_direct::queue::Remote { addr: remote.addr + at, ..remote };
            list.rdma_read(1 + u64::from(n), from, args.flags(n))?
                .local(lease, at..at + u64::from(size))?
                .finish();
        }
        Ok(())
    })?;
    let step = Step::new("A writes what it wants into its send queue")
        .says(format!(
            "A wants {} of B's memory. It writes a WQE of three segments of 16 bytes: what to do; where from; where to. The \
             length is in the last one. Nothing is asked of B's software, now or later.",
            flow::bytes(size)
        ))
        .with(facts.wqes(&posted.wqes));
    steps.push(
        step.corrects(
            "The peer's key and address go into the data segment.",
            "The data segment always names own memory. The peer's is in the remote address segment, with the rkey.",
        )
        .corrects(
            "A only reads, so its buffer needs no right.",
            "A's card writes what comes into A's memory: that needs local write (IBV_ACCESS_LOCAL_WRITE). Without it the READ \
             fails at A, with a local protection error. B's memory needs remote read.",
        ),
    );
    steps.push(flow::ringing(&posted));

    let before = scene.a.bytes(0, all);
    let records = scene.run();
    steps.push(wire(args, &facts, &records));
    steps.push(
        Step::new("A's card writes the bytes into A's memory")
            .with([
                memory(format!("A's memory at 0x{:x}, before", scene.a.mr.addr()), before),
                memory("the same, after", scene.a.bytes(0, all)),
            ])
            .says(
                "The card checks its own key too: lkey, address, length, local write. The data are in memory before the CQE is: \
                 the card writes them first, and the write of the CQE does not overtake them. So when A \
                 sees the CQE, it may read the data.",
            )
            .corrects(
                "The CQE carries the data.",
                "It says that they are there. (A queue can be set up so that up to 64 bytes come in the CQE, \
                 scatter-to-CQE; then the format bits of the CQE say so. It is off here.)",
            ),
    );
    let done = "So A knows: the bytes are here. byte_cnt is their number.";
    steps.push(flow::completions(args, &mut scene, &facts, &records, done)?);
    steps.push(peer(&scene, &records));
    scene.end()?;
    Ok(Page {
        name: "read",
        short: SHORT,
        title: format!("RDMA READ: A fetches {} out of B's memory", flow::bytes(size)),
        steps,
    })
}

fn wire(args: &TourArgs, facts: &Facts, records: &[Record]) -> Step {
    let n_packets = args.size.div_ceil(args.mtu.into());
    let step = Step::new("What crosses the wire").says(format!(
        "A's card turns the WQE into a request of one packet. B's card checks it (is the key B's, does it cover these bytes, \
         does it allow remote reads?), reads the bytes out of B's memory by itself, and answers. A packet carries up to {} bytes \
         (the path MTU), so there {} of response for each request.",
        args.mtu,
        if n_packets == 1 { "is one packet".into() } else { format!("are {n_packets} packets") },
    ));
    flow::wire(step, facts, records)
        .says(
            "The RETH is the remote address segment and the length. The response needs no address: it belongs to the request by \
             its PSN. It has an AETH, so it is the acknowledgement too: no ACK packet comes besides.",
        )
        .corrects(
            "A request uses one PSN.",
            format!(
                "A READ uses as many as its response has packets, here {n_packets}. The request has the first of them, and the \
                 next request goes on behind the last."
            ),
        )
}

/// B's side: nothing.
fn peer(scene: &Scene, records: &[Record]) -> Step {
    let seen = |kind| records.iter().filter(|record| record.function == 1 && record.kind == kind).count();
    Step::new("What B sees: nothing")
        .says(format!(
            "B posted nothing: no send request, no receive request. In this run B's card took up {} receive WQEs, wrote {} CQEs \
             and raised {} events. B's processor did not take part, and B's program cannot know that its memory was read. Its \
             queue pair is in state {} as before.",
            seen(Kind::RecvWqe),
            seen(Kind::Cqe),
            seen(Kind::Eqe),
            scene.b.qp.state()
        ))
        .corrects(
            "The responder of a READ posts a receive, or gets a completion.",
            "It does neither. All it did is to register memory, and to tell address and key, before.",
        )
        .corrects(
            "Any number of READs can be under way.",
            "Both ends have a limit, told when they connect (max_rd_atomic at A, max_dest_rd_atomic at B; often 16). Further READs \
             wait in A's send queue, and so do all requests behind them.",
        )
}
