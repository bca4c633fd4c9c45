//! Refused calls of DevX: through libmlx5, as UCX reports them, and through DPDK.

use super::{
    Hit,
    rejected::Rejected,
    view::{View, caught, hex, pattern},
};
use crate::{
    facts::{Cause, command_status_text, firmware_syndrome},
    record::Record,
    text::Window,
};
use mlx5_direct::mlx5::cmd::{CmdOpcode, CmdStatus};
use serde_json::json;

pub(super) const KEYWORDS: &[&str] = &["mlx5dv_", "DevX"];

pub(super) fn read(window: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    call(window, view, from).or_else(|| dpdk(view, from))
}

/// `mlx5dv_devx_obj_create(QP) failed on mlx5_0, syndrome 0x2c4154: Remote I/O error`, and others of UCX.
fn call(_: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    let pattern = pattern!(
        r"(?P<call>mlx5dv_\w+)\((?P<arg>[^()\n]*)\) failed(?: on (?P<dev>[\w.\-]+))?(?:,? syndrome 0x(?P<synd>[0-9a-f]+))?(?:: (?P<errno>Remote I/O error|Input/output error|Cannot allocate memory|Operation not (?:supported|permitted)|Invalid argument|No such (?:device|file or directory)|Device or resource busy|Bad address|Connection timed out|No space left on device|Protocol not supported|Function not implemented|Permission denied|Success|[A-Z][A-Za-z/]*(?:[ \t][A-Za-z/]+)*))?"
    );
    let text = view.text.get(from..)?;
    let captures = pattern.captures(text)?;
    let whole = captures.get(0)?;
    let syndrome = caught(&captures, "synd").and_then(hex).and_then(|syndrome| u32::try_from(syndrome).ok());
    let errno =
        caught(&captures, "errno").map(|errno| errno.split_whitespace().collect::<Vec<_>>().join(" "));
    let errno = errno.as_deref();
    let name = caught(&captures, "call")?;
    let argument = caught(&captures, "arg")?;
    let mut record = Record::new("DevX call", 0..=0);
    let hex_of = syndrome.map(|syndrome| format!("0x{syndrome:x}"));
    record.push(
        "commands",
        json!({ "call": name, "arg": argument, "fw_syndrome": hex_of, "errno_text": errno }),
    );
    let mut says = format!("The call {name}({argument}) failed");
    if let Some(errno) = errno {
        says += &format!(": {errno}");
    }
    if let Some(syndrome) = syndrome {
        says += &format!(", firmware syndrome 0x{syndrome:x}");
        match firmware_syndrome(syndrome, command_of(name, argument)) {
            Some(known) => record.causes.push(Cause { text: known.cause, source: known.source }),
            None => says += ", of which nothing is public",
        }
        record.check.push(
            "dmesg: the kernel names the command of a refused DevX call only at debug level".to_owned(),
        );
    }
    record.says = says + ".";
    if errno == Some("Remote I/O error") {
        record.corrections.push(
            "'Remote I/O error' is EREMOTEIO: firmware refused the command; it has nothing to do with the network".to_owned(),
        );
    }
    if name == "mlx5dv_devx_alloc_uar" && errno == Some("Operation not supported") {
        record.causes.push(Cause {
            text: "no write-combining mapping here (some Arm machines and VMs), so no BlueFlame UAR; UCX falls back to a non-cached UAR since pull 6082",
            source: "openucx/ucx 6223",
        });
        record.corrections.push("an 'Out of memory' that follows is a wrong translation of this".to_owned());
    }
    let end =
        from + captures.name("errno").map_or(whole.end(), |found| found.start() + errno.map_or(0, str::len));
    let start = from + whole.start();
    Some(Hit { start, end, lines: view.lines_of(&(start..end)), record })
}

/// The command behind a call, where its argument tells.
fn command_of(call: &str, argument: &str) -> Option<CmdOpcode> {
    let named = |prefix: &str| {
        let name = format!("{prefix}_{}", argument.to_ascii_uppercase());
        crate::facts::command_by_name(&name)
    };
    match call {
        "mlx5dv_devx_obj_create" => named("CREATE").or_else(|| named("ALLOC")),
        "mlx5dv_devx_alloc_uar" => Some(CmdOpcode::ALLOC_UAR),
        "mlx5dv_devx_qp_modify" | "mlx5dv_devx_obj_modify" => {
            let name = argument.to_ascii_uppercase();
            crate::facts::command_by_name(&name)
                .or_else(|| crate::facts::command_by_name(&format!("{name}_QP")))
        }
        _ => None,
    }
}

/// DPDK's `DevX create QP failed, errno=121 status=0x3 syndrome=0x4bb88f`, older ones without equals signs.
fn dpdk(view: &View, from: usize) -> Option<Hit> {
    let pattern = pattern!(
        r"(?P<what>DevX [^\n:,]{0,80}?|[Ff]ailed to [^\n:,]{0,60} DevX[^\n:,]{0,40}?),? (?:failed,? )?errno[= ](?P<errno>-?\d+),? status[= ](?:0x)?(?P<status>[0-9a-f]+),? syndrome[= ](?:0x)?(?P<synd>[0-9a-f]+)"
    );
    let text = view.text.get(from..)?;
    let captures = pattern.captures(text)?;
    let whole = captures.get(0)?;
    let status = caught(&captures, "status").and_then(hex).and_then(|status| u8::try_from(status).ok());
    let rejected = Rejected {
        status,
        status_text: status.map(|status| command_status_text(CmdStatus(status)).to_owned()),
        syndrome: caught(&captures, "synd").and_then(hex).and_then(|syndrome| u32::try_from(syndrome).ok()),
        err: caught(&captures, "errno").map(str::to_owned),
        ..Rejected::default()
    };
    let mut fields = rejected.fields();
    fields["call"] = json!(caught(&captures, "what").map(str::trim));
    let mut record = Record::new("DevX call", 0..=0);
    record.push("commands", fields);
    rejected.explain(&mut record);
    let (start, end) = (from + whole.start(), from + whole.end());
    Some(Hit { start, end, lines: view.lines_of(&(start..end)), record })
}
