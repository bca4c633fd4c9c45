//! An open function whose every store is seen, with two connected queue pairs.

use crate::support::{self, Card, Setup, Side, card, connect};
use mlx5_direct::{
    Context, CqAttr, QpInit,
    backend::{
        Control,
        prm::{OpenOptions, PrmControl},
    },
    doorbell::DoorbellMode,
};
use std::sync::Arc;

/// CQEs of each side's completion queue.
pub(crate) const N_CQES: u32 = 16;

pub(crate) struct Scene {
    /// The two sides, until they are ended.
    pub(crate) sides: Option<(Side, Side)>,
    pub(crate) ctx: Option<Context>,
    pub(crate) control: Option<Arc<PrmControl>>,
    pub(crate) card: Card,
}

pub(crate) fn setup(doorbell: DoorbellMode) -> Setup {
    let init = QpInit {
        max_send_wr: 16,
        max_recv_wr: 4,
        max_send_sge: 4,
        max_recv_sge: 4,
        max_inline_data: 16,
        doorbell,
    };
    Setup { init, cq: CqAttr { n_cqes: N_CQES, ..CqAttr::default() }, ..Setup::default() }
}

impl Scene {
    /// A card that nobody has opened.
    pub(crate) fn closed() -> Self {
        Self { sides: None, ctx: None, control: None, card: card("bar=trapped,drive=step") }
    }

    fn of(options: &OpenOptions, doorbell: DoorbellMode) -> Self {
        let mut scene = Self::closed();
        let function = scene.card.function(0);
        let control = PrmControl::open(function, options).expect("open");
        let ctx = Context::on(Arc::clone(&control) as Arc<dyn Control>);
        let setup = setup(doorbell);
        let [mut a, mut b] = [(); 2].map(|()| Side::new(&scene.card, &ctx, &setup));
        connect(&mut a.qp, &mut b.qp, &setup.connection, &setup.connection);
        (scene.sides, scene.ctx, scene.control) = (Some((a, b)), Some(ctx), Some(control));
        scene
    }

    pub(crate) fn new() -> Self {
        Self::of(&OpenOptions::default(), DoorbellMode::Auto)
    }

    /// Without BlueFlame.
    pub(crate) fn ringing() -> Self {
        Self::of(&OpenOptions::default(), DoorbellMode::Doorbell)
    }

    /// With signatures on commands.
    pub(crate) fn signed() -> Self {
        Self::of(&OpenOptions { command_signatures: true, ..OpenOptions::default() }, DoorbellMode::Auto)
    }

    /// With two receive requests, one of which a message came to: the card has seen the other.
    pub(crate) fn receiving() -> Self {
        let mut scene = Self::new();
        let (a, b) = scene.pair();
        b.recv(1, 0..64);
        b.recv(2, 64..128);
        a.post(|list, _| list.send(3, support::SIGNALED).unwrap().inline(b"first").unwrap().finish());
        a.ok();
        b.ok();
        scene
    }

    /// The two sides.
    pub(crate) fn pair(&mut self) -> &mut (Side, Side) {
        self.sides.as_mut().expect("two sides")
    }

    pub(crate) fn ctx(&self) -> &Context {
        self.ctx.as_ref().expect("an open function")
    }

    pub(crate) fn settle(&self) {
        while self.card.step() {}
    }
}
