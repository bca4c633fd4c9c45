//! A card whose firmware lies, opened and used.

#[path = "../liar/mod.rs"]
mod liar;

use crate::any_bytes::Choices;
use liar::Liar;
use mlx5_direct::{
    Access, Connection, Context, CqAttr, Error, QpInit, backend::prm::OpenOptions, queue::Flags,
};
use mlx5_model::Model;
use std::{sync::Arc, time::Duration};

/// What came of it.
pub(crate) struct Done {
    pub(crate) opened: bool,
    pub(crate) n_lies: u32,
}

/// A card of which some answers and events are damaged: an error that blames nobody wrongly, and nothing left mapped.
pub(crate) fn check(mut choices: Choices) -> Done {
    let model = Model::new("ports=1,drive=step".parse().unwrap()).unwrap();
    let function = model.function(0).unwrap();
    let options = OpenOptions {
        command_timeout: Duration::from_millis(200),
        fw_init_timeout: Duration::from_millis(200),
        command_signatures: choices.bool(),
        ..OpenOptions::default()
    };
    let one_in = 1 + choices.below(59);
    let liar = Arc::new(Liar::new(Arc::clone(&function), choices, one_in));
    let opened = match Context::open(liar.clone(), options) {
        Ok(ctx) => {
            if let Err(error) = use_card(&ctx, &liar) {
                assert!(!error.to_string().is_empty());
            }
            true
        }
        // Firmware that wants more than the caller allows.
        Err(Error::InvalidArgument(what)) => {
            assert!(what.contains("max_firmware_pages"), "{what}");
            false
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    };
    let n_lies = liar.n_lies();
    drop(liar);
    assert_eq!(function.dma().n_mappings(), 0, "memory is left mapped");
    Done { opened, n_lies }
}

/// Opens the card, moves a message between two queue pairs of it, and closes it.
fn use_card(ctx: &Context, liar: &Liar) -> Result<(), Box<dyn std::error::Error>> {
    let pd = ctx.alloc_pd()?;
    let mut cq = ctx.create_cq(&CqAttr::default())?;
    let mut qp = pd.create_qp(&QpInit::default(), &cq, &cq)?;
    let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let how = Connection::default();
    let own = qp.address(how.port, how.gid_index)?;
    qp.connect(&own, &how)?;
    let memory = qp.lease(&mr)?;
    qp.post_recv(1, &[memory.slice(0..64)])?;
    let mut list = qp.post_list();
    list.send(2, Flags::SIGNALED)?.inline(b"to myself")?.finish();
    list.ring();
    for _ in 0..50 {
        liar.step();
        let mut done = cq.poll();
        while let Some(wc) = done.next() {
            qp.retire(&wc)?;
            wc.status()?;
        }
    }
    while let Some(event) = ctx.next_async_event(Duration::ZERO)? {
        assert!(!format!("{event:?}").is_empty());
    }
    Ok(())
}
