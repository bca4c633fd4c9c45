//! What all tours have: what there is before, how a request is posted, what crosses the wire, which CQEs there are.

use super::{
    TourArgs,
    dump::{Facts, arrow, plain},
    page::{Part, Step},
    scene::{ADDRESSES, MEMORY_BYTES, Posted, Scene},
};
use crate::failure::Failure;
use mlx5_direct::queue::{Flags, Gather, PostError, PostList, Request};
use mlx5_model::trace::{Kind, Record};

/// Packets that are shown whole.
const MOST_PACKETS: usize = 4;

/// Posts the tour's requests in one list, each with its part of A's memory. `begin` begins one: of which number, how far into
/// the memory, with which flags.
pub(super) fn post(
    args: &TourArgs,
    scene: &mut Scene,
    begin: impl for<'l, 'q> Fn(
        &'l mut PostList<'q>,
        u64,
        u64,
        Flags,
    ) -> Result<Request<'l, 'q, Gather>, PostError>,
) -> Result<Posted, Failure> {
    let (size, lease) = (args.size, scene.a.lease);
    let data = scene.a.bytes(0, (size * args.posts) as usize);
    scene.a.post(|list| {
        for (n, data) in (0..args.posts).zip(data.chunks(size as usize)) {
            let at = u64::from(n * size);
            let request = begin(list, 1 + u64::from(n), at, args.flags(n))?;
            if args.inline {
                request.inline(data)?.finish();
            } else {
                request.local(lease, at..at + u64::from(size))?.finish();
            }
        }
        Ok(())
    })
}

/// Step 0: words, and what A and B have.
pub(super) fn before(scene: &Scene, rights: &str, told: &str) -> Step {
    let words = [
        ("WQE", "work queue element: one request in bytes. What to do, and with which memory."),
        (
            "queue pair",
            "a send queue and a receive queue: two rings of WQEs in the host's memory. The host's software writes WQEs, the card reads them. A connected queue pair has one peer, for good.",
        ),
        (
            "CQE",
            "completion queue element: 64 bytes by which the card says that a WQE is done. It writes them into a third ring, the completion queue.",
        ),
        (
            "doorbell",
            "a store to a register of the card: look, there are WQEs. How many stands in the doorbell record, a counter in the host's memory.",
        ),
        (
            "key",
            "the card touches registered memory only. Registering gives a key: called lkey in requests of the memory's owner, rkey in those of a peer.",
        ),
        ("PSN", "packet sequence number: packets are counted, so that a lost one is noticed."),
    ];
    let words = words.map(|(name, text)| (name.to_string(), text.to_string()));
    let Scene { a, b, .. } = scene;
    let row = |name: &str, a: String, b: String| format!("{name:<18} {a:<28} {b}");
    let drawn = vec![
        String::new(),
        row("", "A".into(), "B".into()),
        row("queue pair", a.qp.qpn().to_string(), b.qp.qpn().to_string()),
        row("completion queue", a.cq.cqn().to_string(), b.cq.cqn().to_string()),
        row("address (GID)", a.gid.clone(), b.gid.clone()),
        row("first PSN it sends", format!("0x{:x}", a.psn), format!("0x{:x}", b.psn)),
        row(
            "memory",
            format!("{} KiB at 0x{:x}", MEMORY_BYTES >> 10, ADDRESSES[0]),
            format!("{} KiB at 0x{:x}", MEMORY_BYTES >> 10, ADDRESSES[1]),
        ),
        row("its key", format!("0x{:x}", a.mr.rkey().get()), format!("0x{:x}", b.mr.rkey().get())),
        row("what it opens", "local write".into(), rights.into()),
        String::new(),
    ];
    Step::new("Before: the words, and what A and B have")
        .with([Part::Table(words.to_vec())])
        .says("Everything in these structures is big-endian: the most significant byte comes first.")
        .with([Part::Drawn(drawn)])
        .says(format!(
            "A and B have told each other their queue pair's number, GID and first PSN over something else, usually a TCP \
             connection, and each has moved its queue pair through the states INIT, RTR (ready to receive) and RTS (ready \
             to send). {told} The two addresses were chosen here, so that the bytes are the same each time; usually they are \
             those that the program itself has for its memory."
        ))
}

