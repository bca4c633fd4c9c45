//! UCX's lines of failed completions of verbs, and of asynchronous events.

use super::{
    Hit,
    completion::Failed,
    view::{View, caught, hex, pattern},
    wc_fields::status_at,
};
use crate::{record::Record, text::Window};
use serde_json::{Value, json};

pub(super) const KEYWORDS: &[&str] = &["ompletion with error", "with error on"];

pub(super) fn read(_: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    // 2015 on: "Send completion with error: TEXT"; 2017: "… on qp 0x..: TEXT syndrome 0x..", where the syndrome is the
    // vendor's; 2019: "…: TEXT qpn 0x.. wrid 0x.. vendor_err 0x.."; 2021: "[qpn … wrid …vendor_err …]" and, on a new
    // line, the peer. Other transports: "send completion[0] with error on mlx5_0/0x..: TEXT, vendor_err 0x.. wr_id 0x..".
    let head = pattern!(
        r"(?P<side>[Ss]end|[Rr]eceive|[Rr]ecv|[Tt]x|[Rr]x) completion(?:\[\d+\])? with error(?: on (?:qp 0x(?P<qp>[0-9a-f]+)|XRQ|(?P<dev>[\w.\-]+)/0x[0-9a-f]+))?: (?P<text>[A-Za-z][A-Za-z ]*)"
    );
    let text = view.text.get(from..)?;
    let captures = head.captures(text)?;
    let whole = captures.get(0)?;
    let words = captures.name("text")?;
    let (status, len) = status_at(words.as_str())?;
    let mut end = words.start() + len;
    let rest = &text[end..];
    let mut qpn = caught(&captures, "qp").map(|qpn| format!("0x{qpn}"));
    let (mut vendor, mut wr_id) = (None, None);
    let fields = pattern!(
        r"^,?(?: \[?qpn 0x(?P<qpn>[0-9a-f]+))?(?: wrid 0x(?P<wr1>[0-9a-f]+))?\s*(?: ?(?:syndrome|vendor_err) ?0x(?P<vend>[0-9a-f]+))?(?: wr_id 0x(?P<wr2>[0-9a-f]+))?\]?"
    );
    // `wrid 0x%lxvendor_err 0x%x` (2021 to 2023) has no blank: the hexadecimal digits end at the `v`.
    if let Some(captures) = fields.captures(rest) {
        vendor = caught(&captures, "vend").and_then(hex).and_then(|vendor| u8::try_from(vendor).ok());
        wr_id =
            caught(&captures, "wr1").or_else(|| caught(&captures, "wr2")).map(|wr_id| format!("0x{wr_id}"));
        qpn = caught(&captures, "qpn").map(|qpn| format!("0x{qpn}")).or(qpn);
        end += captures.get(0)?.end();
    }
    let failed = Failed::of_status(status, vendor);
    let mut completion = failed.as_wc();
    completion.insert("side".into(), json!(caught(&captures, "side")));
    for (name, value) in
        [("qpn", qpn.clone()), ("wr_id", wr_id), ("device", caught(&captures, "dev").map(str::to_owned))]
    {
        if let Some(value) = value {
            completion.insert(name.into(), json!(value));
        }
    }
    let mut record = Record::new("UCX verbs completion", 0..=0);
    if let Some(captures) =
        pattern!(r"^ \[rqpn (?P<rqpn>0x[0-9a-f]+) dlid=(?P<lid>\d+)[^\]\n]*\]").captures(&text[end..])
    {
        completion.insert("peer".into(), json!({ "rqpn": caught(&captures, "rqpn"), "lid": caught(&captures, "lid").and_then(|lid| lid.parse::<u64>().ok()) }));
        end += captures.get(0)?.end();
    }
    record.push("completion", Value::Object(completion));
    failed.explain(&mut record, "A request of UCX", qpn);
    if rest.trim_start().starts_with("syndrome") {
        record.corrections.push("'syndrome' of this line is the vendor syndrome, not the CQE's".to_owned());
    }
    let (start, end) = (from + whole.start(), from + end);
    Some(Hit { start, end, lines: view.lines_of(&(start..end)), record })
}
