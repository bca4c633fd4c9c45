//! Two connected queue pairs on a card, for tests of the whole driver.
#![allow(dead_code, unreachable_pub, unused_imports, missing_docs)] // each test file uses its part

mod card;

pub(crate) use card::{Card, Need, card, is_skipped, makes, needs, open, served, stepped};
use mlx5_direct::{
    Access, Connection, Context, Cq, CqAttr, Mr, Pd, Qp, QpInit,
    cqe::CqeOpcode,
    mlx5::context::QpState,
    queue::{CompletionError, Connected, Flags, Lease, PostList, Rc, Remote, Source, Transport},
};
use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

/// Nothing in these tests takes longer.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// All that a peer may do.
pub const ALL: Access =
    Access(Access::LOCAL_WRITE.0 | Access::REMOTE_WRITE.0 | Access::REMOTE_READ.0 | Access::REMOTE_ATOMIC.0);

/// One completion, retired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    pub wr_id: u64,
    pub n_freed: u32,
    pub is_send: bool,
    pub opcode: CqeOpcode,
    pub byte_len: u32,
    pub imm: Option<u32>,
    pub invalidated_rkey: Option<u32>,
    pub wqe_counter: u16,
    pub source: Option<Source>,
    pub solicited: bool,
    pub error: Option<CompletionError>,
}

/// A queue pair with its own memory and completion queue.
pub struct Side<T = Rc> {
    pub qp: Qp<T>,
    pub cq: Cq,
    pub mr: Mr,
    pub lease: Lease,
    pub pd: Pd,
    pub ctx: Context,
    pub card: Card,
}

/// What a side is made of.
#[derive(Clone, Copy)]
pub struct Setup {
    pub init: QpInit,
    pub connection: Connection,
    pub cq: CqAttr<'static>,
    pub mr_bytes: usize,
    pub access: Access,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            init: QpInit { max_send_sge: 4, max_recv_sge: 4, ..QpInit::default() },
            connection: Connection::default(),
            cq: CqAttr { n_cqes: 1024, ..CqAttr::default() },
            mr_bytes: 1 << 16,
            access: ALL,
        }
    }
}

impl Side {
    /// An unconnected side on `ctx`: reliable connection.
    pub fn new(card: &Card, ctx: &Context, setup: &Setup) -> Self {
        Self::of(card, ctx, setup)
    }
}

impl<T: Transport> Side<T> {
    /// An unconnected side on `ctx`, of whatever transport.
    pub fn of(card: &Card, ctx: &Context, setup: &Setup) -> Self {
        let pd = ctx.alloc_pd().expect("pd");
        let cq = ctx.create_cq(&setup.cq).expect("cq");
        let mut qp = pd.create_qp_of::<T>(&setup.init, &cq, &cq).expect("qp");
        let mr = pd.alloc_mr(setup.mr_bytes, setup.access).expect("mr");
        let lease = qp.lease(&mr).expect("lease");
        Self { qp, cq, mr, lease, pd, ctx: ctx.clone(), card: card.clone() }
    }

    /// Writes one request and rings.
    pub fn post(&mut self, write: impl FnOnce(&mut PostList<'_, T>, Lease)) {
        let mut list = self.qp.post_list();
        write(&mut list, self.lease);
        list.ring();
    }

    /// Posts a receive over `range` of the side's memory.
    pub fn recv(&mut self, wr_id: u64, range: std::ops::Range<u64>) {
        self.qp.post_recv(wr_id, &[self.lease.slice(range)]).expect("post_recv");
    }

    /// A completion that is there now, retired.
    pub fn poll(&mut self) -> Option<Done> {
        let mut poll = self.cq.poll();
        let wc = poll.next()?;
        let retired = self.qp.retire(&wc).unwrap_or_else(|error| panic!("{error}: {wc:?}"));
        Some(Done {
            wr_id: retired.wr_id,
            n_freed: retired.n_freed,
            is_send: wc.is_send(),
            opcode: wc.opcode(),
            byte_len: wc.byte_len(),
            imm: wc.imm(),
            invalidated_rkey: wc.invalidated_rkey().map(|key| key.get()),
            wqe_counter: wc.wqe_counter(),
            source: wc.source(),
            solicited: wc.is_solicited(),
            error: wc.error(),
        })
    }

    /// The next completion, waited for.
    #[track_caller]
    pub fn done(&mut self) -> Done {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(done) = self.poll() {
                return done;
            }
            if !self.card.step() {
                assert!(Instant::now() < deadline, "no completion on {:?} in {DEADLINE:?}", self.qp.qpn());
                // One that is stepped is idle: only time brings more.
                self.card.advance(Duration::from_micros(20));
            }
        }
    }

