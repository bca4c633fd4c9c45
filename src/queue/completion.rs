//! One completion, read where it lies.

use super::Source;
use crate::{
    cqe::{CQE_BYTES, CqeFormat, CqeOpcode, CqeSyndrome, OP_OWN_OFFSET},
    mlx5::{
        be::{Be16, Be32, Be64},
        ids::{Qpn, Rkey, UserIndex},
    },
    wqe::SendOpcode,
};
use core::{fmt, marker::PhantomData};

/// A CQE that the ownership test has given to software.
///
/// Fields are read from the ring when they are asked for: each is one load.
#[derive(Clone, Copy)]
pub struct Completion<'p> {
    cqe: *const u8,
    kind: Kind,
    poll: PhantomData<&'p ()>,
}

/// The last byte of a CQE: in `[7]` whether the owner is not the lap's, opcode in `[6:3]`, format in `[2:1]`, solicited event in `[0]`.
#[derive(Clone, Copy)]
pub(super) struct Kind(u8);

impl Kind {
    /// Of the `op_own` of a slot. `lap` is 0x80 in odd laps of the ring, else 0.
    #[inline(always)]
    pub(super) const fn of(op_own: u8, lap: u8) -> Self {
        Self(op_own.rotate_right(1) ^ lap)
    }

    /// Whether the device has written the slot: the owner bit is the lap's parity, and the opcode not INVALID. The owner bit
    /// is uppermost, so that one comparison tells both.
    #[inline(always)]
    pub(super) const fn is_written(self) -> bool {
        self.0 < CqeOpcode::INVALID.0 << 3
    }

    #[inline(always)]
    const fn opcode(self) -> CqeOpcode {
        CqeOpcode(self.0 >> 3)
    }

    #[inline(always)]
    const fn format(self) -> CqeFormat {
        CqeFormat(self.0 >> 1 & 3)
    }

    /// A receive request that is done, and nothing besides: opcodes 1 to 4, format 0.
    #[inline(always)]
    pub(super) const fn is_plain_recv(self) -> bool {
        self.0.wrapping_sub(1 << 3) < 4 << 3 && self.0 & 6 == 0
    }

    /// A send request that is done, and nothing besides.
    #[inline(always)]
    pub(super) const fn is_plain_send(self) -> bool {
        self.0 & !1 == 0
    }
}

// Places of fields that both kinds of CQE have, taken from their declarations.
const ML_PATH: usize = 0x10;
const SLID: usize = 0x14;
const FLAGS_RQPN: usize = 0x18;
const SRQN_UIDX: usize = 0x20;
const IMM_INVAL_PKEY: usize = 0x24;
const BYTE_CNT: usize = 0x2c;
const TIMESTAMP: usize = 0x30;
const SYNDROME: usize = 0x34;
const SOP_DROP_QPN: usize = 0x38;
const WQE_COUNTER: usize = 0x3c;

/// How the completions of one queue pair are told from others'.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    /// Where the number is in a CQE: in the lower 24 bits of a dword.
    offset_bytes: usize,
    number: Low24,
}

/// The lower 24 bits of a big-endian dword where they are, so that two are compared without swapping their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Low24(u32);

impl Low24 {
    #[inline(always)]
    const fn of(dword: Be32) -> Self {
        Self(dword.to_raw() & Be32::new(0xff_ffff).to_raw())
    }
}

impl Owner {
    /// By its number, which a later queue pair may have too.
    pub(super) const fn qpn(qpn: Qpn) -> Self {
        Self { offset_bytes: SOP_DROP_QPN, number: Low24::of(Be32::new(qpn.get())) }
    }

    /// By the number that software gave it, which the device writes if `cqe_version` is 1.
    pub(super) const fn user_index(user_index: UserIndex) -> Self {
        Self { offset_bytes: SRQN_UIDX, number: Low24::of(Be32::new(user_index.get())) }
    }
}

/// A CQE by itself: copied from somewhere, to be read as one in a ring is.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub struct CqeCopy(pub [u8; CQE_BYTES]);

