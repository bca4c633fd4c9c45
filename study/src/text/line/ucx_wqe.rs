//! A WQE as UCX prints it behind a failure (`uct_ib_mlx5_wqe_dump`), or posts at trace level.

use super::view::{caught, number, pattern};
use regex::Captures;
use serde_json::{Map, Value, json};

/// The WQE that a text begins with, and where it ends.
pub(super) fn wqe_of(text: &str) -> Option<(Map<String, Value>, usize)> {
    let head = pattern!(
        r"^(?:[^\n]{0,160}?\s|\s*)??(?P<kind>DCI|DCT|RC|UD|UC|XRC|SRQ|unknown) QP 0x(?P<qpn>[0-9a-f]+) wqe\[(?P<wqe>\d+)\]:\s*"
    );
    let captures = head.captures(text)?;
    let mut fields = Map::new();
    let mut end = captures.get(0)?.end();
    let kind = caught(&captures, "kind")?;
    fields.insert("qp_type".into(), json!(kind));
    fields.insert("qpn".into(), json!(format!("0x{}", caught(&captures, "qpn")?)));
    fields.insert("wqe_counter".into(), json!(caught(&captures, "wqe").and_then(number)));
    let rest = &text[end..];
    if let Some(opcode) = pattern!(r"^(?P<op>[A-Z][A-Z_]*) (?P<s>[s\-])(?P<f>[f\-])(?P<e>[e\-])").captures(rest) {
        fields.insert("opcode".into(), json!(caught(&opcode, "op")));
        for (flag, letter) in [("signaled", "s"), ("fenced", "f"), ("solicited", "e")] {
            fields.insert(flag.into(), json!(caught(&opcode, letter).is_some_and(|shown| shown != "-")));
        }
        end += opcode.get(0)?.end();
    } else if let Some(opcode) = pattern!(r"^opcode (?P<op>[A-Z_]+)").captures(rest) {
        fields.insert("opcode".into(), json!(caught(&opcode, "op")));
        end += opcode.get(0)?.end();
    } else if let Some(receive) =
        pattern!(r"^next_wqe (?P<next>\d+) desc (?P<desc>\S+) (?P<free>[f\-])(?: strides (?P<strides>\d+) ptr_mask (?P<mask>-?\d+))?")
            .captures(rest)
    {
        fields.insert("next_wqe".into(), json!(caught(&receive, "next").and_then(number)));
        fields.insert("desc".into(), json!(caught(&receive, "desc")));
        fields.insert("free".into(), json!(caught(&receive, "free") == Some("f")));
        if let Some(strides) = caught(&receive, "strides") {
            fields.insert("strides".into(), json!(number(strides)));
        }
        end += receive.get(0)?.end();
    }
    end += brackets(&text[end..], &mut fields);
    Some((fields, end))
}

/// The `[…]` groups at a text's head. Returns where they end.
fn brackets(text: &str, fields: &mut Map<String, Value>) -> usize {
    let group = pattern!(r"^\s*[GS]?\[(?P<inside>[^\[\]]*)\]");
    let dma = pattern!(r"^\s*DMA\[(?P<inside>[^\[\]]*)\]");
    let (mut end, mut segments) = (0, Vec::new());
    loop {
        let rest = &text[end..];
        if let Some(captures) = dma.captures(rest) {
            fields.insert("dma".into(), Value::Object(pairs(caught(&captures, "inside").unwrap_or(""))));
            end += captures.get(0).map_or(rest.len(), |whole| whole.end());
            continue;
        }
        let Some(captures) = group.captures(rest) else { break };
        if !one(caught(&captures, "inside").unwrap_or(""), fields, &mut segments) {
            break;
        }
        end += captures.get(0).map_or(rest.len(), |whole| whole.end());
    }
    if !segments.is_empty() {
        fields.insert("segments".into(), Value::Array(segments));
    }
    end
}

