//! What the driver does by commands when it makes its mistake. Most of it fails, which is not asked about.

use crate::{
    scene::{Scene, setup},
    support::{self, Side},
};
use mlx5_direct::{
    CqAttr,
    backend::{
        Control,
        prm::{OpenOptions, PrmControl},
    },
    doorbell::DoorbellMode,
};
use std::time::{Duration, Instant};

pub(crate) fn alloc_pd(scene: &mut Scene) {
    let _refused = scene.ctx().alloc_pd();
}

/// Its input is longer than its slot.
pub(crate) fn create_cq(scene: &mut Scene) {
    let _refused = scene.ctx().create_cq(&CqAttr::default());
}

/// Its input is longer than a mailbox.
pub(crate) fn create_large_cq(scene: &mut Scene) {
    let _refused = scene.ctx().create_cq(&CqAttr { n_cqes: 1 << 14, ..CqAttr::default() });
}

pub(crate) fn create_channel(scene: &mut Scene) {
    let _refused = scene.ctx().create_comp_channel();
}

pub(crate) fn create_qp(scene: &mut Scene) {
    let (a, _) = scene.pair();
    let _refused = a.pd.create_qp(&setup(DoorbellMode::Auto).init, &a.cq, &a.cq);
}

/// Made and ended again.
pub(crate) fn register(scene: &mut Scene) {
    let _refused = scene.pair().0.pd.alloc_mr(4096, support::ALL);
}

pub(crate) fn register_and_close(scene: &mut Scene) {
    register(scene);
    close(scene);
}

pub(crate) fn connect(scene: &mut Scene) {
    let setup = setup(DoorbellMode::Auto);
    let mut side = Side::new(&scene.card, scene.ctx(), &setup);
    let to_self = side.qp.address(1, None).unwrap();
    let _refused = side.qp.connect(&to_self, &setup.connection);
}

pub(crate) fn end_pair(scene: &mut Scene) {
    scene.sides = None;
}

pub(crate) fn open(scene: &mut Scene) {
    let opened = PrmControl::open(scene.card.function(0), &OpenOptions::default());
    assert!(opened.is_err(), "the card took it");
}

pub(crate) fn close(scene: &mut Scene) {
    (scene.sides, scene.ctx) = (None, None);
    let _refused = scene.control.take().map(|control| control.close());
}

/// The driver's own thread makes it, when the event of a command comes.
pub(crate) fn until_it_is_seen(scene: &mut Scene) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while scene.card.model().violations().is_empty() && Instant::now() < deadline {
        alloc_pd(scene);
        std::thread::sleep(Duration::from_millis(5));
    }
}