impl<'p> Completion<'p> {
    /// What a copied CQE says. Whoever copied it knows that the device had written it: nobody asks whose it is.
    ///
    /// ```
    /// use mlx5_direct::{cqe::{CQE_BYTES, CqeSyndrome}, queue::{Completion, CqeCopy}};
    ///
    /// let mut cqe = CqeCopy([0; CQE_BYTES]);
    /// cqe.0[0x34..].copy_from_slice(&[0, 0, 0x88, 0x13, 0x08, 0, 0x62, 0x14, 0, 0, 0xf6, 0xd2]);
    /// let wc = Completion::of(&cqe);
    /// assert_eq!(wc.qpn().get(), 0x6214);
    /// assert_eq!(wc.error().unwrap().syndrome, CqeSyndrome::REMOTE_ACCESS_ERR);
    /// ```
    pub fn of(cqe: &'p CqeCopy) -> Self {
        let kind = Kind::of(cqe.0[OP_OWN_OFFSET] & !1, 0);
        // SAFETY: 64 bytes, aligned by the type, borrowed for `'p`.
        unsafe { Self::new(cqe.0.as_ptr(), kind) }
    }

    /// Takes the CQE at `cqe`, whose last byte was read as `kind`.
    ///
    /// # Safety
    /// `cqe` is valid for reads of 64 bytes, 64-byte aligned, and was given to software until `'p` ends.
    #[inline(always)]
    pub(super) unsafe fn new(cqe: *const u8, kind: Kind) -> Self {
        Self { cqe, kind, poll: PhantomData }
    }

    /// A dword of the CQE.
    #[inline(always)]
    fn dword<const OFFSET: usize>(&self) -> u32 {
        const { assert!(OFFSET <= CQE_BYTES - 4 && OFFSET.is_multiple_of(4)) };
        // SAFETY: within the CQE and aligned. Volatile, since only an obedient device leaves it alone now.
        unsafe { self.cqe.add(OFFSET).cast::<Be32>().read_volatile() }.get()
    }

    /// What the CQE is.
    #[inline(always)]
    pub fn opcode(&self) -> CqeOpcode {
        self.kind.opcode()
    }

    /// What it carries besides.
    #[inline(always)]
    pub fn format(&self) -> CqeFormat {
        self.kind.format()
    }

    /// Whether it is of a send request that is done.
    #[inline(always)]
    pub(super) fn is_plain_send(&self) -> bool {
        self.kind.is_plain_send()
    }

    /// Whether it is of a receive request that is done.
    #[inline(always)]
    pub(super) fn is_plain_recv(&self) -> bool {
        self.kind.is_plain_recv()
    }

    /// Whether it is of a send request, done or failed.
    #[inline(always)]
    pub fn is_send(&self) -> bool {
        matches!(self.opcode(), CqeOpcode::REQ | CqeOpcode::REQ_ERR)
    }

    /// Whether it is of a receive request, done or failed.
    #[inline(always)]
    pub fn is_recv(&self) -> bool {
        matches!(self.opcode().0, 1..=4) || self.opcode() == CqeOpcode::RESP_ERR
    }

    /// Whether the sender asked for an event.
    #[inline(always)]
    pub fn is_solicited(&self) -> bool {
        self.kind.0 & 1 != 0
    }

    /// Number of the local queue pair.
    #[inline(always)]
    pub fn qpn(&self) -> Qpn {
        Qpn::new(self.dword::<SOP_DROP_QPN>())
    }

    /// The number that software gave the queue pair.
    #[inline(always)]
    pub fn user_index(&self) -> UserIndex {
        UserIndex::new(self.dword::<SRQN_UIDX>())
    }

    /// Whether it is of the queue pair that `owner` tells.
    #[inline(always)]
    pub(super) fn is_of(&self, owner: Owner) -> bool {
        // SAFETY: within the CQE and aligned, as in `dword`.
        let dword = unsafe { self.cqe.add(owner.offset_bytes).cast::<Be32>().read_volatile() };
        Low24::of(dword) == owner.number
    }

    /// Counter of the request's WQE.
    #[inline(always)]
    pub fn wqe_counter(&self) -> u16 {
        // SAFETY: within the CQE and aligned, as in `dword`.
        unsafe { self.cqe.add(WQE_COUNTER).cast::<Be16>().read_volatile() }.get()
    }

