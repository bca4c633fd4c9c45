use super::{
    Barrier, Cell, DOORBELL, FLUSH, MACHINES, Machine, Mapping, RECORD_FIRST, Recorder, Step, Watch,
    assert_held, device::*, explore, loaded,
};
use crate::{
    cqe::{CqeOpcode, RequesterCqe},
    doorbell::{DoorbellMode, DoorbellRecord, Sharing, UarPage},
    mlx5::{
        be::Be32,
        ids::{Cqn, Lkey, Qpn, Rkey},
    },
    queue::*,
};
use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    ptr::NonNull,
};

const RECORD: Cell = "record";
const HALVES: [Cell; 2] = ["register, first half", "register, second half"];
const QPN: Qpn = Qpn::new(0x111);

/// What the elements of a ring are looked at as: their first 16 bytes, and the rest.
static ELEMENTS: [&[Cell]; 3] = [
    &["WQE 0, control", "WQE 0, data"],
    &["WQE 1, control", "WQE 1, data"],
    &["WQE 2, control", "WQE 2, data"],
];
static RECEIVES: [&[Cell]; 2] = [&["receive 0"], &["receive 1"]];

/// A page of zeros.
struct Page(NonNull<u8>);

impl Page {
    const LAYOUT: Layout = match Layout::from_size_align(4096, 4096) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    };

    fn new() -> Self {
        // SAFETY: the size is not 0.
        Self(NonNull::new(unsafe { alloc_zeroed(Self::LAYOUT) }).expect("memory"))
    }

    fn at(&self, offset_bytes: usize) -> NonNull<u8> {
        // SAFETY: all offsets are in the page.
        unsafe { self.0.add(offset_bytes) }
    }

    fn record(&self, offset_bytes: usize) -> DoorbellRecord {
        // SAFETY: in the page, which the tests drop last.
        unsafe { DoorbellRecord::new(self.at(offset_bytes).cast::<Be32>()) }
    }

    fn watch(&self, cell: Cell, offset_bytes: usize, len_bytes: usize, value: fn(&[u8]) -> u32) -> Watch {
        Watch { cell, at: self.at(offset_bytes), len_bytes, value, is_register: false }
    }

    fn register(&self, cell: Cell, offset_bytes: usize, len_bytes: usize, value: fn(&[u8]) -> u32) -> Watch {
        Watch { is_register: true, ..self.watch(cell, offset_bytes, len_bytes, value) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.0.as_ptr(), Self::LAYOUT) }
    }
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// `wqe_index` of a control segment.
fn wqe_index(bytes: &[u8]) -> u32 {
    be32(bytes) >> 8 & 0xffff
}

/// A send queue and its memory, the queue first.
struct Sends {
    queue: SendQueue,
    ring: Page,
    record: Page,
    uar: Page,
    _ledger: Page,
}

impl Sends {
    fn new(mapping: Mapping, doorbell: DoorbellMode) -> Self {
        let (ring, ledger, record, uar) = (Page::new(), Page::new(), Page::new(), Page::new());
        // SAFETY: pages, which the queue does not outlive; one register is taken once.
        let mut queue = unsafe {
            let registers = UarPage::new(uar.at(0), mapping == Mapping::WriteCombining);
            SendQueue::new(SendQueueParts {
                qpn: QPN,
                id: QueueId::next(),
                ring: ring.at(0),
                log_wq_size: 3,
                ledger: ledger.at(0).cast(),
                record: record.record(4),
                register: registers.register(0, 9, Sharing::Exclusive),
                doorbell,
                limits: SendLimits {
                    max_sge: 4,
                    max_inline_bytes: 28,
                    max_message_bytes: 1 << 30,
                    min_header_bytes: 0,
                },
            })
        };
        queue.open();
        Self { queue, ring, record, uar, _ledger: ledger }
    }
}

