//! Requests encoded from JSON: as libmlx5 encodes them, whatever form the input has; refused by name where they cannot be.
#![forbid(unsafe_code)]

use mlx5_study::encode::encode;
use serde_json::{Map, Value, json};

fn vectors() -> impl Iterator<Item = Value> {
    include_str!("../../tests/data/wqe-vectors.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a vector"))
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("hex");
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex")).collect()
}

/// Which bytes of the WQE libmlx5 wrote: the head of `tests/vectors.rs` has the reasons.
fn written(vector: &Value, len: usize) -> Vec<bool> {
    let mut written = vec![true; len];
    let opcode = vector["opcode"].as_str().unwrap_or_default();
    let has_imm = ["SEND_IMM", "SEND_INVAL", "RDMA_WRITE_IMM", "LOCAL_INV"].contains(&opcode);
    if vector["api"] == "ibv_wr" && !has_imm {
        written[12..16].fill(false);
    }
    if opcode == "LOCAL_INV" {
        written[65..68].fill(false);
        written[72..].fill(false);
    }
    if opcode == "ATOMIC_FA" {
        written[40..48].fill(false);
    }
    let n_header = match (vector["transport"].as_str(), opcode.starts_with("RDMA")) {
        (Some("UD"), _) => 4,
        (_, true) => 2,
        _ => 1,
    };
    if let Some(data) = vector["inline"].as_str().filter(|data| !data.is_empty()) {
        written[16 * n_header + 4 + data.len() / 2..].fill(false);
    }
    written
}

/// Compares what was made of a vector's inputs with its outputs.
fn compare(vector: &Value, input: &Value) {
    let id = vector["id"].as_str().expect("an id");
    let encoded = encode(input).unwrap_or_else(|refusal| panic!("{id}: {refusal}"));
    let ours = encoded.json(Some(&vector["id"]));
    assert_eq!(ours["id"], vector["id"]);
    let (wqe, expected) = (bytes(&ours["wqe"]), bytes(&vector["wqe"]));
    assert_eq!(wqe.len(), expected.len(), "{id}");
    let written = written(vector, expected.len());
    for i in 0..expected.len() {
        assert!(!written[i] || wqe[i] == expected[i], "{id} byte {i}:\n{wqe:02x?}\n{expected:02x?}");
    }
    for name in ["ds", "wqebbs", "record", "index", "stride"] {
        assert_eq!(ours.get(name), vector.get(name), "{id}: {name}");
    }
    if vector["kind"] == "recv" {
        return assert!(ours.get("register").is_none());
    }
    let (register, expected) = (bytes(&ours["register"]), bytes(&vector["register"]));
    assert_eq!(register.len(), expected.len(), "{id}");
    for i in 0..register.len().min(written.len()) {
        assert!(!written[i] || register[i] == expected[i], "{id}: register byte {i}");
    }
}

/// The inputs of a vector in another form: fields the other way round, numbers as integers, and fields that nobody knows.
fn another_form(vector: &Value) -> Value {
    fn turned(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let mut other: Map<String, Value> =
                    map.iter().rev().map(|(k, v)| (k.clone(), field(k, v))).collect();
                other.insert("comment".into(), json!({"nobody": ["knows", 1.5]}));
                Value::Object(other)
            }
            Value::Array(list) => list.iter().map(turned).collect(),
            other => other.clone(),
        }
    }
    fn field(name: &str, value: &Value) -> Value {
        match value.as_str().and_then(|text| text.strip_prefix("0x")) {
            Some(hex) => json!(u64::from_str_radix(hex, 16).expect("a number")),
            None if value.is_u64() && !["ds", "wqebbs"].contains(&name) => {
                json!(format!("0x{:X}", value.as_u64().unwrap_or_default()))
            }
            None if name == "inline_pieces" => value.clone(),
            None => turned(value),
        }
    }
    turned(vector)
}

