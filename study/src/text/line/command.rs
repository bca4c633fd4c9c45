//! Refused commands, as kernels since 3.11, rdma-core's VFIO driver and FreeBSD print them.

use super::{
    Hit,
    rejected::Rejected,
    view::{View, caught, hex, pattern},
};
use crate::{facts::command_name, record::Record, text::Window};
use mlx5_direct::mlx5::cmd::CmdOpcode;

pub(super) const KEYWORDS: &[&str] =
    &["op_mod(", "failed, status", "mlx5_cmd_check", "mlx5_cmd_out_err", "mlx5_cmd_status_to_err"];

pub(super) fn read(_: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    // `mlx5_cmd_check` (4.x on, without err), `mlx5_cmd_out_err` (5.19 on), `mlx5_vfio_op_code(0x..), op_mod(..)`.
    let full = pattern!(
        r"(?P<name>unknown command opcode|[A-Za-z0-9][A-Za-z0-9_]*) ?\(0x(?P<opcode>[0-9a-f]+)\),? op_mod ?\(0x(?P<mod>[0-9a-f]+)\),? failed, status (?P<text>[A-Za-z][A-Za-z\s]{0,40}?(?:\(discarded\))?) ?\(0x(?P<status>[0-9a-f]+)\), syndrome \(0x(?P<synd>[0-9a-f]+)\)(?:, err ?\((?P<err>-?\d+)\))?"
    );
    // `mlx5_cmd_status_to_err` of 3.x: no command.
    let short = pattern!(
        r"command failed, status (?P<text>[A-Za-z][A-Za-z\s]{0,40}?(?:\(discarded\))?) ?\(0x(?P<status>[0-9a-f]+)\), syndrome (?:\(0x(?P<synd>[0-9a-f]+)\)|0x(?P<bare>[0-9a-f]+))"
    );
    let text = view.text.get(from..)?;
    let all = [full.captures(text), short.captures(text)].into_iter().flatten();
    let captures = all.min_by_key(|captures| captures.get(0).map(|whole| whole.start()))?;
    let whole = captures.get(0)?;
    let number = |name: &str| caught(&captures, name).and_then(hex);
    let opcode = number("opcode").and_then(|opcode| u16::try_from(opcode).ok());
    let printed = caught(&captures, "name")
        .filter(|name| !matches!(*name, "unknown command opcode" | "mlx5_vfio_op_code"));
    let rejected = Rejected {
        command: printed
            .map(str::to_ascii_uppercase)
            .or_else(|| Some(command_name(CmdOpcode(opcode?))?.to_owned())),
        opcode,
        op_mod: number("mod").and_then(|op_mod| u16::try_from(op_mod).ok()),
        status: number("status").and_then(|status| u8::try_from(status).ok()),
        status_text: caught(&captures, "text")
            .map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")),
        syndrome: number("synd").or_else(|| number("bare")).and_then(|syndrome| u32::try_from(syndrome).ok()),
        err: caught(&captures, "err").map(str::to_owned),
    };
    let mut record = Record::new("refused command", 0..=0);
    record.push("commands", rejected.fields());
    rejected.explain(&mut record);
    record
        .corrections
        .push("this syndrome is firmware's own, of 24 bits: no table of CQE syndromes has it".to_owned());
    let (start, end) = (from + whole.start(), from + whole.end());
    Some(Hit { start, end, lines: view.lines_of(&(start..end)), record })
}