/// Posts three WRITEs of 8 bytes, the `n`th with `n + 1` as its data, each rung for or all at once.
fn posts(mapping: Mapping, doorbell: DoorbellMode, one_by_one: bool) -> Vec<Step> {
    let Sends { mut queue, ring, record, uar, _ledger } = Sends::new(mapping, doorbell);
    let mut watches = vec![
        record.watch(RECORD, 4, 4, be32),
        uar.register(HALVES[0], 0x800, 256, wqe_index),
        uar.register(HALVES[1], 0x900, 256, wqe_index),
    ];
    for (n, cells) in ELEMENTS.iter().enumerate() {
        watches.push(ring.watch(cells[0], n * 64, 16, |ctrl| wqe_index(ctrl) + 1));
        // The last of the 8 bytes of inline data, after the remote address and the inline header.
        watches.push(ring.watch(cells[1], n * 64 + 16, 48, |rest| rest[16 + 4 + 7].into()));
    }
    let recorder = Recorder::start(watches, &[]);
    let remote = Remote { addr: 0x1000, rkey: Rkey::new(7) };
    let write = |list: &mut PostList<'_>, n: u64| {
        list.rdma_write(n, remote, Flags::SIGNALED).unwrap().inline(&(n + 1).to_be_bytes()).unwrap().finish();
    };
    if one_by_one {
        for n in 0..3 {
            let mut list = queue.post_list();
            write(&mut list, n);
            list.ring();
        }
    } else {
        let mut list = queue.post_list();
        (0..3).for_each(|n| write(&mut list, n));
        list.ring();
    }
    recorder.end()
}

fn receives(_: Mapping) -> Vec<Step> {
    let (ring, ledger, record) = (Page::new(), Page::new(), Page::new());
    // SAFETY: pages, which the queue does not outlive.
    let mut queue = unsafe {
        RecvQueue::new(RecvQueueParts {
            qpn: QPN,
            id: QueueId::next(),
            ring: ring.at(0),
            log_wq_size: 2,
            log_wq_stride: 4,
            ledger: ledger.at(0).cast(),
            record: record.record(0),
            max_sge: 1,
        })
    };
    queue.open();
    let mut watches = vec![record.watch(RECORD, 0, 4, be32)];
    for (n, cells) in RECEIVES.iter().enumerate() {
        watches.push(ring.watch(cells[0], n * 16, 16, |segment| u32::from(segment[15])));
    }
    let recorder = Recorder::start(watches, &[]);
    for n in 0..2 {
        // SAFETY: no device takes it.
        unsafe { queue.post_raw(n, &[Sge { lkey: Lkey::new(7), addr: n + 1, len_bytes: 8 }]) }.unwrap();
    }
    recorder.end()
}

/// A completion queue of one slot, in which this test is the device.
struct Completions {
    queue: CompletionQueue,
    ring: Page,
    record: Page,
    uar: Page,
}

impl Completions {
    fn new(mapping: Mapping) -> Self {
        let (ring, record, uar) = (Page::new(), Page::new(), Page::new());
        // SAFETY: pages, which the queue does not outlive.
        let queue = unsafe {
            CompletionQueue::new(CompletionQueueParts {
                cqn: Cqn::new(0x89),
                ring: ring.at(0),
                log_cq_size: 0,
                cqe_size: CqeSize::B64,
                consumer_index: record.record(0),
                arm: record.record(4),
                uar: UarPage::new(uar.at(0), mapping == Mapping::WriteCombining),
            })
        };
        Self { queue, ring, record, uar }
    }

    /// Writes the `n`th completion.
    fn write(&self, n: u16) {
        let cqe = RequesterCqe::new().with_qpn(QPN).with_wqe_counter(n).with_opcode(CqeOpcode::REQ);
        let mut bytes = cqe.to_bytes();
        bytes[63] |= (n & 1) as u8;
        // SAFETY: the slot of the ring.
        unsafe { self.ring.at(0).cast::<[u8; 64]>().write_volatile(bytes) }
    }

    /// Takes two completions by `take`, which says what it loads.
    fn two(mapping: Mapping, mut take: impl FnMut(&mut CompletionQueue)) -> Vec<Step> {
        let mut cq = Self::new(mapping);
        let watches = vec![cq.record.watch(RECORD, 0, 4, be32)];
        let recorder = Recorder::start(watches, &[(OWNER, 1), (OWNER, 2)]);
        for n in 0..2 {
            cq.write(n);
            take(&mut cq.queue);
        }
        recorder.end()
    }
}