/// A's doorbell.
pub(super) fn ringing(posted: &Posted) -> Step {
    let n = posted.wqes.len();
    let [before, after] = posted.record;
    let n_wqebbs = after.wrapping_sub(before);
    let what = match n {
        1 => "the WQE is".to_string(),
        _ => format!("all {n} WQEs are"),
    };
    let step = Step::new("A rings the doorbell")
        .says(format!(
            "Now {what} in the ring, and the card knows nothing of it. A makes two stores, in this order. First the doorbell \
             record, in A's own memory: the counter of 64-byte blocks (WQEBBs) that are posted goes from {before} to {after}. \
             {} {}.",
            if n == 1 { "The WQE takes" } else { "The WQEs take" },
            match n_wqebbs {
                1 => "one block".to_string(),
                n => format!("{n} blocks"),
            }
        ))
        .with([plain("doorbell record, send counter", after.to_be_bytes().to_vec())])
        .says(format!("Then the register, at 0x{:x} of the card's BAR0:", posted.register_offset))
        .with([plain(
            match posted.is_blue_flame() {
                true => "stored to the BlueFlame register",
                false => "stored to the doorbell register",
            },
            posted.register.clone(),
        )]);
    let step = if posted.is_blue_flame() {
        step.says(
            "The first 8 bytes are the doorbell: opcode, index, queue pair, length. For one short WQE the driver stores all \
             the rest behind them. This is BlueFlame: the card has the WQE at once and need not read it from A's memory. It \
             stands in the ring all the same: if the store comes in pieces, the card reads it there.",
        )
    } else {
        step.says(format!(
            "These are the first 8 bytes of the {}WQE: opcode, index, queue pair, length. {} The card reads the record, sees \
             how far the queue is filled, and fetches the WQEs from the ring.",
            if n == 1 { "" } else { "last " },
            if n == 1 {
                "The WQE is too long to be stored to the register as a whole (BlueFlame)."
            } else {
                "One doorbell does for all of them."
            }
        ))
    };
    step.corrects(
        "The doorbell carries the new counter.",
        "The counter is in the record. The doorbell names a WQE, and says that there is something to look at. So the record has \
         to be written first, and WQEs before the record; between the stores stand barriers (rdma-core mlx5 qp.c, post_send_db).",
    )
}

/// Packets of a run.
pub(super) fn packets(records: &[Record]) -> Vec<&Record> {
    records.iter().filter(|record| record.kind == Kind::Packet).collect()
}

/// What crosses the wire: each packet in a line, then header by header.
pub(super) fn wire(step: Step, facts: &Facts, records: &[Record]) -> Step {
    let packets = packets(records);
    let lines = packets.iter().map(|packet| arrow(packet)).collect();
    let mut step = step.with([Part::Drawn(lines)]);
    for (n, packet) in packets.iter().take(MOST_PACKETS).enumerate() {
        let (from, to) = if packet.function == 0 { ("A", "B") } else { ("B", "A") };
        let title = format!("packet {}, from {from} to {to}, {} bytes", n + 1, packet.bytes.len());
        step = step.with([facts.packet(title, &packet.bytes, n == 0)]);
    }
    match packets.len().saturating_sub(MOST_PACKETS) {
        0 => step,
        n => step.says(format!("The other {n} packets are like these.")),
    }
}

/// CQEs that a host's card wrote.
pub(super) fn cqes(facts: &Facts, records: &[Record], function: u8) -> Vec<Part> {
    let host = ["A", "B"][usize::from(function)];
    let cqes = records.iter().filter(|record| record.kind == Kind::Cqe && record.function == function);
    cqes.enumerate().map(|(n, cqe)| facts.cqe(format!("CQE {n} of {host}"), &cqe.bytes)).collect()
}

/// A's completions, and what they say of requests that have none.
pub(super) fn completions(
    args: &TourArgs,
    scene: &mut Scene,
    facts: &Facts,
    records: &[Record],
    done: &str,
) -> Result<Step, Failure> {
    let parts = cqes(facts, records, 0);
    let n = parts.len();
    let taken = scene.a.take_completions()?;
    let title = match n {
        0 => "A sees no CQE".to_string(),
        1 => "A's card writes a CQE".into(),
        n => format!("A's card writes {n} CQEs"),
    };
    let step = Step::new(title).with(parts);
    Ok(match (n, args.posts) {
        (0, _) => step
            .says(
                "The request was unsignalled (ce is ONLY_ERR), so there is no CQE, although it is done. A cannot know. It would \
                 learn it from the CQE of a later request, which says that all before it are done too; or from an error CQE, \
                 which comes in any case.",
            )
            .corrects(
                "A WQE without a CQE costs nothing.",
                "Its place in the send queue is free only when a later CQE tells so. Who posts unsignalled requests only, fills \
                 the queue, and then nothing can be posted that would free it.",
            ),
        (1, posts @ 2..) => step
            .says(format!(
                "A posted {posts} requests and gets one CQE. It names the last WQE by wqe_counter, and means all {posts}: WQEs of \
                 a queue are done in order. {done} The places of all {posts} in the send queue are free again, and the driver gives \
                 back the number that the program gave the last one ({}).",
                taken.first().copied().unwrap_or_default()
            ))
            .corrects(
                "Each WQE gives a CQE.",
                "Only signalled ones do, and those that fail. High rates ask for one CQE in many WQEs.",
            ),
        (n, _) => step.says(format!(
            "{done} A's software finds {} by looking at the last byte of the next place in the completion queue (polling): when \
             opcode and owner are right, the CQE is new. It reads on, counts up its own counter in the completion queue's \
             record, and the place is free. No register is touched.",
            if n == 1 { "it" } else { "them" }
        )),
    })
}

/// The bytes of a message: what it says depends on where they are.
pub(super) fn text(host: &str, len_bytes: usize) -> Vec<u8> {
    let sentence = format!("These bytes were in the memory of host {host}. ");
    sentence.bytes().cycle().take(len_bytes).collect()
}

/// How many bytes, in words.
pub(super) fn bytes(n: u32) -> String {
    if n == 1 { "1 byte".into() } else { format!("{n} bytes") }
}
