//! The line above a dump, which says what was dumped.

use crate::structure::Direction;
use mlx5_direct::mlx5::cmd::CmdOpcode;
use regex::{Captures, Regex};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// What a line says of the dump below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Header {
    /// libmlx5's `got completion with error`.
    Libmlx5,
    /// The kernel's `dump error cqe` or `WC error: 4, Message: …`, with the status if it tells it.
    Kernel {
        /// `enum ib_wc_status`.
        wc_status: Option<u8>,
    },
    /// mlx5e's `Error cqe on cqn …`, with all its numbers.
    Mlx5e(Mlx5e),
    /// mlx5e's `WQE DUMP: WQ size …`.
    WqeDump(WqeDump),
    /// The kernel's `dump command CREATE_CQ(0x400) INPUT`.
    Command(CommandDump),
    /// DPDK's `MLX5 Error CQE: at [0x…], len=64`.
    Dpdk {
        /// `CQE`, `SQ`, `RQ`.
        what: String,
        /// Bytes of the dump.
        len_bytes: usize,
    },
}

/// The kernel's line above a command, where its debug messages are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CommandDump {
    pub(super) opcode: CmdOpcode,
    pub(super) direction: Direction,
    /// Whether it is the command's own bytes, without slot and mailboxes.
    pub(super) has_data_only: bool,
}

/// The numbers of mlx5e's line about an error CQE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mlx5e {
    pub(super) cqn: u32,
    pub(super) cq_ci: u32,
    pub(super) qn: u32,
    /// Whether it goes on in the next line.
    pub(super) is_wrapped: bool,
}

/// The numbers of mlx5e's line above a WQE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WqeDump {
    pub(super) wq_size_wqebbs: u32,
    pub(super) wq_cur_size: u32,
    pub(super) wqe_index: u32,
    pub(super) len_bytes: usize,
}

static HEADER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        r"(?<libmlx5>got completion with error:?)",
        r"|(?<kernel>dump error cqe|WC error: (?<wc>\d+), [Mm]essage:)",
        r"|(?<mlx5e>rror cqe on cqn 0x)",
        r"|(?<wqe>WQE DUMP: WQ size (?<size>\d+),? WQ cur size (?<cur>\d+), WQE index (?<index>0x[0-9a-f]+|\d+), len: ?(?<len>\d+))",
        r"|dump command (?<data>data )?[A-Z0-9_]+\((?<opcode>0x[0-9a-f]+)\) (?<direction>INPUT|OUTPUT)",
        r"|MLX5 Error (?<dpdk>CQE|SQ|RQ|WQE|[A-Z]+): at \[0x[0-9a-fA-F]+\], len=(?<dpdk_len>\d+)",
    ))
    .expect("a regular expression")
});

static MLX5E: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        r"rror cqe on cqn (?<cqn>0x[0-9a-f]+),\s*ci (?<ci>0x[0-9a-f]+),\s*[a-zA-Z-]*qn (?<qn>0x[0-9a-f]+),",
        r"\s*opcode (?:0x[0-9a-f]+),\s*syndrome\s+(?:0x[0-9a-f]+),\s*vendor\s+syndrome\s+(?:0x[0-9a-f]+)",
    ))
    .expect("a regular expression")
});

/// Whether a dump is announced.
pub(in crate::text) fn is_header(line: &str) -> bool {
    HEADER.is_match(line)
}

/// What `line` announces. `next` is the line below, into which a mail program may have wrapped it.
pub(super) fn parse(line: &str, next: Option<&str>) -> Option<Header> {
    let found = HEADER.captures(line)?;
    if found.name("libmlx5").is_some() {
        return Some(Header::Libmlx5);
    }
    if found.name("kernel").is_some() {
        return Some(Header::Kernel { wc_status: number(&found, "wc").and_then(|n| u8::try_from(n).ok()) });
    }
    if found.name("mlx5e").is_some() {
        let wrapped = || {
            let next = next?.trim_start_matches(['>', ' ', '\t', '|']);
            mlx5e(&format!("{line} {next}"), true)
        };
        return mlx5e(line, false).or_else(wrapped).map(Header::Mlx5e);
    }
    if found.name("wqe").is_some() {
        return Some(Header::WqeDump(WqeDump {
            wq_size_wqebbs: number(&found, "size")?,
            wq_cur_size: number(&found, "cur")?,
            wqe_index: number(&found, "index")?,
            len_bytes: number(&found, "len")? as usize,
        }));
    }
    if let Some(direction) = found.name("direction") {
        let is_input = direction.as_str() == "INPUT";
        return Some(Header::Command(CommandDump {
            opcode: CmdOpcode(u16::try_from(number(&found, "opcode")?).ok()?),
            direction: if is_input { Direction::Input } else { Direction::Output },
            has_data_only: found.name("data").is_some(),
        }));
    }
    let what = found.name("dpdk")?.as_str().to_owned();
    Some(Header::Dpdk { what, len_bytes: number(&found, "dpdk_len")? as usize })
}

fn mlx5e(text: &str, is_wrapped: bool) -> Option<Mlx5e> {
    let found = MLX5E.captures(text)?;
    Some(Mlx5e {
        cqn: number(&found, "cqn")?,
        cq_ci: number(&found, "ci")?,
        qn: number(&found, "qn")?,
        is_wrapped,
    })
}

/// A number, hexadecimal if it begins with `0x`.
fn number(found: &Captures<'_>, name: &str) -> Option<u32> {
    let text = found.name(name)?.as_str();
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl Mlx5e {
    /// As `--json` has it.
    pub(super) fn to_json(&self) -> Map<String, Value> {
        let mut line = Map::new();
        for (name, number) in [("cqn", self.cqn), ("cq_ci", self.cq_ci), ("qn", self.qn)] {
            line.insert(name.into(), json!(format!("0x{number:x}")));
        }
        line
    }
}

impl WqeDump {
    /// As `--json` has it. The counter in a CQE runs on; the line's index is the place in the ring.
    pub(super) fn to_json(&self, wqe_counter: Option<u16>) -> Value {
        let mut header = json!({
            "wq_size_wqebb": self.wq_size_wqebbs,
            "wq_cur_size": self.wq_cur_size,
            "wqe_index": format!("0x{:x}", self.wqe_index),
            "len": self.len_bytes,
        });
        if let Some(counter) = wqe_counter {
            let size = self.wq_size_wqebbs.max(1);
            let slot = u32::from(counter) % size;
            let check = if slot == self.wqe_index { "=" } else { "is not" };
            header["check"] = json!(format!(
                "wqe_counter 0x{counter:x} mod {size} {check} WQE index 0x{:x}",
                self.wqe_index
            ));
        }
        header
    }
}
