//! Case A2, in a process of its own: it counts what the process has.

mod support;

use mlx5_direct::{
    Context,
    backend::prm::{OpenOptions, PrmControl},
};
use support::*;

#[test]
fn a2_open_close_repeat() {
    let card = card("ports=2");
    let functions = [0, 1].map(|index| card.model().function(index).unwrap());
    let mut before = None;
    for round in 0..1000 {
        let function = &functions[round % 2];
        let control = PrmControl::open(function.clone(), &OpenOptions::default()).unwrap();
        let ctx = Context::on(control.clone());
        // With what hangs on a context, now and then.
        if round % 10 < 2 {
            let mut side = looped(&card, &ctx, &Setup::default());
            side.recv(1, 0..64);
            side.post(|list, _| list.send(2, SIGNALED).unwrap().inline(b"x").unwrap().finish());
            side.ok();
            side.ok();
        }
        // Closed and dropped in turn.
        if round % 4 < 2 {
            ctx.close().map_err(|(_, error)| error).unwrap();
            assert_eq!(control.firmware_pages(), 0);
        } else {
            drop(ctx);
        }
        drop(control);
        assert_eq!(function.dma().n_mappings(), 0, "round {round}: IOVA mappings");
        if round == 19 {
            before = Some(belongings());
        }
    }
    let (before, after) = (before.unwrap(), belongings());
    assert_eq!((&before.descriptors, before.n_threads), (&after.descriptors, after.n_threads));
    assert!(after.n_mappings <= before.n_mappings + 20, "mappings: {before:?}, then {after:?}");
    card.assert_clean();
}