#[test]
fn all_vectors_are_encoded_as_libmlx5_does() {
    let mut n = 0;
    for vector in vectors() {
        compare(&vector, &vector);
        compare(&vector, &another_form(&vector));
        n += 1;
    }
    assert_eq!(n, 1022);
}

/// A request that is good, with some fields changed: `null` takes one away.
fn with(changes: Value) -> Value {
    let mut request = json!({
        "id": "x", "kind": "send", "transport": "RC", "qpn": "0x111", "wqe_index": 5, "ring_wqebbs": 256,
        "opcode": "RDMA_WRITE", "remote_addr": "0x1000", "rkey": 7, "sges": [{"addr": 1, "length": 2, "lkey": 3}]
    });
    for (name, value) in changes.as_object().expect("changes") {
        request[name] = value.clone();
    }
    request
}

#[test]
fn what_is_missing_or_impossible_is_refused_by_name() {
    assert_eq!(encode(&with(json!({}))).unwrap().json(None)["ds"], 3);
    let refused = [
        (json!({"kind": null}), "kind is missing"),
        (json!({"kind": "both"}), "kind is \"both\""),
        (json!({"transport": null}), "transport is missing"),
        (json!({"transport": "QP"}), "transport is \"QP\""),
        (json!({"transport": "DC"}), "transport is DC"),
        (json!({"qpn": null}), "qpn is missing: a number up to 0xffffff"),
        (json!({"qpn": "0x1000000"}), "qpn is 0x1000000 (16777216), but at most 0xffffff (16777215) fits"),
        (json!({"qpn": -1}), "qpn is -1"),
        (json!({"qpn": 1.5}), "qpn is 1.5"),
        (json!({"qpn": "0xzz"}), "qpn is \"0xzz\""),
        (json!({"qpn": [1]}), "qpn is [1]"),
        (json!({"wqe_index": null}), "wqe_index is missing"),
        (json!({"wqe_index": 65536}), "wqe_index is 0x10000"),
        (json!({"ring_wqebbs": null}), "ring_wqebbs is missing"),
        (json!({"ring_wqebbs": 100}), "ring_wqebbs is 100, but a ring has a power of two"),
        (json!({"ring_slot": 6}), "ring_slot is 6, but WQE 5 of a ring of 256 WQEBBs begins at slot 5"),
        (json!({"opcode": null}), "opcode is missing"),
        (json!({"opcode": "WRITE"}), "opcode is \"WRITE\", which"),
        (json!({"opcode": "RDMA_READ", "transport": "UC"}), "opcode is \"RDMA_READ\", which"),
        (json!({"transport": "UD"}), "opcode is \"RDMA_WRITE\", which UD has not"),
        (json!({"signaled": "yes"}), "signaled is \"yes\", but true or false"),
        (json!({"remote_addr": null}), "remote_addr is missing"),
        (json!({"rkey": null}), "rkey is missing"),
        (json!({"rkey": "0x100000000"}), "rkey is 0x100000000"),
        (json!({"sges": null}), "sges is missing"),
        (json!({"sges": 5}), "sges is 5, but a list"),
        (json!({"sges": [5]}), "sges[0] is no object"),
        (json!({"sges": [{"addr": 1, "length": 2}]}), "sges[0].lkey is missing"),
        (json!({"sges": [{"addr": 1, "length": 2147483649_u64, "lkey": 3}]}), "sges[0].length is 0x80000001"),
        (json!({"inline": "00"}), "inline stands beside sges"),
        (json!({"inline": "0", "sges": []}), "inline is no even number"),
        (
            json!({"inline": "00112233", "sges": null, "inline_pieces": [2, 3]}),
            "inline_pieces add up to 5 bytes, but inline has 4",
        ),
        (json!({"inline": "00".repeat(973), "sges": null}), "inline is too long"),
        (
            json!({"inline": "00".repeat(200), "sges": null, "ring_wqebbs": 2}),
            "ring_wqebbs is 2, but the request takes more",
        ),
        (json!({"opcode": "RDMA_READ", "inline": "00"}), "inline stands in RDMA_READ"),
        (json!({"opcode": "RDMA_WRITE_IMM"}), "imm is missing"),
        (json!({"opcode": "SEND_INVAL"}), "invalidate_rkey is missing"),
        (json!({"opcode": "ATOMIC_CS", "swap": 1}), "compare is missing"),
        (json!({"opcode": "ATOMIC_CS", "compare": 1}), "swap is missing"),
        (json!({"opcode": "ATOMIC_FA"}), "add is missing"),
        (json!({"opcode": "ATOMIC_FA", "add": 1}), "sges[0].length is 2, but an atomic brings 8"),
        (json!({"opcode": "ATOMIC_FA", "add": 1, "sges": []}), "sges names 0 pieces, but an atomic"),
        (json!({"opcode": "LOCAL_INV"}), "invalidate_rkey is missing"),
        (json!({"transport": "UD", "opcode": "SEND"}), "ud is missing"),
        (json!({"transport": "UD", "opcode": "SEND", "ud": {"qkey": 1}}), "ud.remote_qpn is missing"),
        (
            json!({"transport": "UD", "opcode": "SEND", "ud": {"qkey": 1, "remote_qpn": 2, "dlid": 3, "sl": 16}}),
            "ud.sl is 0x10 (16), but at most 0xf",
        ),
        (
            json!({"transport": "UD", "opcode": "SEND", "ud": {"qkey": 1, "remote_qpn": 2, "dlid": 3, "sl": 1,
                   "grh": {"dgid": "00", "sgid_index": 0, "hop_limit": 1, "traffic_class": 0}}}),
            "ud.grh.dgid has 1 bytes, but 16",
        ),
        (json!({"transport": "XRC"}), "remote_srqn is missing"),
        (json!({"transport": "RAW_PACKET", "opcode": "LSO", "header": "00".repeat(14)}), "mss is missing"),
        (json!({"transport": "RAW_PACKET", "opcode": "SEND", "header": "00"}), "header has a wrong length"),
        (json!({"kind": "recv", "index": 1}), "stride is missing"),
        (json!({"kind": "recv", "index": 1, "stride": 48}), "stride is 48"),
        (
            json!({"kind": "recv", "index": 1, "stride": 16, "sges": [{"addr": 1, "length": 2, "lkey": 3}, {"addr": 1, "length": 2, "lkey": 3}]}),
            "sges names 2 pieces, but a stride of 16 bytes holds 1",
        ),
    ];
    for (changes, why) in refused {
        let refusal = encode(&with(changes.clone())).expect_err(&changes.to_string()).to_string();
        assert!(refusal.starts_with(why), "{changes}: {refusal}");
    }
    assert_eq!(encode(&json!([1])).unwrap_err().to_string(), "request is no JSON object");
    let many = vec![json!({"addr": 1, "length": 2, "lkey": 3}); 62];
    assert!(
        encode(&with(json!({"sges": many}))).unwrap_err().to_string().starts_with("sges names 62 pieces")
    );
    let reads = with(json!({"opcode": "RDMA_READ", "sges": many[..31]}));
    assert!(encode(&reads).unwrap_err().to_string().contains("holds 30"));
}