    /// Opcode of the completed send request.
    #[inline(always)]
    pub fn send_opcode(&self) -> Option<SendOpcode> {
        self.is_send().then(|| SendOpcode((self.dword::<SOP_DROP_QPN>() >> 24) as u8))
    }

    /// Bytes that arrived: of a message received, of a READ or an atomic. 0 for other sends and for failures.
    #[inline(always)]
    pub fn byte_len(&self) -> u32 {
        match self.opcode() {
            CqeOpcode::REQ => match self.send_opcode() {
                Some(SendOpcode::RDMA_READ) => self.dword::<BYTE_CNT>(),
                Some(SendOpcode::ATOMIC_CS | SendOpcode::ATOMIC_FA) => 8,
                _ => 0,
            },
            CqeOpcode(1..=4) => self.dword::<BYTE_CNT>(),
            _ => 0,
        }
    }

    /// Immediate data of a message received, as the host's integer.
    #[inline(always)]
    pub fn imm(&self) -> Option<u32> {
        matches!(self.opcode(), CqeOpcode::RESP_WR_IMM | CqeOpcode::RESP_SEND_IMM)
            .then(|| self.dword::<IMM_INVAL_PKEY>())
    }

    /// The key of ours that a message received has invalidated.
    #[inline(always)]
    pub fn invalidated_rkey(&self) -> Option<Rkey> {
        (self.opcode() == CqeOpcode::RESP_SEND_INV).then(|| Rkey::new(self.dword::<IMM_INVAL_PKEY>()))
    }

    /// Who sent a message received: to be answered, if it is a datagram.
    #[inline]
    pub fn source(&self) -> Option<Source> {
        matches!(self.opcode().0, 1..=4).then(|| {
            let flags_rqpn = self.dword::<FLAGS_RQPN>();
            Source {
                qpn: Qpn::new(flags_rqpn),
                slid: self.dword::<SLID>() as u16,
                sl: (flags_rqpn >> 24) as u8 & 0xf,
                path_bits: (self.dword::<ML_PATH>() >> 16) as u8 & 0x7f,
                grh: flags_rqpn >> 28 & 3 != 0,
            }
        })
    }

    /// Device clock when the request completed.
    #[inline(always)]
    pub fn timestamp(&self) -> u64 {
        // SAFETY: within the CQE and aligned, as in `dword`.
        unsafe { self.cqe.add(TIMESTAMP).cast::<Be64>().read_volatile() }.get()
    }

    /// Why the request failed, or why the CQE could not be understood.
    #[inline(always)]
    pub fn error(&self) -> Option<CompletionError> {
        // Asked as whoever retires the request has asked: the compiler asks once.
        if self.kind.is_plain_send() || self.kind.is_plain_recv() { None } else { Some(self.read_error()) }
    }

    /// `Ok`, or why not: see [`error`](Self::error).
    ///
    /// # Errors
    /// A request that failed, or a CQE that could not be understood.
    #[inline(always)]
    pub fn status(&self) -> Result<(), CompletionError> {
        self.error().map_or(Ok(()), Err)
    }

    #[cold]
    fn read_error(&self) -> CompletionError {
        let failed = matches!(self.opcode(), CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR);
        let syndromes = if failed { self.dword::<SYNDROME>() } else { 0 };
        CompletionError {
            opcode: self.opcode(),
            format: self.format(),
            syndrome: CqeSyndrome(syndromes as u8),
            vendor_err: (syndromes >> 8) as u8,
            send_opcode: self.send_opcode(),
            qpn: self.qpn(),
            wqe_counter: self.wqe_counter(),
        }
    }

    /// The 64 bytes, copied, to be explained.
    pub fn to_bytes(&self) -> [u8; CQE_BYTES] {
        // SAFETY: the whole CQE. Volatile, as in `dword`.
        unsafe { self.cqe.cast::<[u8; CQE_BYTES]>().read_volatile() }
    }
}

impl fmt::Debug for Completion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("opcode", &self.opcode())
            .field("qpn", &self.qpn())
            .field("wqe_counter", &self.wqe_counter())
            .field("byte_len", &self.byte_len())
            .field("error", &self.error())
            .finish()
    }
}

