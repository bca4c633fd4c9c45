//! Case A2, in a process of its own: it counts what the process has.

mod support;

use mlx5_direct::{
    Context,
    backend::prm::{OpenOptions, PrmControl},
};
use std::{collections::BTreeSet, fs};
use support::*;

/// Open descriptors, mappings of files and devices, and threads.
fn belongings() -> (BTreeSet<String>, usize, usize) {
    let list =
        |dir: &str| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    // Anonymous memory is the allocator's business too; but the device's pages are unmapped one by one, and a
    // thousand of them left behind would show.
    (list("/proc/self/fd").collect(), maps.lines().count(), list("/proc/self/task").count())
}

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
    assert_eq!(before.0, after.0, "descriptors");
    assert!(after.1 <= before.1 + 20, "mappings: {} before, {} after", before.1, after.1);
    assert_eq!(before.2, after.2, "threads");
    card.assert_clean();
}