#[test]
fn other_transports_and_operations() {
    let wqe = |changes: Value| {
        let encoded = encode(&with(changes)).unwrap();
        encoded.json(None)["wqe"].as_str().unwrap().to_owned()
    };
    let xrc = wqe(json!({"transport": "XRC", "remote_srqn": 0x2001, "signaled": true}));
    assert_eq!(&xrc[..64], "0000050800011104000000080000000000002001000000000000000000000000");
    let nop = wqe(json!({"opcode": "NOP", "fence": true}));
    assert_eq!(nop, "00000500000111010000008000000000");
    // What libmlx5 writes for these: vectors of the wide set.
    let tso = wqe(json!({
        "transport": "RAW_PACKET", "wqe_index": 156, "opcode": "TSO", "flags": ["SIGNALED"], "mss": 1414,
        "header": "6f767d848b9299a0a7aeb5bcc3ca", "sges": [{"addr": "0x7f0012340000", "length": 3000, "lkey": "0xc0de00"}]
    }));
    let head = "0000000800000000000000000000058600000000000e6f767d848b9299a0a7aeb5bcc3ca00000000";
    assert_eq!(tso[16..112], format!("{head}00000bb800c0de00"));
    let list = wqe(json!({
        "wqe_index": 18687, "ring_wqebbs": 128, "opcode": "MR_LIST", "signaled": true, "mkey": "0x4a0100",
        "access": ["LOCAL_WRITE"], "sges": [{"addr": "0x7f0012340000", "length": 4096, "lkey": "0xc0de00"}]
    }));
    assert!(list.starts_with("0048ff250001110c00000008004a0100800000000004000000000000203c2001"), "{list}");
    assert!(list[256..].starts_with("0000100000c0de0000007f0012340000"));
    let bound = wqe(json!({
        "opcode": "BIND_MW", "mw_rkey": "0x7e0002", "mw_type": 2,
        "bind": {"addr": "0x7f0000400000", "length": "0x1000", "mr_lkey": "0x1000", "access": ["REMOTE_WRITE"]}
    }));
    assert!(bound[256..].starts_with("000010000000100000007f0000400000"), "{bound}");
    let roce = wqe(json!({
        "transport": "UD", "opcode": "SEND", "remote_qpn": "0x100", "remote_qkey": 5,
        "av": {"sl": 2, "is_global": 1, "dgid": "::ffff:120.130.140.150", "sgid_index": 1, "hop_limit": 64, "tclass": 104,
               "flow_label": 1, "dmac": "0c:42:a1:10:20:30", "udp_sport": 49153}
    }));
    assert_eq!(
        &roce[32..128],
        "0000000500000000800001000400c001000000000c42a110203068400010000100000000000000000000ffff78828c96"
    );
}

