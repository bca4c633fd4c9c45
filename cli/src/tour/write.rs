//! RDMA WRITE, with immediate data and without.

use super::{
    TourArgs,
    dump::{Facts, memory, plain},
    flow,
    page::{Page, Step},
    scene::{Posted, Receives, Scene},
};
use crate::failure::Failure;
use mlx5_direct::{Access, queue::Remote};
use mlx5_model::trace::{Kind, Record};

const SHORT: &str = "In short: A posts one request and rings a doorbell. A's card sends the bytes with the address and the key, B's card writes them into \
    B's memory and acknowledges, and A gets a completion. B's program does nothing, and unless there is an immediate it sees nothing.";

pub(super) fn write(args: &TourArgs) -> Result<Page, Failure> {
    let mut scene = Scene::new(args, Access::REMOTE_WRITE)?;
    let facts = Facts::of(&scene);
    let (size, posts) = (args.size, args.posts);
    let all = size as usize * posts as usize;
    scene.a.mr.write(0, &flow::text("A", all));

    let mut steps = vec![flow::before(
        &scene,
        "local write, remote write",
        "B has also told A where its memory is, and the key. A cannot guess them, and needs nothing else of B.",
    )];
    if args.imm.is_some() {
        let receives =
            (0..posts).map(|n| scene.b.post_recv(100 + u64::from(n), 0, 0)).collect::<Result<Vec<_>, _>>()?;
        steps.push(receive(&facts, &receives));
    }
    let posted = post(args, &mut scene)?;
    steps.push(request(args, &facts, &posted));
    steps.push(flow::ringing(&posted));

    let before = scene.b.bytes(0, all);
    let records = scene.run();
    steps.push(wire(args, &facts, &records));
    steps.push(
        Step::new("B's card writes the bytes into B's memory")
            .with([
                memory(format!("B's memory at 0x{:x}, before", scene.b.mr.addr()), before),
                memory("the same, after", scene.b.bytes(0, all)),
            ])
            .says("B's processor had no part in it. The card found the place by the key and the address in the packet."),
    );
    let done = "So A knows: B's card has acknowledged all of it.";
    steps.push(flow::completions(args, &mut scene, &facts, &records, done)?.corrects(
        "A's CQE says that B's program has the data.",
        "It says that B's card has taken them. B's program may not have looked yet, and knows of nothing.",
    ));
    steps.push(peer(args, &mut scene, &facts, &records)?);
    scene.end()?;
    let with = if args.imm.is_some() { ", with 32 bits beside them" } else { "" };
    let title = format!("RDMA WRITE: A puts {} into B's memory{with}", flow::bytes(size));
    Ok(Page { name: "write", short: SHORT, title, steps })
}

fn post(args: &TourArgs, scene: &mut Scene) -> Result<Posted, Failure> {
    let remote = scene.b.mr.remote(0);
    flow::post(args, scene, |list, wr_id, at, flags| {
        let to = Remote { addr: remote.addr + at, ..remote };
        match args.imm {
            Some(imm) => list.rdma_write_imm(wr_id, to, imm, flags),
            None => list.rdma_write(wr_id, to, flags),
        }
    })
}

fn request(args: &TourArgs, facts: &Facts, posted: &Posted) -> Step {
    let last = match args.inline {
        true => "the bytes themselves (inline)",
        false => "where from",
    };
    let step = Step::new("A writes what it wants into its send queue")
        .says(format!(
            "A wants {} to be in B's memory. It writes a WQE: what to do; where to; {last}.",
            flow::bytes(args.size)
        ))
        .with(facts.wqes(&posted.wqes));
    if args.inline {
        step.corrects(
            "Inline data need registered memory, which may be reused after the CQE.",
            "They were copied into the WQE: no key is needed, and the program's buffer is free at once.",
        )
    } else {
        step.corrects(
            "The buffer is free when the WQE is posted.",
            "The card reads it later, and once more if packets are lost. It is free when a CQE says that the request is done.",
        )
    }
}

fn receive(facts: &Facts, receives: &[Receives]) -> Step {
    let [before, after] = [receives[0].record[0], receives[receives.len() - 1].record[1]];
    Step::new("B posts a receive request, since there will be an immediate")
        .says(
            "The 32 bits go into a CQE at B, and each CQE of a receive queue answers a WQE there. So B has to have posted one. \
             It needs no memory: the data go where A says.",
        )
        .with([facts.recv_wqe("receive WQE", &receives[0].wqe)])
        .says(format!("B counts up the receive counter in its doorbell record from {before} to {after}. That is all."))
        .with([plain("doorbell record, receive counter", after.to_be_bytes().to_vec())])
}

fn wire(args: &TourArgs, facts: &Facts, records: &[Record]) -> Step {
    let n_packets = args.size.div_ceil(args.mtu.into());
    let step = Step::new("What crosses the wire").says(format!(
        "A's card cuts the message into packets of up to {} bytes (the path MTU): here {} for each request. B's card checks the \
         first one: is the key B's, does it cover all these bytes, does it allow remote writes? It answers with an ACK.",
        args.mtu,
        if n_packets == 1 { "one".into() } else { n_packets.to_string() },
    ));
    flow::wire(step, facts, records)
        .says(
            "The RETH is the remote address segment and the length, and stands in a message's first packet only: B's card counts on \
             from there. The AETH says that all went well up to this PSN.",
        )
        .corrects(
            "Each packet is acknowledged by a packet.",
            "An ACK means all before it as well. A's card asks for one (ack_req) at the end of a message, or now and then.",
        )
}

fn peer(args: &TourArgs, scene: &mut Scene, facts: &Facts, records: &[Record]) -> Result<Step, Failure> {
    let seen = |kind| records.iter().filter(|record| record.function == 1 && record.kind == kind).count();
    if args.imm.is_some() {
        let step = Step::new("What B sees: a CQE, for the immediate").with(flow::cqes(facts, records, 1));
        let taken = scene.b.take_completions()?.len();
        return Ok(step
            .says(format!(
                "B's software finds {taken} by polling: a WRITE came, of so many bytes, with these 32 bits. Where the bytes are, the \
                 CQE does not say. A receive WQE was used up for each, and its memory was not touched."
            ))
            .corrects(
                "The immediate is in memory behind the data.",
                "It is in the CQE and nowhere else. It travels as bytes, so both programs take it for big-endian.",
            ));
    }
    Ok(Step::new("What B sees: nothing")
        .says(format!(
            "B posted nothing. In this run B's card took up {} receive WQEs, wrote {} CQEs and raised {} events. New bytes are in \
             B's memory, and nobody has told B's program.",
            seen(Kind::RecvWqe),
            seen(Kind::Cqe),
            seen(Kind::Eqe)
        ))
        .says(
            "If B has to know, there are three ways. B looks at a byte that A writes last (which relies on the order in which the \
             card writes, and is what benchmarks do). Or A sends a message behind the WRITE: messages are in order, so when that is \
             there the data are. Or A writes with immediate: try --imm 7.",
        )
        .corrects(
            "The responder of a WRITE posts a receive, or gets a completion.",
            "Neither, unless there is an immediate. A WRITE is not a message to a program; it is to memory.",
        ))
}