/// A request that failed, or a CQE that was not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletionError {
    /// `REQ_ERR`, `RESP_ERR`, or an opcode that is not known.
    pub opcode: CqeOpcode,
    /// What the CQE carries besides; anything but nothing is not understood.
    pub format: CqeFormat,
    /// What went wrong; 0 if the CQE was not understood.
    pub syndrome: CqeSyndrome,
    /// The vendor's reason.
    pub vendor_err: u8,
    /// Opcode of the send request that failed.
    pub send_opcode: Option<SendOpcode>,
    /// Number of the local queue pair.
    pub qpn: Qpn,
    /// Counter of the request's WQE.
    pub wqe_counter: u16,
}

impl CompletionError {
    /// Whether the request was not executed, since its queue pair was in error before.
    pub fn is_flush(&self) -> bool {
        self.is_failure() && self.syndrome == CqeSyndrome::WR_FLUSH_ERR
    }

    /// What the vendor's reason means, of the few that are public.
    pub fn vendor_meaning(&self) -> Option<&'static str> {
        match (self.syndrome, self.vendor_err) {
            // rdma-core `MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT`.
            (CqeSyndrome::REMOTE_ABORTED_ERR, 0x93) => Some("a page fault of on-demand paging"),
            // UCX `UCT_IB_MLX5_CQE_VENDOR_SYND_PSN`.
            (CqeSyndrome::REMOTE_ABORTED_ERR, 0x99) => Some("a packet out of sequence"),
            _ => None,
        }
    }

    /// Whether a request failed, rather than a CQE that was not understood.
    pub fn is_failure(&self) -> bool {
        matches!(self.opcode, CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR)
    }
}

impl fmt::Display for CompletionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_failure() {
            return write!(
                f,
                "qp {}: CQE of opcode {}, format {} is not understood (no compression, inline scatter or \
                 resize is set up); it was passed over",
                self.qpn, self.opcode, self.format
            );
        }
        match self.send_opcode {
            Some(opcode) => write!(f, "qp {}: {opcode} at WQE 0x{:04x}", self.qpn, self.wqe_counter)?,
            None => write!(f, "qp {}: receive WQE 0x{:04x}", self.qpn, self.wqe_counter)?,
        }
        write!(f, " failed: {}, vendor_err 0x{:02x}", self.syndrome, self.vendor_err)?;
        if let Some(meaning) = self.vendor_meaning() {
            write!(f, " ({meaning})")?;
        }
        write!(f, ": {}", advice(self.syndrome))
    }
}

impl core::error::Error for CompletionError {}

/// What to look at.
fn advice(syndrome: CqeSyndrome) -> &'static str {
    match syndrome {
        CqeSyndrome::LOCAL_LENGTH_ERR => {
            "the message is longer than the scatter list, or than the port allows"
        }
        CqeSyndrome::LOCAL_QP_OP_ERR => "the WQE is malformed or not allowed on this queue pair",
        CqeSyndrome::LOCAL_PROT_ERR => {
            "an lkey does not cover the memory, lacks the right or is of another PD"
        }
        CqeSyndrome::WR_FLUSH_ERR => "not executed, the queue pair was in error: look at the first error",
        CqeSyndrome::MW_BIND_ERR => "the memory window could not be bound",
        CqeSyndrome::BAD_RESP_ERR => "the peer's response does not fit the request",
        CqeSyndrome::LOCAL_ACCESS_ERR => "a remote access to local memory failed",
        CqeSyndrome::REMOTE_INVAL_REQ_ERR => {
            "the peer refused the request: too long for its receive, or not enabled"
        }
        CqeSyndrome::REMOTE_ACCESS_ERR => "the rkey does not cover the peer's memory or lacks the right",
        CqeSyndrome::REMOTE_OP_ERR => "the peer's queue pair failed: look at its completions",
        CqeSyndrome::TRANSPORT_RETRY_EXC_ERR => "the peer did not answer: address, PSN, state or link",
        CqeSyndrome::RNR_RETRY_EXC_ERR => "the peer had no receive posted for too long",
        CqeSyndrome::REMOTE_ABORTED_ERR => "the peer gave the request up",
        _ => "a syndrome without a public name",
    }
}
