//! A card that was brought up, with something to talk about.

use crate::{
    keys::{Key, MTT},
    rig::{Cq, Qp, Raw, Rig, pages},
};

/// Bytes that the key opens.
const DATA_BYTES: u64 = 0x4000;

/// Objects that commands may be about.
pub(crate) struct Card {
    pub(crate) rig: Rig,
    pub(crate) numbers: Vec<u32>,
    pub(crate) cq: Cq,
    pub(crate) qp: Qp,
    pub(crate) mac: [u8; 6],
    pub(crate) gid: [u8; 16],
    /// Memory for data, and the key that opens it for everything.
    pub(crate) data: u64,
    pub(crate) key: u32,
}

impl Card {
    /// Connected to itself.
    pub(crate) fn new() -> Self {
        Self::with("", None)
    }

    /// With these options, connected to the queue pair of the same number at this MAC address and GID.
    pub(crate) fn with(options: &str, peer: Option<([u8; 6], [u8; 16])>) -> Self {
        let mut rig = Rig::new(&format!("ports=1,drive=step{options}"));
        rig.bring_up();
        let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
        let (eqn, _) = rig.create_eq(uar, 6, 0, 1);
        let cq = rig.create_cq(uar, 6, eqn);
        let qp = rig.create_qp(pd, uar, &cq, 4);
        let gid = rig.set_gid();
        let mac = rig.mac();
        let (peer_mac, peer_gid) = peer.unwrap_or((mac, gid));
        rig.connect(&qp, qp.number, peer_mac, peer_gid);
        let data = rig.alloc(DATA_BYTES, 0);
        let list: Vec<_> = pages(data, DATA_BYTES).iter().map(|page| page | 3).collect();
        let key = Key::new(pd, MTT).range(data, DATA_BYTES, 12).list(&list).create(&rig);
        let numbers = vec![uar, pd, eqn, cq.number, qp.number, key >> 8, 0, 1, 0xff_ffff];
        Self { rig, numbers, cq, qp, mac, gid, data, key }
    }

    /// What the driver did wrong is said in words, and commands are executed still.
    pub(crate) fn assert_named(&self) {
        for violation in self.rig.model.take_violations() {
            assert!(violation.to_string().contains(violation.rule.text()));
        }
        // QUERY_HCA_CAP, which no mistake before can have forbidden.
        let answer = self.rig.exec(&Raw::cmd(0x100, 16).set(4, 15, 0, 1), 4112);
        assert_eq!(answer.delivery, 0, "{answer:x?}");
    }
}
