//! Commands and their statuses as the kernel prints them.

use mlx5_direct::mlx5::cmd::{CmdOpcode, CmdStatus};

/// The two commands whose names begin with a digit, which no Rust name can.
const DIGITS: [(CmdOpcode, &str); 2] = [(CmdOpcode::QP_2ERR, "2ERR_QP"), (CmdOpcode::QP_2RST, "2RST_QP")];

/// A command's name as the kernel prints it (`mlx5_command_str`).
pub fn command_name(opcode: CmdOpcode) -> Option<&'static str> {
    DIGITS.iter().find(|(digit, _)| *digit == opcode).map(|(_, name)| *name).or_else(|| opcode.name())
}

/// The command with a name that the kernel prints.
pub fn command_by_name(name: &str) -> Option<CmdOpcode> {
    if let Some((opcode, _)) = DIGITS.iter().find(|(_, digit)| *digit == name) {
        return Some(*opcode);
    }
    let bits = CmdOpcode::TABLE.1.iter().find(|(known, _)| *known == name)?.1;
    Some(CmdOpcode(u16::try_from(bits).ok()?))
}

/// Texts of the kernel's `cmd_status_str`.
const STATUS: [(CmdStatus, &str); 16] = [
    (CmdStatus::OK, "OK"),
    (CmdStatus::INT_ERR, "internal error"),
    (CmdStatus::BAD_OP_ERR, "bad operation"),
    (CmdStatus::BAD_PARAM_ERR, "bad parameter"),
    (CmdStatus::BAD_SYS_STATE_ERR, "bad system state"),
    (CmdStatus::BAD_RES_ERR, "bad resource"),
    (CmdStatus::RES_BUSY, "resource busy"),
    (CmdStatus::LIM_ERR, "limits exceeded"),
    (CmdStatus::BAD_RES_STATE_ERR, "bad resource state"),
    (CmdStatus::IX_ERR, "bad index"),
    (CmdStatus::NO_RES_ERR, "no resources"),
    (CmdStatus::BAD_INP_LEN_ERR, "bad input length"),
    (CmdStatus::BAD_OUTP_LEN_ERR, "bad output length"),
    (CmdStatus::BAD_QP_STATE_ERR, "bad QP state"),
    (CmdStatus::BAD_PKT_ERR, "bad packet (discarded)"),
    (CmdStatus::BAD_SIZE_OUTS_CQES_ERR, "bad size too many outstanding CQEs"),
];

/// A status as the kernel prints it.
pub fn command_status_text(status: CmdStatus) -> &'static str {
    STATUS.iter().find(|(known, _)| *known == status).map_or("unknown status", |(_, text)| text)
}

/// The status with a text that the kernel prints.
pub fn command_status_by_text(text: &str) -> Option<CmdStatus> {
    STATUS.iter().find(|(_, known)| *known == text).map(|(status, _)| *status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_statuses_go_both_ways() {
        for (_, bits) in CmdOpcode::TABLE.1 {
            let opcode = CmdOpcode(u16::try_from(*bits).unwrap());
            assert_eq!(command_by_name(command_name(opcode).unwrap()), Some(opcode));
        }
        for (_, bits) in CmdStatus::TABLE.1 {
            let status = CmdStatus(u8::try_from(*bits).unwrap());
            assert_eq!(command_status_by_text(command_status_text(status)), Some(status));
        }
    }
}