fn polls(mapping: Mapping) -> Vec<Step> {
    Completions::two(mapping, |queue| {
        let mut poll = queue.poll();
        let wc = poll.next().expect("just written");
        assert_eq!(wc.qpn(), QPN);
        loaded(FIELDS);
    })
}

fn takes(mapping: Mapping) -> Vec<Step> {
    let mut sends = Sends::new(mapping, DoorbellMode::Doorbell);
    let mut list = sends.queue.post_list();
    list.nop(0, Flags::SIGNALED).unwrap().finish();
    list.nop(1, Flags::SIGNALED).unwrap().finish();
    list.ring();
    Completions::two(mapping, |queue| {
        assert!(matches!(sends.queue.take_one(queue, |_, _| loaded(FIELDS)), Taken::Done(())));
    })
}

fn arms(mapping: Mapping) -> Vec<Step> {
    let mut cq = Completions::new(mapping);
    // Not the number that the record has from the start.
    cq.queue.event_received();
    let watches = vec![cq.record.watch(ARM_WORD, 4, 4, be32), cq.uar.register("arm register", 0x20, 8, be32)];
    let recorder = Recorder::start(watches, &[]);
    cq.queue.arm(false);
    loaded(OWNER);
    recorder.end()
}

fn with_flush(machine: Machine, mut needed: Vec<Barrier>) -> Vec<Barrier> {
    if machine.mapping() == Mapping::WriteCombining {
        needed.push(FLUSH);
    }
    needed
}

#[test]
fn posts_one_by_one_by_8_byte_doorbells() {
    assert_held(
        "posts by doorbells",
        &MACHINES,
        |mapping| posts(mapping, DoorbellMode::Doorbell, true),
        &Executor::new(&ELEMENTS, RECORD, false),
        |machine| with_flush(machine, vec![RECORD_FIRST, DOORBELL]),
    );
}

#[test]
fn a_list_by_an_8_byte_doorbell() {
    assert_held(
        "a list",
        &MACHINES,
        |mapping| posts(mapping, DoorbellMode::Auto, false),
        &Executor::new(&ELEMENTS, RECORD, false).rung_before(),
        |machine| with_flush(machine, vec![RECORD_FIRST, DOORBELL]),
    );
}

#[test]
fn posts_one_by_one_by_blue_flame() {
    assert_held(
        "posts by BlueFlame",
        &MACHINES,
        |mapping| posts(mapping, DoorbellMode::Auto, true),
        &Executor::new(&ELEMENTS, RECORD, false),
        |_| vec![RECORD_FIRST, DOORBELL],
    );
}

#[test]
fn receives_are_there_before_they_are_counted() {
    let device = Executor::new(&RECEIVES, RECORD, true);
    assert_held("receives", &MACHINES, receives, &device, |_| vec![RECORD_FIRST]);
}

#[test]
fn completions_are_read_once_they_are_new_and_before_they_are_given_back() {
    let needed = |_| vec![Barrier::AfterOwnerTest, Barrier::BeforeConsumerIndex];
    let device = Writer::new(2, Some(RECORD));
    assert_held("polls", &MACHINES, polls, &device, needed);
}

#[test]
fn a_completion_taken_alone_reads_nothing_after_it_is_given_back() {
    let needed = |_| vec![Barrier::AfterOwnerTest, Barrier::BeforeConsumerIndex];
    assert_held("takes", &MACHINES, takes, &Writer::new(2, Some(RECORD)), needed);
}

#[test]
fn an_armed_queue_wakes_its_sleeper() {
    assert_held("arm, look, sleep", &MACHINES, arms, &Waker::new(true), |machine| {
        with_flush(machine, vec![DOORBELL])
    });
}

/// No barrier of the driver's closes the gap between its last look and the arm: the device does.
#[test]
fn a_device_that_does_not_look_back_would_let_it_sleep() {
    for machine in MACHINES {
        let program = arms(machine.mapping());
        let wrong = explore(machine, &program, None, &Waker::new(false)).wrong;
        assert!(wrong.is_some(), "{machine:?}");
    }
}
