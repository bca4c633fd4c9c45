//! Fetch-and-add.

use super::{
    TourArgs,
    dump::{Facts, plain},
    flow,
    page::{Page, Step},
    scene::Scene,
};
use crate::failure::Failure;
use mlx5_direct::Access;
use mlx5_model::trace::Kind;

/// What is in B's memory first, and what A adds.
const FIRST: u64 = 0x1000;
const ADDED: u64 = 5;

const SHORT: &str = "In short: A posts one request and rings a doorbell. A's card sends what to add, B's card adds it to 8 bytes of B's memory and answers with \
    what was there before. A finds that in its memory, and a completion. B's program does nothing and sees nothing.";

pub(super) fn atomic(args: &TourArgs) -> Result<Page, Failure> {
    let mut scene = Scene::new(args, Access::REMOTE_ATOMIC)?;
    let facts = Facts::of(&scene);
    scene.b.mr.store_u64(0, FIRST);
    let mut steps = vec![flow::before(
        &scene,
        "local write, remote atomic",
        "B has also told A where its memory is, and the key.",
    )];
    let (lease, remote) = (scene.a.lease, scene.b.mr.remote(0));
    let posted = scene.a.post(|list| {
        list.fetch_add(1, remote, ADDED, args.flags(0))?.local(lease, 0)?.finish();
        Ok(())
    })?;
    steps.push(
        Step::new("A writes what it wants into its send queue")
            .says(format!(
                "A wants to add {ADDED} to a number of 8 bytes in B's memory, and to know what it was before. Nobody else who uses \
                 atomics may come between the two. The WQE has four segments: what to do; which 8 bytes; the operands; where the \
                 old value goes."
            ))
            .with([facts.wqe(format!("WQE, {} bytes", posted.wqes[0].len()), &posted.wqes[0])])
            .corrects(
                "The operands are in the processor's order, as the number in memory is.",
                "In the WQE they are big-endian, as all of it. In both hosts' memory the numbers are in the processor's own order; the \
                 card turns them.",
            ),
    );
    steps.push(flow::ringing(&posted));
    let before = [scene.a.bytes(0, 8), scene.b.bytes(0, 8)];
    let records = scene.run();
    let step = Step::new("What crosses the wire")
        .says(
            "A's card sends the operands. B's card checks key, length and right (remote atomic) and that the address is a multiple of \
             8, reads, adds, writes, and answers with the old value.",
        );
    steps.push(
        flow::wire(step, &facts, &records).corrects(
            "A lost answer is asked for again, and the number is added twice.",
            "B's card remembers the answers of its last atomics, as many as max_dest_rd_atomic says, and gives the same once more. That is \
             why both ends have that limit.",
        ),
    );
    let [a, b] = before;
    steps.push(
        Step::new("Both memories have changed")
            .with([
                plain("the number in B's memory, before", b),
                plain("the same, after", scene.b.bytes(0, 8)),
                plain("the 8 bytes in A's memory for the old value, before", a),
                plain("the same, after", scene.a.bytes(0, 8)),
            ])
            .says(format!(
                "Read in the processor's order, B's number was 0x{FIRST:x} and is 0x{:x}; A has 0x{:x}.",
                scene.b.mr.load_u64(0),
                scene.a.mr.load_u64(0)
            ))
            .corrects(
                "These atomics are atomic towards B's processor too.",
                "Only if the device says so (atomic_cap IBV_ATOMIC_GLOB). With IBV_ATOMIC_HCA, which mlx5 says, they are so among \
                 those of one card. What B's own program does to the number meanwhile can be lost.",
            ),
    );
    let done = "So A knows: it is done, and the old value is here.";
    steps.push(flow::completions(args, &mut scene, &facts, &records, done)?);
    let n_cqes = records.iter().filter(|record| record.function == 1 && record.kind == Kind::Cqe).count();
    steps.push(Step::new("What B sees: nothing").says(format!(
        "B posted nothing, and its card wrote {n_cqes} CQEs. B finds another number in its memory, if it looks."
    )));
    scene.end()?;
    Ok(Page {
        name: "atomic",
        short: SHORT,
        title: "Fetch-and-add: A adds to a number in B's memory".into(),
        steps,
    })
}