/// Whatever the JSON is: refused or encoded.
#[test]
fn any_json_is_refused_or_encoded() {
    let all: Vec<Value> = vectors().step_by(11).collect();
    let mut state = 0x0123_4567_89ab_cdef_u64;
    let mut next = move |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize % n
    };
    let odd = [
        json!(null),
        json!(0),
        json!(-1),
        json!(u64::MAX),
        json!(1.5),
        json!(""),
        json!("0x"),
        json!("0xffffffffffffffffff"),
        json!([]),
        json!([{}]),
        json!({}),
        json!(true),
        json!("RC"),
        json!("é"),
        json!([1, 2]),
        json!([u64::MAX, 1]),
        json!(65535),
        json!("XRC"),
        json!("RAW_PACKET"),
        json!("UD"),
        json!("recv"),
        json!("MR_LIST"),
        json!("BIND_MW"),
        json!("MR_INTERLEAVED"),
    ];
    let extra = [
        "sges",
        "inline",
        "ud",
        "av",
        "flags",
        "header",
        "mss",
        "mkey",
        "bind",
        "interleaved",
        "access",
        "inline_pieces",
        "stride",
    ];
    let (mut n_encoded, mut n_refused) = (0, 0);
    for _ in 0..20_000 {
        let mut request = all[next(all.len())].clone();
        for _ in 0..1 + next(3) {
            let names: Vec<String> = request.as_object().unwrap().keys().cloned().collect();
            let name =
                if next(3) == 0 { extra[next(extra.len())].into() } else { names[next(names.len())].clone() };
            request[name] = odd[next(odd.len())].clone();
        }
        match encode(&request) {
            Ok(encoded) => {
                assert!(encoded.json(None).is_object());
                n_encoded += 1;
            }
            Err(refusal) => {
                assert!(!refusal.field.is_empty() && !refusal.why.is_empty());
                n_refused += 1;
            }
        }
    }
    assert!(n_encoded > 1000 && n_refused > 1000, "{n_encoded} {n_refused}");
}
