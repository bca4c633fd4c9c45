//! CQEs in JSON, one object a line, as a test or another program writes them.

use crate::{
    record::Record,
    structure::{self, About, As, Transport},
    text::Options,
};
use serde_json::{Map, Value, json};

/// The CQEs in a line of JSON. Fields: `cqe` (64 or 128 bytes in hexadecimal; with `cqe_size` 128, the second half alone
/// will do) or `cqes`, a list of which the last is told; and what is known besides: `id`, `transport`, `posted`, `api`.
pub(super) fn read(number: u64, line: &str, options: Options) -> Option<Record> {
    if !line.starts_with('{') || !matches!(options.read_as, As::Auto | As::Cqe) {
        return None;
    }
    let Ok(Value::Object(given)) = serde_json::from_str(line) else { return None };
    let mut texts: Vec<&str> = given.get("cqe").and_then(Value::as_str).into_iter().collect();
    if let Some(list) = given.get("cqes").and_then(Value::as_array) {
        texts.extend(list.iter().filter_map(Value::as_str));
    }
    if texts.is_empty() {
        return None;
    }
    let mut record = Record::new("CQE in JSON", number..=number);
    if let Some(id) = given.get("id") {
        record.parts.insert("id".into(), id.clone());
    }
    let about = about(&given, options);
    for text in texts {
        let bytes = bytes(text);
        let cqe =
            bytes.as_deref().and_then(|bytes| structure::cqe(bytes, about.transport == Some(Transport::Raw)));
        let (Some(bytes), Some(cqe)) = (bytes, cqe) else {
            record.parts.insert("error".into(), json!("a CQE is 64 or 128 bytes in hexadecimal"));
            record.says =
                format!("{} digits that are no CQE: it is 64 or 128 bytes in hexadecimal", text.len());
            return Some(record);
        };
        // Of several, the last is the request's: those before, as signature errors, are taken with it.
        record.parts.extend(structure::completion(&bytes, &about).unwrap_or_default());
        cqe.add_to(&mut record);
    }
    record.says.push('.');
    if given.contains_key("cqes") {
        numbers(&mut record.parts);
    }
    Some(record)
}

/// What a line tells beside the bytes.
fn about(given: &Map<String, Value>, options: Options) -> About {
    let field = |of: &str, name: &str| given.get(of).and_then(|value| value.get(name)).cloned();
    let transport = given.get("transport").cloned().or_else(|| field("qp", "transport"));
    let named = transport.as_ref().and_then(Value::as_str).and_then(Transport::by_name);
    let first =
        given.get("posted").and_then(|posted| posted.as_array().map_or(Some(posted), |list| list.first()));
    let lengths = first.and_then(|posted| posted.get("sges")).and_then(Value::as_array).map(|sges| {
        sges.iter().filter_map(|sge| sge.get("length").and_then(Value::as_u64)).fold(0, u64::saturating_add)
    });
    let number = |name| field("cq", name).and_then(|value| value.as_u64());
    About {
        transport: options.transport.or(named),
        posted: first.map(|one| one.get("opcode").unwrap_or(one)).and_then(Value::as_str).map(str::to_owned),
        owner: number("consumer_index")
            .zip(number("cqes").filter(|n| *n > 0))
            .map(|(index, n)| index / n % 2 == 1),
        room_bytes: lengths,
        is_start_poll: given.get("api").and_then(Value::as_str) == Some("ibv_start_poll"),
    }
}

/// Numbers as verbs have them, where the line's other fields are named as in verbs too.
fn numbers(parts: &mut Map<String, Value>) {
    let names = [("qpn", "qp_num"), ("imm", "imm_data")];
    for (name, verbs) in names {
        if let Some(value) = parts.get(name).cloned() {
            parts.insert(verbs.into(), value);
        }
    }
    for name in ["vendor_err", "src_qp", "wc_flags"] {
        if let Some(Value::String(text)) = parts.get(name)
            && let Ok(number) = u64::from_str_radix(text.trim_start_matches("0x"), 16)
        {
            parts.insert(name.into(), json!(number));
        }
    }
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    digits
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
            _ => None,
        })
        .collect()
}
