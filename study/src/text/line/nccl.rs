//! NCCL's and RCCL's completions with error, asynchronous events among them.
//!
//! The vendor syndrome is decimal in every version. `opcode` and `len` are memory that a failed completion does not
//! set.

use super::{
    Hit,
    completion::Failed,
    view::{View, caught, number, pattern},
};
use crate::{
    facts::{Wc, wc_by_number},
    record::Record,
    text::Window,
};
use serde_json::{Value, json};

pub(super) const KEYWORDS: &[&str] = &["Got completion", "NET/IB"];

/// What of a failed completion means nothing.
const STALE: &str = "on a failed completion only wr_id, status, qp_num and vendor_err of ibv_wc are defined; opcode and byte_len are stale memory";

pub(super) fn read(_: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    // 2.4 to 2.19: "with error 12, opcode 0, len 0, vendor err 129"; 2.20: "status=12 opcode=0 …"; 2.28:
    // "status=RETRY_EXC_ERR(12) opcode=SEND(0) vendor_err=129"; resilience: "wc->status=(TEXT)12".
    let head = pattern!(
        r"Got completion (?:from peer (?P<peer>[^\s]+(?:<\d+>)?) )?with (?:error \((?:devIndex=\d+, )?wc->status=\((?P<t1>[^()\n]*)\)(?P<n1>\d+)|error (?P<n2>\d+)|status[= ](?P<t3>[\w ]*)\((?P<n3>\d+)\)|status[= ](?P<n4>\d+))"
    );
    let text = view.text.get(from..)?;
    let captures = head.captures(text)?;
    let whole = captures.get(0)?;
    let status = ["n1", "n2", "n3", "n4"].iter().find_map(|name| caught(&captures, name)).and_then(number)?;
    let status = wc_by_number(u32::try_from(status).ok()?)?;
    if status.number == 0 {
        return None;
    }
    let rest = &text[whole.end()..];
    if let Some((record, len)) = mvapich(status, rest) {
        let (start, end) = (from + whole.start(), from + whole.end() + len);
        return Some(Hit { start, end, lines: view.lines_of(&(start..end)), record });
    }
    let opcode = pattern!(
        r"^,? (?:wc->)?opcode[= ](?:\((?P<t>[^()\n]*)\)(?P<n1>-?\d+)|(?P<t2>\w+)\((?P<n2>-?\d+)\)|(?P<n3>-?\d+))"
    );
    let (mut end, mut opcode_printed) = (0, None);
    if let Some(captures) = opcode.captures(rest) {
        opcode_printed =
            ["n1", "n2", "n3"].iter().find_map(|name| caught(&captures, name)).and_then(|n| n.parse().ok());
        end = captures.get(0)?.end();
    }
    let mut field = |pattern: &regex::Regex| -> Option<String> {
        let captures = pattern.captures(&rest[end..])?;
        let value = captures.name("v")?.as_str().to_owned();
        end += captures.get(0)?.end();
        Some(value)
    };
    let len: Option<i64> =
        field(pattern!(r"^,? (?:len|reqSize)[= ](?P<v>-?\d+)")).and_then(|len| len.parse().ok());
    let vendor =
        field(pattern!(r"^,? vendor[ _]err[= ](?P<v>\d+)")).and_then(|vendor| vendor.parse::<u8>().ok());
    let side = field(pattern!(r"^ (?:req_type=)?\(?(?P<v>Send|Recv|Flush|Unused|Unknown|GIN[\w ]*)\)?"));
    let local = field(pattern!(r"^ localGid (?P<v>[0-9a-fA-F:.]+)"));
    let remote = field(pattern!(r"^ remoteGids\s*(?P<v>[0-9a-fA-F:.]+)"));
    let hca = field(pattern!(r"^ hca (?P<v>[\w.\-]+)"));
    let ids = field(pattern!(r"^, wc->wr_id=-?\d+, wc->qp_num=(?P<v>\d+)"));
    let failed = Failed::of_status(status, vendor);
    let mut completion = failed.as_wc();
    for (name, value) in [("side", side), ("local_gid", local), ("remote_gid", remote), ("hca", hca)] {
        if let Some(value) = value {
            completion.insert(name.into(), json!(value));
        }
    }
    let qpn = ids.and_then(|qpn| qpn.parse::<u64>().ok());
    if let Some(qpn) = qpn {
        completion.insert("qpn".into(), json!(format!("0x{qpn:x}")));
    }
    let peer = caught(&captures, "peer").map(str::to_owned);
    if let Some(peer) = &peer {
        completion.insert("peer".into(), json!(peer));
    }
    if opcode_printed.is_some() || len.is_some() {
        let opcode: Option<i64> = opcode_printed;
        completion.insert("opcode_as_printed".into(), json!(opcode));
        completion.insert("len_as_printed".into(), json!(len));
        completion.insert("opcode_len_valid".into(), json!(false));
        completion.insert("why".into(), json!(STALE));
    }
    let mut record = Record::new("NCCL completion", 0..=0);
    record.push("completion", Value::Object(completion));
    let who = peer
        .as_ref()
        .map_or("A request of NCCL".to_owned(), |peer| format!("A request of NCCL with peer {peer}"));
    failed.explain(&mut record, &who, qpn.map(|qpn| format!("0x{qpn:x}")).or(peer));
    record.corrections.push("opcode and len of this line mean nothing; vendor err is decimal".to_owned());
    record
        .check
        .push("NCCL_DEBUG=INFO of all ranks: the first rank that fails, and whether it died".to_owned());
    let (start, end) = (from + whole.start(), from + whole.end() + end);
    Some(Hit { start, end, lines: view.lines_of(&(start..end)), record })
}

/// MVAPICH begins with the same words, and goes on with a vendor syndrome and the rank of the peer: the record, and how
/// much of `rest` it is.
fn mvapich(status: &'static Wc, rest: &str) -> Option<(Record, usize)> {
    let captures =
        pattern!(r"^, vendor code=(?P<v>0x[0-9a-f]+)(?:, dest rank=(?P<rank>\d+))?").captures(rest)?;
    let vendor = caught(&captures, "v").and_then(number).and_then(|code| u8::try_from(code).ok());
    let failed = Failed::of_status(status, vendor);
    let rank = caught(&captures, "rank");
    let mut completion = failed.as_wc();
    completion.insert("peer_rank".into(), json!(rank.and_then(number)));
    let mut record = Record::new("MVAPICH completion", 0..=0);
    record.push("completion", Value::Object(completion));
    let to = rank.map_or(String::new(), |rank| format!(" to rank {rank}"));
    failed.explain(
        &mut record,
        &format!("A request of MVAPICH{to}"),
        rank.map(|rank| format!("rank {rank}")),
    );
    Some((record, captures.get_match().len()))
}
