//! Every operation, and who does it.

use crate::{
    floor::Floor,
    floors, many,
    measure::{Case, Contender, Targets},
    ops,
    rig::{self, Rig},
    rival::{
        device::{Device, QpOptions},
        ffi::{IBV_QPT_RC, IbvQpCap, RC_SHORT_OPS},
        library::Library,
        ops::Theirs,
    },
    rivals::{self, LOCKS, NO_LOCKS, Rival},
    ucx,
};
use std::{cell::RefCell, hint::black_box, rc::Rc};

pub const SINGLE: &str = "per request or completion, one queue pair";

/// What a queue pair of ours and of theirs holds: rings of 256 WQEBBs.
const CAPS: IbvQpCap =
    IbvQpCap { max_send_wr: 128, max_recv_wr: 256, max_send_sge: 4, max_recv_sge: 4, max_inline_data: 64 };
/// The same with a ring of 8.
const SMALL_CAPS: IbvQpCap = IbvQpCap { max_send_wr: 2, max_inline_data: 128, ..CAPS };
/// One more than the 255 CQEs that a queue of 256 may be asked for.
const N_CQES: u32 = 1 << rig::LOG_SIZE;

/// Moves the lines at these addresses out of the caches near the processor, as after a device has written them.
pub fn demote(lines: impl Iterator<Item = *const u8>) {
    for line in lines {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint about a line of living memory (CLDEMOTE; where there is none it does nothing).
        unsafe {
            std::arch::asm!(".byte 0x0f, 0x1c, 0x00", in("rax") line, options(nostack, preserves_flags));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a barrier.
    unsafe {
        core::arch::x86_64::_mm_mfence();
    }
}

/// Whether the processor demotes lines when told.
fn can_demote() -> bool {
    std::fs::read_to_string("/proc/cpuinfo")
        .is_ok_and(|text| text.split_whitespace().any(|w| w == "cldemote"))
}

fn targets(name: &str) -> Targets {
    let target = |ns: f64, instructions: Option<f64>, ratio: f64| Targets {
        ns: Some(ns),
        instructions,
        ratio: Some(ratio),
        ucx_ratio: None,
    };
    match name {
        "post 8 B inline write" => target(8.0, Some(85.0), 2.5),
        "post 8 B inline write x16" | "post 8 B inline write x64" | "post SEND x16" | "post SEND x64" => {
            target(2.5, Some(40.0), 4.5)
        }
        "post 17 B message" => Targets { ucx_ratio: Some(1.8), ..Targets::default() },
        "post_recv" => target(3.0, None, 2.2),
        "post_recv x16" => target(1.0, None, 4.0),
        "poll 1" | "poll 1 receive" => target(5.0, Some(45.0), 4.5),
        "poll 16" | "poll 16 receives" => target(3.0, Some(45.0), 5.5),
        "poll 16, demoted" => target(10.0, Some(45.0), 5.0),
        "poll empty" => target(1.2, None, 2.6),
        _ => Targets::default(),
    }
}

/// libmlx5 without and with locks. Each has a device of its own: whether there are locks is decided for what is made
/// after the last device was opened.
fn rivals_with(library: Option<&'static Library>, caps: IbvQpCap, n_wqebbs: u32) -> Vec<Rival> {
    let Some(library) = library else { return vec![] };
    let options = QpOptions { qp_type: IBV_QPT_RC, send_ops: RC_SHORT_OPS, dv_ops: 0, caps };
    [(NO_LOCKS, false), (LOCKS, true)]
        .map(|(names, with_locks)| {
            let theirs = Theirs::new(&mut Device::open(library, with_locks), &options, N_CQES);
            assert_eq!(theirs.qp.dv.sq.wqe_cnt, n_wqebbs, "the same rings on all sides");
            Rival { names, theirs: Rc::new(RefCell::new(theirs)) }
        })
        .into()
}

/// Every operation. Without libmlx5, ours and the floor.
pub fn all(library: Option<&'static Library>) -> Vec<Case> {
    let floor = Rc::new(RefCell::new(Floor::new()));
    let rig = Rc::new(RefCell::new(Rig::new()));
    let rivals = Rc::new(rivals_with(library, CAPS, N_CQES));

    let case = |name, n, ours| {
        let (floor, rivals) = (Rc::clone(&floor), Rc::clone(&rivals));
        let contenders = Box::new(move || {
            let mut all = vec![ours];
            all.extend(floors::of(name, &floor));
            all.extend(rivals.iter().flat_map(|rival| rivals::of(name, rival)));
            if name == "post 17 B message" && library.is_some() {
                all.extend(ucx::am_short());
            }
            all
        });
        Case { group: SINGLE, name, n, calls: 64 / n, isolated: true, contenders, targets: targets(name) }
    };
    let mut cases: Vec<_> = rig::all().into_iter().map(|op| case(op.name, op.n, ours(&rig, &op))).collect();
    if can_demote() {
        let at = cases.iter().position(|case| case.name == "poll 16 receives").expect("an operation");
        cases.insert(at, case("poll 16, demoted", 16, poll_demoted(&rig)));
    }
    let name = "post 128 B and poll, ring of 8";
    cases.push(Case {
        group: SINGLE,
        name,
        n: 1,
        calls: 64,
        isolated: true,
        contenders: Box::new(move || {
            let rivals = rivals_with(library, SMALL_CAPS, 8);
            [small_ring()]
                .into_iter()
                .chain(rivals.iter().flat_map(|rival| rivals::of(name, rival)))
                .collect()
        }),
        targets: Targets::default(),
    });
    cases.extend(many::all(library));
    cases
}

fn ours(rig: &Rc<RefCell<Rig>>, op: &rig::Op) -> Contender {
    let (a, b) = (Rc::clone(rig), Rc::clone(rig));
    let (prepare, run) = (op.prepare, op.run);
    Contender {
        who: "ours",
        entry: op.entry,
        prepare: Box::new(move |calls| prepare(&mut a.borrow_mut(), calls)),
        run: Box::new(move |calls| run(&mut b.borrow_mut(), calls)),
    }
}

fn poll_demoted(rig: &Rc<RefCell<Rig>>) -> Contender {
    let (a, b) = (Rc::clone(rig), Rc::clone(rig));
    Contender {
        who: "ours",
        entry: ops::hot_poll as *const () as usize,
        prepare: Box::new(move |calls| {
            let rig = &mut *a.borrow_mut();
            rig.complete_sends(16 * calls);
            demote(rig.completer.cqes.newest(16 * calls));
        }),
        run: Box::new(move |calls| {
            let rig = &mut *b.borrow_mut();
            for _ in 0..calls {
                assert_eq!(ops::hot_poll(&mut rig.send_cq, &mut rig.send, 16), 16);
            }
        }),
    }
}

/// Requests of three WQEBBs in a ring of eight: three of eight run over its end.
fn small_ring() -> Contender {
    let rig = Rc::new(RefCell::new(Rig::with_log_wq_size(3)));
    let a = Rc::clone(&rig);
    Contender {
        who: "ours",
        entry: ops::hot_send_and_poll as *const () as usize,
        prepare: Box::new(move |calls| a.borrow_mut().complete_ahead(calls)),
        run: Box::new(move |calls| {
            let rig = &mut *rig.borrow_mut();
            for _ in 0..calls {
                let data = black_box(&[7; 128]);
                assert_eq!(ops::hot_send_and_poll(&mut rig.send, &mut rig.send_cq, 1, data), Ok(1));
            }
        }),
    }
}
