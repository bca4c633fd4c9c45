//! What all refused commands have in common.

use crate::{
    facts::{Cause, command_by_name, firmware_syndrome},
    record::Record,
};
use mlx5_direct::mlx5::cmd::{CmdOpcode, CmdStatus};
use serde_json::{Value, json};

/// A refused command as its text tells it.
#[derive(Debug, Clone, Default)]
pub(super) struct Rejected {
    pub(super) command: Option<String>,
    pub(super) opcode: Option<u16>,
    pub(super) op_mod: Option<u16>,
    pub(super) status: Option<u8>,
    pub(super) status_text: Option<String>,
    pub(super) syndrome: Option<u32>,
    pub(super) err: Option<String>,
}

impl Rejected {
    pub(super) fn fields(&self) -> Value {
        let hex = |number: Option<u32>| number.map(|number| format!("0x{number:x}"));
        json!({
            "command": self.command,
            "opcode": hex(self.opcode.map(u32::from)),
            "op_mod": hex(self.op_mod.map(u32::from)),
            "status": hex(self.status.map(u32::from)),
            "status_name": self.status_text,
            "fw_syndrome": hex(self.syndrome),
            "err": self.err,
        })
    }

    /// The command, by number or by name.
    fn known(&self) -> Option<CmdOpcode> {
        self.opcode.map(CmdOpcode).or_else(|| command_by_name(self.command.as_deref()?))
    }

    /// Tells a record what the refusal means.
    pub(super) fn explain(&self, record: &mut Record) {
        let name = self.command.clone().or_else(|| Some(self.known()?.name()?.to_owned()));
        let name = name.unwrap_or_else(|| "a command".to_owned());
        let mut says = format!("Firmware refused {name}");
        if let Some(status) = &self.status_text {
            says += &format!(": {status}");
        }
        if let Some(number) = self.status {
            says += &format!(" (command status 0x{number:x})");
        }
        if let Some(syndrome) = self.syndrome {
            says += &format!(", firmware syndrome 0x{syndrome:x}");
            match firmware_syndrome(syndrome, self.known()) {
                Some(known) => {
                    record.causes.push(Cause { text: known.cause, source: known.source });
                    says += &format!(", for which a public report says: {}", known.cause);
                }
                None => {
                    says += ", of which nothing is public";
                    if let Some(other) = firmware_syndrome(syndrome, None) {
                        record.corrections.push(format!(
                            "0x{syndrome:x} is public for {} ({}): another command's syndrome is another matter",
                            other.command, other.cause
                        ));
                    }
                    record.check.push(
                        "the vendor's support, with firmware version and syndrome: the lists are not published".to_owned(),
                    );
                }
            }
        }
        record.says = says + ".";
        if let Some(status) = self.status {
            record.check.extend(check_of(CmdStatus(status)).map(str::to_owned));
        }
    }
}

/// What to look at after a status.
fn check_of(status: CmdStatus) -> Option<&'static str> {
    Some(match status {
        CmdStatus::BAD_PARAM_ERR => {
            "fields of the request against the device's capabilities (mlx5 info; devlink dev info)"
        }
        CmdStatus::BAD_RES_STATE_ERR | CmdStatus::RES_BUSY => {
            "what still uses the object, and what was destroyed before it"
        }
        CmdStatus::LIM_ERR | CmdStatus::NO_RES_ERR => {
            "who uses the resource (rdma resource show); right after a start it is what a crashed run left"
        }
        CmdStatus::BAD_RES_ERR | CmdStatus::IX_ERR => "whether the object named still exists",
        CmdStatus::BAD_SYS_STATE_ERR | CmdStatus::INT_ERR => "health lines before this one",
        CmdStatus::BAD_OP_ERR => "firmware version: the command may be newer than it",
        CmdStatus::BAD_QP_STATE_ERR => "the queue's state before the transition",
        _ => return None,
    })
}
