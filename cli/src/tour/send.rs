//! SEND and receive.

use super::{
    TourArgs,
    dump::{Facts, memory, plain},
    flow,
    page::{Page, Step},
    scene::{Posted, Receives, Scene},
};
use crate::failure::Failure;
use mlx5_direct::Access;
use mlx5_model::trace::{Kind, Record};

/// Bytes that B offers for a message, at least.
const ROOM_BYTES: u32 = 256;

const SHORT: &str = "In short: B has posted a receive request, which says where a message may go. A posts the message and rings a doorbell. B's card takes \
    the receive request, writes the message there, and B gets a completion. A gets one when B's card has acknowledged.";

pub(super) fn send(args: &TourArgs) -> Result<Page, Failure> {
    let mut scene = Scene::new(args, Access(0))?;
    let facts = Facts::of(&scene);
    let (size, posts) = (args.size, args.posts);
    let room = u64::from(size.max(ROOM_BYTES).next_multiple_of(ROOM_BYTES));
    scene.a.mr.write(0, &flow::text("A", size as usize * posts as usize));

    let mut steps = vec![flow::before(
        &scene,
        "local write",
        "B has told no address and no key: where a message goes, B decides.",
    )];
    let receives: Vec<Receives> = (0..u64::from(posts))
        .map(|n| scene.b.post_recv(100 + n, n * room, room))
        .collect::<Result<_, _>>()?;
    steps.push(receive(&facts, &receives, room));
    let posted = post(args, &mut scene)?;
    steps.push(request(args, &facts, &posted));
    steps.push(flow::ringing(&posted));

    let before = scene.b.bytes(0, size as usize);
    let records = scene.run();
    steps.push(wire(args, &facts, &records));
    let mut used = records.iter().filter(|record| record.function == 1 && record.kind == Kind::RecvWqe);
    let mut step = Step::new("B's card takes a receive WQE and writes the message where that says");
    if let Some(used) = used.next_back() {
        step = step.with([facts.recv_wqe("receive WQE that B's card took up last", &used.bytes)]);
    }
    steps.push(
        step.with([
            memory(format!("B's memory at 0x{:x}, before", scene.b.mr.addr()), before),
            memory("the same, after", scene.b.bytes(0, size as usize)),
        ])
        .says(
            "Receive WQEs are used in the order in which they were posted, one for each message, however short it is. What is left of \
             its memory stays as it was; the next message goes to the next WQE.",
        ),
    );
    let parts = flow::cqes(&facts, &records, 1);
    let taken = scene.b.take_completions()?;
    steps.push(
        Step::new("B's card writes a CQE")
            .with(parts)
            .says(format!(
                "So B knows that a message is there, how long it is, and by wqe_counter in which memory: its software finds the \
                 program's own number of the receive request again ({}). B had to post a receive, and gets a CQE: both are so \
                 for SEND, and neither for READ or WRITE.",
                taken.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
            ))
            .corrects(
                "A receive can be unsignalled.",
                "There is no such bit: a receive WQE has no control segment. Each message makes a CQE at the receiver.",
            ),
    );
    let done = "So A knows: B's card has taken the message. B's program may not have looked at it yet.";
    steps.push(flow::completions(args, &mut scene, &facts, &records, done)?.corrects(
        "A's CQE comes after B's.",
        "They are of two cards, and nothing orders them. Either may be seen first.",
    ));
    scene.end()?;
    let with = if args.imm.is_some() { ", with 32 bits beside it" } else { "" };
    let title =
        format!("SEND: A sends a message of {}{with}, and B has said where messages go", flow::bytes(size));
    Ok(Page { name: "send", short: SHORT, title, steps })
}

fn receive(facts: &Facts, receives: &[Receives], room: u64) -> Step {
    let [before, after] = [receives[0].record[0], receives[receives.len() - 1].record[1]];
    Step::new("B posts a receive request, before anything is sent")
        .says(format!(
            "B says where a message may go: {room} bytes of its memory. A receive WQE is a list of places and nothing else: no \
             opcode, no peer, no index."
        ))
        .with([facts.recv_wqe(format!("receive WQE 0 of {}", receives.len()), &receives[0].wqe)])
        .says(format!(
            "B counts up the receive counter in its doorbell record from {before} to {after}, and that is all: receive queues have \
             no doorbell register. The card looks at the record when a message comes. This counter counts WQEs, not blocks."
        ))
        .with([plain("doorbell record, receive counter", after.to_be_bytes().to_vec())])
        .corrects(
            "If no receive is posted the message waits in the card.",
            "Cards keep no messages. B's card drops it and answers RNR NAK (receiver not ready); A's card tries again after a pause, \
             as often as rnr_retry says (7 is for ever), and then fails.",
        )
}

fn post(args: &TourArgs, scene: &mut Scene) -> Result<Posted, Failure> {
    flow::post(args, scene, |list, wr_id, _, flags| match args.imm {
        Some(imm) => list.send_imm(wr_id, imm, flags),
        None => list.send(wr_id, flags),
    })
}

fn request(args: &TourArgs, facts: &Facts, posted: &Posted) -> Step {
    let last = match args.inline {
        true => "the bytes themselves (inline)",
        false => "where the message is",
    };
    Step::new("A writes the message into its send queue")
        .says(format!(
            "A sends {}. It writes a WQE: what to do; {last}. There is no remote address segment: A does not know where the \
             message will go.",
            flow::bytes(args.size)
        ))
        .with(facts.wqes(&posted.wqes))
}

fn wire(args: &TourArgs, facts: &Facts, records: &[Record]) -> Step {
    let n_packets = args.size.div_ceil(args.mtu.into());
    let step = Step::new("What crosses the wire").says(format!(
        "A's card cuts the message into packets of up to {} bytes (the path MTU): here {}. B's card answers with an ACK.",
        args.mtu,
        if n_packets == 1 { "one".into() } else { n_packets.to_string() },
    ));
    flow::wire(step, facts, records)
        .says("No header names an address or a key. Where a message begins and ends is in the opcode: first, middle, last, only.")
        .corrects(
            "A longer message fills several receive WQEs.",
            "A message fits into one receive WQE, or fails: B's receive with a local length error, A's send with a remote invalid \
             request, and both queue pairs are in error.",
        )
}