    /// The next completion, which must be without error.
    #[track_caller]
    pub fn ok(&mut self) -> Done {
        let done = self.done();
        if let Some(error) = done.error {
            panic!("request {}: {error}", done.wr_id);
        }
        done
    }

    /// The next completion, which must be an error.
    #[track_caller]
    pub fn fails(&mut self) -> CompletionError {
        let done = self.done();
        done.error.unwrap_or_else(|| panic!("request {} should have failed: {done:?}", done.wr_id))
    }

    /// Checks that nothing completes, having let things settle.
    #[track_caller]
    pub fn assert_quiet(&mut self) {
        let until = Instant::now() + Duration::from_millis(20);
        while self.card.step() || Instant::now() < until {
            if let Some(done) = self.poll() {
                panic!("nothing should complete: {done:?}");
            }
        }
    }

    /// The place `offset` bytes in the side's memory, for its peer.
    pub fn remote(&self, offset: usize) -> Remote {
        self.mr.remote(offset)
    }

    /// `len` bytes at `offset` of the side's memory.
    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.mr.read(offset, &mut bytes);
        bytes
    }

    /// State of the queue pair as the device has it.
    pub fn device_state(&self) -> QpState {
        self.qp.query().expect("query_qp").state
    }
}

/// Two connected sides. Dropped, it checks that no rule of the card was broken.
pub struct Pair<T = Rc> {
    pub a: Side<T>,
    pub b: Side<T>,
    pub card: Card,
}

impl Pair {
    /// Two sides on a card of these options: on its two functions, or on its one.
    pub fn new(options: &str) -> Self {
        Self::with(options, &Setup::default(), &Setup::default())
    }

    /// As [`new`](Self::new), of these makes.
    pub fn with(options: &str, a: &Setup, b: &Setup) -> Self {
        Self::of(options, a, b)
    }
}

impl<T: Connected> Pair<T> {
    /// Two connected sides, of whatever transport.
    pub fn of(options: &str, a: &Setup, b: &Setup) -> Self {
        let card = card(options);
        let ctx_a = open(&card, 0);
        let ctx_b = if card.n_functions() == 2 { open(&card, 1) } else { ctx_a.clone() };
        let (mut side_a, mut side_b) = (Side::of(&card, &ctx_a, a), Side::of(&card, &ctx_b, b));
        connect(&mut side_a.qp, &mut side_b.qp, &a.connection, &b.connection);
        Self { a: side_a, b: side_b, card }
    }

    /// Does what there is to do on a card that is stepped.
    pub fn settle(&self) {
        while self.card.step() {}
    }
}

impl<T> Drop for Pair<T> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.card.assert_clean();
        }
    }
}

/// Connects two queue pairs to each other.
pub fn connect<T: Connected>(a: &mut Qp<T>, b: &mut Qp<T>, how_a: &Connection, how_b: &Connection) {
    let to_a = a.address(how_a.port, how_a.gid_index).expect("address");
    let to_b = b.address(how_b.port, how_b.gid_index).expect("address");
    a.connect(&to_b, how_a).expect("connect");
    b.connect(&to_a, how_b).expect("connect");
}

/// A side that is connected to itself.
pub fn looped(card: &Card, ctx: &Context, setup: &Setup) -> Side {
    let mut side = Side::new(card, ctx, setup);
    let to_self = side.qp.address(1, setup.connection.gid_index).expect("address");
    side.qp.connect(&to_self, &setup.connection).expect("connect");
    side
}

/// What a process has.
#[derive(Debug)]
pub struct Belongings {
    /// Open descriptors.
    pub descriptors: std::collections::BTreeSet<String>,
    /// Mappings. Anonymous memory is the allocator's business too; but the device's pages are unmapped one by one, and a
    /// thousand of them left behind would show.
    pub n_mappings: usize,
    pub n_threads: usize,
}

/// What this process has now.
pub fn belongings() -> Belongings {
    let list = |dir: &str| {
        let entries = std::fs::read_dir(dir).expect("procfs");
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
    };
    let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs");
    Belongings {
        descriptors: list("/proc/self/fd").collect(),
        n_mappings: maps.lines().count(),
        n_threads: list("/proc/self/task").count(),
    }
}

/// Bytes that depend on `seed` and differ from place to place.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// SIGNALED, which most tests want.
pub const SIGNALED: Flags = Flags::SIGNALED;
