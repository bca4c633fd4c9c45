//! Text of other devices, which looks much like ours: refused, with the reason.

use super::{
    Hit,
    view::{View, bare, caught, hex, number, pattern},
};
use crate::{
    facts::{wc_by_text, wc_of_syndrome},
    record::Record,
    text::Window,
};
use mlx5_direct::cqe::CqeSyndrome;
use serde_json::{Map, Value, json};

pub(super) const KEYWORDS: &[&str] = &[
    "WQE @",
    "WQE index",
    "mlx4",
    "mthca",
    "rxe",
    "bnxt_re",
    "irdma",
    "efa_",
    "rdmap",
    "hfi1",
    "erdma",
    "qedr",
    "hns_roce",
    "siw",
    "ionic",
    "i40iw",
    "cxgb4",
    "mcxnex",
];

/// How many lines behind a dump's head belong to it.
const SIGHT: usize = 14;

pub(super) fn read(window: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    dump(window, view, from).or_else(|| named(view, from))
}

/// libmthca's and libmlx4's failed completions.
fn dump(window: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    let pattern = pattern!(
        r"(?P<text>[A-Za-z][A-Za-z ]*?(?: err| error| violation)) ?\(QPN (?P<qpn>[0-9a-f]+), WQE (?:@ (?P<wqe>[0-9a-f]+), CQN (?P<cqn>[0-9a-f]+), index (?P<index>\d+)|index (?P<wqe_index>[0-9a-f]+), vendor syndrome (?P<vend>[0-9a-f]+), opcode = (?P<opcode>[0-9a-f]+))\)"
    );
    let captures = pattern.captures(view.text.get(from..)?)?;
    let whole = captures.get(0)?;
    let qpn = hex(caught(&captures, "qpn")?)?;
    let mut fields = Map::new();
    fields.insert("accepted_as_mlx5".into(), json!(false));
    let is_mthca = captures.name("wqe").is_some();
    let layout = if is_mthca { "32-byte mthca error CQE" } else { "32-byte mlx4 error CQE" };
    fields.insert("layout".into(), json!(layout));
    fields.insert("qpn".into(), json!(format!("0x{qpn:x}")));
    let mut lines = view.lines_of(&(from + whole.start()..from + whole.end()));
    let dwords = rows(window, &mut lines, qpn);
    let text = caught(&captures, "text")?.to_owned();
    let text = text.strip_suffix(" err").map_or(text.clone(), |text| format!("{text} error"));
    let from_text = wc_by_text(&text).and_then(|status| status.syndrome);
    let syndrome = dwords.get(&0x10).map(|dword| CqeSyndrome((dword >> 24) as u8)).or(from_text);
    if let Some(syndrome) = syndrome {
        fields.insert("syndrome".into(), json!(format!("0x{:02x}", syndrome.0)));
        fields.insert("syndrome_name".into(), json!(wc_of_syndrome(syndrome).text));
    }
    if let Some(dword) = dwords.get(&0x10) {
        fields.insert("vendor_err".into(), json!(format!("0x{:02x}", dword >> 16 & 0xff)));
        fields.insert("db_count".into(), json!(format!("0x{:x}", dword & 0xffff)));
    } else if let Some(vendor) = caught(&captures, "vend") {
        fields.insert("vendor_err".into(), json!(format!("0x{vendor}")));
    }
    if let Some(wqe) = caught(&captures, "wqe").or_else(|| caught(&captures, "wqe_index")) {
        fields.insert("wqe".into(), json!(format!("0x{wqe}")));
    }
    if let Some(dword) = dwords.get(&0x1c) {
        fields.insert("opcode".into(), json!(format!("0x{:02x}", dword >> 24)));
    } else if let Some(opcode) = caught(&captures, "opcode") {
        fields.insert("opcode".into(), json!(format!("0x{opcode}")));
    }
    let why = match (is_mthca, dwords.is_empty()) {
        (true, false) => {
            "rows are addressed [ 0]..[1c]: 32 bytes, not 64; the text names CQN and WQE @; libmthca format"
        }
        (true, true) => "the text names CQN and WQE @; libmthca format",
        (false, _) => {
            "the text names WQE index, vendor syndrome and opcode in one bracket; libmlx4 format, whose CQE has 32 bytes"
        }
    };
    fields.insert("why".into(), json!(why));
    let mut record = refused(fields, why);
    record.says = format!("Not mlx5: {layout}, {text} on QP 0x{qpn:x}.");
    let (start, end) = (from + whole.start(), from + whole.end());
    Some(Hit { start, end, lines, record })
}

