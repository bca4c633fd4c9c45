//! Every operation of `lat` and `bw`, in every way they can be run.

use crate::ok;
use serde_json::Value;

const OPS: [&str; 6] = ["send", "write", "write-imm", "read", "cas", "faa"];

/// A run must end with a clean model, and measure something.
fn clean(args: &str) -> String {
    let text = ok(args);
    assert!(text.ends_with("model: 0 violations\n"), "mlx5 {args}: {text}");
    text
}

#[test]
fn every_operation_on_every_device() {
    for device in ["model", "model:ports=2", "model:bar=trapped", "model:ports=2,mtu=256,part=cx6dx"] {
        for op in OPS {
            clean(&format!("lat --op {op} --iters 100 --device {device}"));
            clean(&format!("bw --op {op} --iters 100 --device {device}"));
        }
    }
}

#[test]
fn every_operation_of_unreliable_transports() {
    for device in
        ["model", "model:ports=2", "model:bar=trapped", "model:ports=2,mtu=256", "model:ports=2,link=ib"]
    {
        for op in ["send", "write", "write-imm"] {
            let text = clean(&format!("lat --transport uc --op {op} --iters 100 --device {device}"));
            assert!(text.contains(&format!("op      {op} over UC, half round trip")), "{text}");
            clean(&format!("bw --transport uc --op {op} --iters 500 --qps 3 --batch 4 --device {device}"));
        }
        let text = clean(&format!("lat --transport ud --iters 100 --size 0..256 --device {device}"));
        assert!(text.contains("by datagrams (UD)"), "{text}");
        clean(&format!("bw --transport ud --iters 500 --size 256 --qps 3 --batch 4 --device {device}"));
    }
    clean("lat --transport ud --iters 50 --inline --size 1,11,12,13,940");
    clean("bw --transport ud --iters 500 --inline --size 64 --signal-every 16");
    clean("lat --transport uc --iters 50 --events --size 9000");
    clean("bw --transport ud --iters 500 --events");
    for transport in ["uc", "ud"] {
        clean(&format!("pingpong --transport {transport} --iters 50 --device model:ports=2"));
        let json: Value = serde_json::from_str(&ok(&format!("bw --transport {transport} --iters 50 --json")))
            .expect("JSON");
        assert_eq!(json["transport"], transport);
    }
    let text = clean("pingpong --transport ud --iters 5 --explain");
    for part in ["address vector segment, av_ext_seg", "dqpn_dctn", "0x11111111", "rqpn"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn every_operation_in_batches_on_many_queue_pairs() {
    for op in OPS {
        clean(&format!("bw --op {op} --iters 1001 --qps 5 --batch 7 --signal-every 10 --depth 20"));
        clean(&format!("lat --op {op} --iters 101 --qps 3 --batch 4 --signal-every 4"));
    }
}

#[test]
fn sleeping_on_events() {
    for op in OPS {
        for device in ["model", "model:ports=2"] {
            if op != "write" {
                clean(&format!("lat --op {op} --iters 100 --events --device {device}"));
            }
            clean(&format!("bw --op {op} --iters 300 --events --device {device}"));
        }
    }
}

#[test]
fn inline_data_of_every_kind() {
    for op in ["send", "write", "write-imm"] {
        clean(&format!("lat --op {op} --inline --iters 50 --size 1,3,4,12,13,28,44,45,972"));
        clean(&format!("bw --op {op} --inline --iters 300 --size 0,1,60,972 --batch 3"));
    }
}

#[test]
fn a_sweep_has_a_row_for_each_size() {
    for command in ["lat --op send", "lat --op read", "bw --op write", "bw --op write-imm"] {
        let text = clean(&format!("{command} --iters 20 --size 1..64k"));
        let sizes: Vec<u32> =
            text.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
        assert_eq!(sizes, (0..=16).map(|log| 1 << log).collect::<Vec<_>>(), "{text}");
    }
}

#[test]
fn sizes_around_the_mtu_and_none() {
    for op in ["send", "write-imm", "read"] {
        clean(&format!(
            "lat --op {op} --iters 20 --size 0,1,1023,1024,1025,4095,4096,4097,1m --device model:mtu=1024"
        ));
    }
}

#[test]
fn lat_as_json() {
    for op in OPS {
        let json: Value =
            serde_json::from_str(&ok(&format!("lat --op {op} --iters 50 --json"))).expect("JSON");
        let row = &json["rows"][0];
        assert_eq!((&json["op"], &json["command"]), (&op.into(), &"lat".into()));
        assert_eq!((&row["samples"], &json["violations"]), (&50.into(), &Value::Array(vec![])));
        let at = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {json}"));
        let names = ["min_us", "p50_us", "p90_us", "p99_us", "p99_9_us", "max_us"];
        assert!(names.windows(2).all(|pair| at(pair[0]) <= at(pair[1])), "{json}");
        assert!(at("min_us") > 0.0 && at("mean_us") <= at("max_us"), "{json}");
    }
}

#[test]
fn bw_as_json() {
    let json: Value = serde_json::from_str(&ok("bw --op read --iters 50 --size 1k,2k --json")).expect("JSON");
    let rows = json["rows"].as_array().expect("rows");
    assert_eq!((rows.len(), &rows[1]["size_bytes"]), (2, &2048.into()));
    for row in rows {
        let at = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {json}"));
        let expected = at("mmsg_per_s") * at("size_bytes");
        assert!((at("mb_per_s") - expected).abs() <= expected * 1e-6, "{json}");
    }
}

#[test]
fn pingpong_of_every_kind() {
    for more in [
        "",
        "--device model:ports=2",
        "--device model:bar=trapped",
        "--inline",
        "--events",
        "--size 0",
        "--size 9000",
    ] {
        let text = clean(&format!("pingpong --iters 50 {more}"));
        assert!(text.contains("half round trip in µs:") && text.contains("p99.9"), "{text}");
    }
    let json: Value = serde_json::from_str(&ok("pingpong --iters 50 --json")).expect("JSON");
    assert_eq!(json["rows"][0]["samples"], 50);
}

#[test]
fn fewer_operations_than_queue_pairs() {
    for op in OPS {
        clean(&format!("bw --op {op} --iters 2 --qps 5"));
        clean(&format!("lat --op {op} --iters 2 --qps 5"));
    }
}
