//! What can go wrong on the control path. Every message names the rule, the numbers and what to do.
#![forbid(unsafe_code)]

use crate::mlx5::{
    cmd::{CmdOpcode, CmdStatus, DeliveryStatus},
    context::QpState,
    init_segment::{HealthSyndrome, NicInterface},
};
use std::{fmt, io, time::Duration};

/// Result of a control-path call.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the control path.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    Os {
        /// What was asked of it.
        what: String,
        /// Its answer.
        source: io::Error,
    },
    /// The computer is not set up for what was asked, or denies it.
    Host {
        /// What is wrong.
        problem: String,
        /// What to do about it: a command where there is one.
        remedy: String,
        /// The operating system's answer, if it was asked.
        source: Option<io::Error>,
    },
    /// The device did not take a command: its entry or mailboxes were malformed.
    Delivery {
        /// The command.
        opcode: CmdOpcode,
        /// Why it was not taken.
        status: DeliveryStatus,
    },
    /// The device took a command and refused it.
    Command {
        /// The command.
        opcode: CmdOpcode,
        /// Its variant.
        op_mod: u16,
        /// The class of refusal.
        status: CmdStatus,
        /// The firmware's own reason.
        syndrome: u32,
    },
    /// Something did not happen before its deadline.
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        after: Duration,
    },
    /// The device does not work any more, or not for us. Every call says so until the function is reset and opened again.
    DeviceGone(Gone),
    /// The device lacks a capability that the call needs.
    Unsupported {
        /// PRM name of the capability.
        capability: &'static str,
        /// What the device says, and what would be needed.
        reason: String,
    },
    /// A queue pair cannot go from one state to another, or not with these attributes.
    Transition {
        /// State of the queue pair.
        from: QpState,
        /// State asked for.
        to: QpState,
        /// Mandatory attributes that were not given. Empty if the states themselves are not connected.
        missing: Vec<&'static str>,
        /// Attributes that this transition does not take.
        excess: Vec<&'static str>,
    },
    /// An argument breaks a rule, which the text states with its numbers. Nothing was done.
    InvalidArgument(String),
    /// The device broke the interface: it answered what no device may answer.
    Protocol(String),
    /// No room for a mapping in the I/O virtual addresses of the function.
    OutOfIova {
        /// Bytes that were needed.
        wanted_bytes: u64,
        /// Their alignment.
        align_bytes: u64,
        /// Bytes free in all.
        free_bytes: u64,
    },
}

/// Why a device is [gone](Error::DeviceGone).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gone {
    /// Registers read all ones: the function has left the bus.
    Pci,
    /// The kernel wants the function back: somebody unbinds or removes it, and waits until it is closed. The device
    /// itself works: what was made can be destroyed, and dropping the context takes it down in order.
    Released,
    /// The health counter stands still.
    HealthCounter {
        /// The value it stands at.
        counter: u32,
        /// Readings that were equal.
        misses: u32,
    },
    /// The NIC interface is not in full operation.
    NicInterface(NicInterface),
    /// Firmware reports a fatal state.
    Firmware {
        /// `health_buffer.synd`.
        syndrome: HealthSyndrome,
        /// `health_buffer.ext_synd`.
        ext_syndrome: u16,
        /// `health_buffer.rfr`: a reset is required for recovery.
        reset_required: bool,
    },
    /// The kernel driver has given the device up, or is about to.
    KernelDriver,
    /// [`close`](crate::backend::Control::close) was called.
    Closed,
}

impl Error {
    pub(crate) fn os(what: impl Into<String>, source: io::Error) -> Self {
        Self::Os { what: what.into(), source }
    }

    pub(crate) fn host(
        problem: impl Into<String>,
        remedy: impl Into<String>,
        source: impl Into<Option<io::Error>>,
    ) -> Self {
        Self::Host { problem: problem.into(), remedy: remedy.into(), source: source.into() }
    }