/// What stands in one bracket. Returns whether it is of a WQE.
fn one(inside: &str, fields: &mut Map<String, Value>, segments: &mut Vec<Value>) -> bool {
    let of = |pattern: &regex::Regex| -> Option<Map<String, Value>> {
        let captures: Captures<'_> = pattern.captures(inside)?;
        let names = pattern.capture_names().flatten();
        Some(names.filter_map(|name| Some((name.to_owned(), json!(caught(&captures, name)?)))).collect())
    };
    if let Some(captures) = pattern!(r"^inl len (?P<len>-?\d+)$").captures(inside) {
        segments.push(json!({ "inline_len": caught(&captures, "len").and_then(number) }));
    } else if let Some(captures) =
        pattern!(r"^va (?P<va>0x[0-9a-f]+) len (?P<len>-?\d+) lkey (?P<lkey>0x[0-9a-f]+)$").captures(inside)
    {
        let len: Option<i64> = caught(&captures, "len").and_then(|len| len.parse().ok());
        segments.push(json!({ "va": caught(&captures, "va"), "len": len, "lkey": caught(&captures, "lkey") }));
    } else if let Some(captures) =
        pattern!(r"^byte_count (?P<len>\d+) lkey (?P<lkey>0x[0-9a-f]+) addr (?P<va>0x[0-9a-f]+)$").captures(inside)
    {
        let len = caught(&captures, "len").and_then(number);
        segments.push(json!({ "va": caught(&captures, "va"), "len": len, "lkey": caught(&captures, "lkey") }));
    } else if let Some(remote) = of(pattern!(r"^rva (?P<rva>0x[0-9a-f]+) rkey (?P<rkey>0x[0-9a-f]+)$")) {
        fields.insert("remote".into(), Value::Object(remote));
    } else if inside.starts_with("rqpn") {
        fields.insert("peer".into(), Value::Object(peer(inside)));
    } else if let Some(captures) = pattern!(r"^add (?P<add>-?\d+)$").captures(inside) {
        fields.insert("atomic".into(), json!({ "add": signed(&captures, "add") }));
    } else if let Some(captures) = pattern!(r"^cmp (?P<compare>-?\d+) swap (?P<swap>-?\d+)$").captures(inside) {
        fields.insert(
            "atomic".into(),
            json!({ "compare": signed(&captures, "compare"), "swap": signed(&captures, "swap") }),
        );
    } else if let Some(captures) =
        pattern!(r"^(?P<bits>\d+)bit add (?P<add>-?\d+)/(?P<boundary>0x[0-9a-f]+)$").captures(inside)
    {
        fields.insert(
            "atomic".into(),
            json!({ "bits": signed(&captures, "bits"), "add": signed(&captures, "add"), "boundary": caught(&captures, "boundary") }),
        );
    } else if let Some(captures) = pattern!(
        r"^(?P<bits>\d+) bit cmp (?P<compare>-?\d+)/(?P<compare_mask>0x[0-9a-f]+) swap (?P<swap>-?\d+)/(?P<swap_mask>0x[0-9a-f]+)$"
    )
    .captures(inside)
    {
        fields.insert(
            "atomic".into(),
            json!({
                "bits": signed(&captures, "bits"),
                "compare": signed(&captures, "compare"), "compare_mask": caught(&captures, "compare_mask"),
                "swap": signed(&captures, "swap"), "swap_mask": caught(&captures, "swap_mask"),
            }),
        );
    } else {
        return false;
    }
    true
}

fn signed(captures: &Captures<'_>, name: &str) -> Option<i64> {
    caught(captures, name)?.parse().ok()
}

/// Where the message goes: `rqpn 0x.. rlid 1 rmac .. sgix 0 dgid .. tc 0`, or `rqpn 0x.. dlid=1 sl=0 …`.
fn peer(inside: &str) -> Map<String, Value> {
    let mut peer = Map::new();
    for (name, value) in pairs(inside) {
        let name = match name.as_str() {
            "rlid" | "dlid" => "lid",
            "sgix" | "sgid_index" => "sgid_index",
            "tc" | "traffic_class" => "traffic_class",
            // Always there, and nothing to do with where the message goes.
            "port" | "src_path_bits" => continue,
            "sl" if value == json!(0) => continue,
            other => other,
        };
        peer.insert(name.to_owned(), value);
    }
    peer
}

/// `name value` and `name=value` pairs: numbers as numbers, all else as it is printed.
fn pairs(text: &str) -> Map<String, Value> {
    let pair = pattern!(r"(?P<name>[a-z_]+)(?:=|\s+)(?P<value>[^\s,\]]+)");
    pair.captures_iter(text)
        .filter_map(|captures| {
            let value = caught(&captures, "value")?;
            let shown = value.parse::<u64>().map_or_else(|_| json!(value), |number| json!(number));
            Some((caught(&captures, "name")?.to_owned(), shown))
        })
        .collect()
}
