//! A request that fails, and the one behind it.

use super::{
    TourArgs,
    dump::Facts,
    flow,
    page::{Page, Step},
    scene::Scene,
};
use crate::failure::Failure;
use mlx5_direct::{
    Access,
    mlx5::{eqe::Eqe, ids::Rkey},
    queue::{Flags, Remote},
};
use mlx5_model::trace::{Kind, Record};

const SHORT: &str = "In short: B's card refuses a request whose key is wrong. A gets an error completion with the reason, and its queue pair is in error: every \
    request behind comes back flushed. The first error is the one to look at.";

pub(super) fn error(args: &TourArgs) -> Result<Page, Failure> {
    let mut scene = Scene::new(args, Access::REMOTE_WRITE)?;
    let facts = Facts::of(&scene);
    scene.a.mr.write(0, &flow::text("A", 128));
    let mut steps = vec![flow::before(
        &scene,
        "local write, remote write",
        "B has also told A where its memory is, and the key.",
    )];
    let (lease, remote) = (scene.a.lease, scene.b.mr.remote(0));
    let wrong = Remote { rkey: Rkey::new(remote.rkey.get() ^ 0xff), ..remote };
    let posted = scene.a.post(|list| {
        list.rdma_write(1, wrong, Flags::SIGNALED)?.local(lease, 0..64)?.finish();
        list.rdma_write(2, remote, Flags::NONE)?.local(lease, 64..128)?.finish();
        Ok(())
    })?;
    steps.push(
        Step::new("A posts two WRITEs, and the first has a wrong key")
            .says(
                "The last byte of the rkey is wrong, as it is when memory was registered anew and the peer still has the old key. The \
                 second request is right, and unsignalled.",
            )
            .with([
                facts.wqe("WQE 0", &posted.wqes[0]),
                facts.wqe_like("WQE 1", &posted.wqes[1], &posted.wqes[0]),
            ]),
    );
    steps.push(flow::ringing(&posted));
    let records = scene.run();
    let step = Step::new("What crosses the wire").says(
        "A's card cannot know that the key is wrong: only B's card has B's keys. It sends both. B's card refuses the first by a NAK and \
         writes nothing.",
    );
    steps.push(flow::wire(step, &facts, &records).says(
        "The NAK says that the right is missing, not which: the key may not exist, be of another protection domain, not cover these \
         bytes, or not allow remote writes. B does not tell a stranger more.",
    ));
    let a = flow::cqes(&facts, &records, 0);
    let n = a.len();
    steps.push(
        Step::new(format!("A's card writes {n} error CQEs"))
            .with(a)
            .says(format!(
                "The first one has the reason, and wqe_counter says which WQE it was. With it A's queue pair goes to state {}. All that \
                 is behind it in the queue comes back as a flush (WR_FLUSH_ERR), the second WRITE too, though it was unsignalled: \
                 errors always make a CQE.",
                scene.a.state()?
            ))
            .corrects(
                "WR_FLUSH_ERR is the error.",
                "It only says that there was one before. Of a log full of them the first other error of the same queue pair counts: it comes \
                 first in the completion queue.",
            )
            .corrects(
                "A flushed request did nothing.",
                "It was given up, and nobody knows how far it came. Here its packet was on the wire (packet 2); B's card took \
                 no notice of it, since the one before had failed. Elsewhere it may have been carried out.",
            )
            .corrects(
                "After an error one posts again.",
                "The queue pair is in error and does nothing more. Both ends take it to RESET, and connect anew.",
            ),
    );
    steps.push(peer(&scene, &records)?);
    scene.end()?;
    Ok(Page {
        name: "error",
        short: SHORT,
        title: "A wrong key: how a WRITE fails, and what becomes of the request behind it".into(),
        steps,
    })
}

/// B's side.
fn peer(scene: &Scene, records: &[Record]) -> Result<Step, Failure> {
    let of_b = |kind| records.iter().filter(move |record| record.function == 1 && record.kind == kind);
    let events = of_b(Kind::Eqe).filter_map(|record| record.bytes.first_chunk());
    let events: Vec<_> = events.map(|bytes| Eqe::from_bytes(*bytes).type_().to_string()).collect();
    let is_clean = scene.b.bytes(0, 128).iter().all(|byte| *byte == 0);
    Ok(Step::new("What B sees: an event")
        .says(format!(
            "B had no request under way, so there is nothing to complete: B's card wrote {} CQEs. It told an event ({}), which \
             goes to B's driver by another ring, the event queue, and to programs that ask (ibv_get_async_event). B's queue pair is in \
             state {}. The bytes of its memory are {}.",
            of_b(Kind::Cqe).count(),
            events.join(", "),
            scene.b.state()?,
            if is_clean { "as they were, all 0" } else { "changed" },
        ))
        .corrects(
            "The one whose memory it is sees who tried.",
            "The event names B's own queue pair, and nothing else.",
        ))
}