/// Rows `[10] 02702711` behind the head, by their offsets, and lines that name the same queue pair.
fn rows(window: &Window<'_>, lines: &mut Vec<usize>, qpn: u64) -> std::collections::BTreeMap<u32, u32> {
    let row = pattern!(r"\[ ?(?P<at>[0-9a-f]{1,2})\] (?P<dword>[0-9a-f]{8})\b");
    let dword = |captures: &regex::Captures<'_>| {
        let part = |name| caught(captures, name).and_then(hex).and_then(|part| u32::try_from(part).ok());
        Some((part("at")?, part("dword")?))
    };
    let queue = pattern!(r"qpn? 0x(?P<qpn>[0-9a-f]+)");
    let mut dwords = std::collections::BTreeMap::new();
    let Some(&last) = lines.last() else { return dwords };
    for (place, line) in window.lines.iter().enumerate().skip(last).take(SIGHT) {
        let text = bare(&line.text);
        let before = dwords.len();
        dwords.extend(row.captures_iter(text).filter_map(|captures| dword(&captures)));
        if dwords.len() > before {
            lines.extend((place > last).then_some(place));
        } else if place > last
            && queue.captures(text).and_then(|captures| hex(caught(&captures, "qpn")?)) == Some(qpn)
        {
            lines.push(place);
        }
    }
    dwords
}

/// A line about errors that names a device or driver of others, and none of ours.
fn named(view: &View, from: usize) -> Option<Hit> {
    let driver = pattern!(
        r"(?i)\b(?P<who>mlx4_(?:core|ib|en|\d+)|libmlx4|ib_mthca|mthca\w*|rdma_rxe|rxe_?\d*|rxe_\w+|bnxt_re\w*|i?rdma_?rxe|irdma\w*|i40iw\w*|efa_\d+|rdmap\w+|hfi1\w*|erdma\w*|qedr\w*|hns_roce\w*|siw\w*|ionic\w*|cxgb4\w*|mcxnex\d*)\b"
    );
    let text = view.text.get(from..)?;
    let captures = driver.captures(text)?;
    let whole = captures.get(0)?;
    let line = view.line_around(from + whole.start());
    let is_error = pattern!(r"(?i)error|err\b|fail|status|syndrome|cqe\b|timed? ?out|flush|retry");
    if from != 0 || !is_error.is_match(line) || pattern!(r"(?i)mlx5").is_match(line) {
        return None;
    }
    let who = caught(&captures, "who")?.to_ascii_lowercase();
    let family = FAMILIES
        .iter()
        .find(|(prefix, _)| who.starts_with(prefix))
        .map_or("another vendor's device", |(_, family)| *family);
    let why = format!("the line names {who}: {family}, not mlx5; its numbers have other tables");
    let mut fields = Map::new();
    fields.insert("accepted_as_mlx5".into(), json!(false));
    fields.insert("device_family".into(), json!(family));
    fields.insert("why".into(), json!(why));
    let status = pattern!(r"(?i)status[ :=]+\(?(?P<n>\d{1,2})\)?\b")
        .captures(line)
        .and_then(|captures| number(caught(&captures, "n")?));
    if let Some(status) = status {
        fields.insert("status_as_printed".into(), json!(status));
    }
    let mut record = refused(fields, &why);
    record.says = format!("Not mlx5: {why}.");
    Some(Hit { start: from, end: view.first_end(), lines: vec![view.line_of(from + whole.start())], record })
}

const FAMILIES: &[(&str, &str)] = &[
    ("mlx4", "a ConnectX-2 or -3 (mlx4)"),
    ("libmlx4", "a ConnectX-2 or -3 (mlx4)"),
    ("ib_mthca", "an InfiniHost (mthca)"),
    ("mthca", "an InfiniHost (mthca)"),
    ("rxe", "software RoCE (rxe)"),
    ("rdma_rxe", "software RoCE (rxe)"),
    ("bnxt_re", "Broadcom NetXtreme-E"),
    ("irdma", "Intel E810 or X722"),
    ("i40iw", "Intel X722"),
    ("efa", "Amazon EFA"),
    ("rdmap", "Amazon EFA"),
    ("hfi1", "Omni-Path"),
    ("erdma", "Alibaba eRDMA"),
    ("qedr", "Marvell FastLinQ"),
    ("hns_roce", "HiSilicon RoCE"),
    ("siw", "software iWARP"),
    ("ionic", "AMD Pensando"),
    ("cxgb4", "Chelsio T4 or later"),
    ("mcxnex", "a ConnectX of Solaris' driver (mcxnex, before mlx5)"),
];

fn refused(fields: Map<String, Value>, why: &str) -> Record {
    let mut record = Record::new("not mlx5", 0..=0);
    record.parts = fields;
    record.refused = Some(why.to_owned());
    record
}