    pub(crate) fn invalid(rule: impl Into<String>) -> Self {
        Self::InvalidArgument(rule.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os { what, source } => write!(f, "{what}: {source}"),
            Self::Host { problem, remedy, source: None } => write!(f, "{problem}; {remedy}"),
            Self::Host { problem, remedy, source: Some(source) } => {
                write!(f, "{problem} ({source}); {remedy}")
            }
            Self::Delivery { opcode, status } => {
                write!(f, "command {opcode} was not delivered: {status}, {}", delivery_reason(*status))
            }
            Self::Command { opcode, op_mod, status, syndrome } => write!(
                f,
                "command {opcode} op_mod 0x{op_mod:x} refused: {status}, {} (syndrome 0x{syndrome:08x})",
                status_reason(*status)
            ),
            Self::Timeout { what, after } => write!(
                f,
                "{what} did not happen within {after:?}; if it repeats, reset the function and open it again"
            ),
            Self::DeviceGone(gone) => write!(f, "device is gone: {gone}"),
            Self::Unsupported { capability, reason } => {
                write!(f, "the device lacks capability {capability}: {reason}")
            }
            Self::Transition { from, to, missing, excess } => {
                let name = |state: &QpState| state.name().unwrap_or("an unknown state");
                write!(f, "queue pair cannot go from {} to {}", name(from), name(to))?;
                if missing.is_empty() && excess.is_empty() {
                    let next = legal_targets(*from);
                    return write!(f, ": from {} only {next} can be reached", name(from));
                }
                if !missing.is_empty() {
                    write!(f, ": give {}", missing.join(", "))?;
                }
                if !excess.is_empty() {
                    write!(f, "; leave out {}, which this transition does not take", excess.join(", "))?;
                }
                Ok(())
            }
            Self::InvalidArgument(rule) => f.write_str(rule),
            Self::Protocol(text) => write!(f, "device broke the interface: {text}"),
            Self::OutOfIova { wanted_bytes, align_bytes, free_bytes } => write!(
                f,
                "no {wanted_bytes} bytes of I/O virtual addresses aligned to {align_bytes} are free \
                 ({free_bytes} free in all); deregister memory"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Os { source, .. } | Self::Host { source: Some(source), .. } => Some(source),
            _ => None,
        }
    }
}

impl From<Gone> for Error {
    fn from(gone: Gone) -> Self {
        Self::DeviceGone(gone)
    }
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pci => write!(f, "its registers read all ones; check the slot, then open it again"),
            Self::Released => {
                write!(
                    f,
                    "the kernel wants the function back, since somebody unbinds or removes it; close it"
                )
            }
            Self::HealthCounter { counter, misses } => write!(
                f,
                "its health counter stood at 0x{counter:x} for {misses} readings; reset the function"
            ),
            Self::NicInterface(state) => {
                write!(f, "its NIC interface is {state}, not in full operation; reset the function")
            }
            Self::Firmware { syndrome, ext_syndrome, reset_required } => write!(
                f,
                "firmware reports {syndrome}, extended 0x{ext_syndrome:04x}; {}",
                if *reset_required { "a reset is required" } else { "reset the function" }
            ),
            Self::KernelDriver => {
                write!(f, "its kernel driver reports a fatal error; look at dmesg, then open it again")
            }
            Self::Closed => write!(f, "it was closed; open it again"),
        }
    }
}

/// The states that a queue pair of `from` can be moved to, in words.
fn legal_targets(from: QpState) -> &'static str {
    match from {
        QpState::RST => "RST and INIT",
        QpState::INIT => "INIT, RTR, ERR and RST",
        QpState::RTR => "RTS, ERR and RST",
        QpState::RTS => "RTS, ERR and RST",
        QpState::SQER => "RTS, ERR and RST",
        _ => "ERR and RST",
    }
}

fn delivery_reason(status: DeliveryStatus) -> &'static str {
    match status {
        DeliveryStatus::SIGNAT_ERR => "a signature does not match",
        DeliveryStatus::TOK_ERR => "a mailbox has another token than the entry",
        DeliveryStatus::BAD_BLK_NUM_ERR => "mailbox blocks are not numbered 0, 1, 2…",
        DeliveryStatus::OUT_PTR_ALIGN_ERR => "an output mailbox is not aligned to 512 bytes",
        DeliveryStatus::IN_PTR_ALIGN_ERR => "an input mailbox is not aligned to 512 bytes",
        DeliveryStatus::FW_ERR => "internal error of the firmware",
        DeliveryStatus::IN_LENGTH_ERR => "the input length does not fit the command",
        DeliveryStatus::OUT_LENGTH_ERR => "the output length does not fit the command",
        DeliveryStatus::RES_FLD_NOT_CLR_ERR => "a reserved field is not zero",
        DeliveryStatus::CMD_DESCR_ERR => "the command queue entry is malformed",
        _ => "a status that the interface does not define",
    }
}

fn status_reason(status: CmdStatus) -> &'static str {
    match status {
        CmdStatus::INT_ERR => "internal error of the device",
        CmdStatus::BAD_OP_ERR => "the opcode or op_mod is not supported",
        CmdStatus::BAD_PARAM_ERR => "a parameter is invalid, or the object is in the wrong state for it",
        CmdStatus::BAD_SYS_STATE_ERR => "the device was not initialised or is going down",
        CmdStatus::BAD_RES_ERR => "the object does not exist",
        CmdStatus::RES_BUSY => "the object is in use",
        CmdStatus::LIM_ERR => "a limit of the device is exceeded",
        CmdStatus::BAD_RES_STATE_ERR => "the object is in the wrong state",
        CmdStatus::IX_ERR => "an index is out of range",
        CmdStatus::NO_RES_ERR => "the device has no resources left",
        CmdStatus::BAD_QP_STATE_ERR => "the queue pair is in the wrong state",
        CmdStatus::BAD_PKT_ERR => "the packet (MAD) is malformed",
        CmdStatus::BAD_SIZE_OUTS_CQES_ERR => "the new queue is too small for outstanding completions",
        CmdStatus::BAD_INP_LEN_ERR => "the input length is wrong",
        CmdStatus::BAD_OUTP_LEN_ERR => "the output length is wrong",
        _ => "a status that the interface does not define",
    }
}
