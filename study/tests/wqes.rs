//! Every request that libmlx5 could be made to write (`data/wqe-wide.jsonl`, from Debian's libmlx5 44), explained: each field
//! that the request has is where it was put.
#![forbid(unsafe_code)]

use mlx5_study::structure::{self, ReceiveHead, Transport, Wqe};
use serde_json::Value;

fn vectors() -> impl Iterator<Item = Value> {
    include_str!("data/wqe-wide.jsonl").lines().map(|line| serde_json::from_str(line).expect("a vector"))
}

fn number(value: &Value) -> u64 {
    match value {
        Value::String(text) => u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a hex number"),
        value => value.as_u64().unwrap_or_else(|| panic!("a number: {value}")),
    }
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("hex");
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex")).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn has(wr: &Value, key: &str, name: &str) -> bool {
    list(&wr[key]).iter().any(|flag| flag == name)
}

/// Compares numbers, with the vector's name.
fn same(id: &str, what: &str, ours: &Value, theirs: u64) {
    assert!(!ours.is_null(), "{id}: no {what}");
    assert_eq!(number(ours), theirs, "{id}: {what}");
}

fn of_transport(vector: &Value) -> Transport {
    Transport::by_name(vector["transport"].as_str().expect("a transport")).expect("one that is known")
}

#[test]
fn every_send_request_is_explained() {
    let (mut n_vectors, mut n_guessed, mut n_sends) = (0, 0, 0);
    for vector in vectors().filter(|v| v["wrs"].is_array()) {
        let id = vector["id"].as_str().unwrap();
        let transport = of_transport(&vector);
        let mut after_umr = number(&vector["small_fence_pending"]) == 1;
        let wqes: Vec<Wqe> = (list(&vector["wqes"]).iter())
            .map(|wqe| {
                let whole = bytes(&wqe["hex"]);
                let explained = structure::wqe(&whole, Some(transport)).unwrap();
                same(id, "wqe_index", &explained.json["ctrl"]["wqe_index"], number(&wqe["wqe_index"]));
                same(id, "ds", &explained.json["ctrl"]["ds"], number(&wqe["ds"]));
                let guessed = structure::wqe(&whole, None).unwrap();
                n_sends += 1;
                let is_right = guessed.transport == transport
                    || guessed.transport == Transport::Rc && !transport_shows(&explained, transport);
                n_guessed += usize::from(is_right || vector["kind"] == "raw-wqe");
                explained
            })
            .collect();
        let mut wqes = wqes.iter();
        for wr in list(&vector["wrs"]) {
            let wqe = wqes.next().expect("a WQE for each request");
            if wr["opcode"] == "RAW_WQE" {
                let raw = structure::wqe(&bytes(&wr["raw_wqe"]), Some(transport)).unwrap();
                for field in ["opmod", "opcode", "qpn", "ds", "fm_ce_se", "imm", "signature"] {
                    assert_eq!(raw.json["ctrl"][field], wqe.json["ctrl"][field], "{id}");
                }
                continue;
            }
            assert_eq!(wqe.corrections, Vec::<String>::new(), "{id}");
            control(id, &vector, wr, wqe, after_umr);
            after_umr = ["BIND_MW", "LOCAL_INV", "MR_LIST", "MR_INTERLEAVED", "MKEY_CONFIGURE"]
                .contains(&wr["opcode"].as_str().unwrap());
            peer(id, transport, wr, wqe);
            match wr["opcode"].as_str().unwrap() {
                "BIND_MW" | "MR_LIST" | "MR_INTERLEAVED" | "MKEY_CONFIGURE" => key(id, wr, wqe),
                "LOCAL_INV" => assert_eq!(wqe.json["mkc"]["free"], 1, "{id}"),
                "MEMCPY" => copy(id, wr, wqe),
                _ => data(id, wr, wqe),
            }
            if let Some(block) = wr["sig_block"].as_object() {
                let mut sides = vec![];
                signature(id, wr, wqe);
                for side in ["mem", "wire"] {
                    if !block[side].is_null() {
                        sides.push(side);
                    }
                }
                for side in sides {
                    let psv = wqes.next().expect("a SET_PSV for each side");
                    let set = &psv.json["set_psv"];
                    same(id, "psv_index", &set["psv_index"], number(&wr[format!("psv_{side}")]));
                    let value = number(&set["transient_sig"]) << 32 | number(&set["ref_tag"]);
                    assert_eq!(value, first_value(&block[side]), "{id}");
                }
            }
        }
        assert!(wqes.next().is_none(), "{id}");
        n_vectors += 1;
    }
    assert_eq!(n_vectors, 1378);
    // Without a transport: as it looks. RC and XRC are the same where the XRC segment looks like a piece of memory.
    assert!(n_guessed * 100 >= n_sends * 97, "{n_guessed} of {n_sends} guessed");
}

/// Whether a request has something by which its transport can be told.
fn transport_shows(wqe: &Wqe, transport: Transport) -> bool {
    transport != Transport::Uc
        && ["av", "xrc", "eth_seg"].iter().any(|name| !wqe.json.get(*name).is_none_or(Value::is_null))
}

fn control(id: &str, vector: &Value, wr: &Value, wqe: &Wqe, after_umr: bool) {
    let ctrl = &wqe.json["ctrl"];
    let opcode = match wr["opcode"].as_str().unwrap() {
        "SEND_WITH_IMM" => "SEND_IMM",
        "SEND_WITH_INV" => "SEND_INVAL",
        "RDMA_WRITE_WITH_IMM" => "RDMA_WRITE_IMM",
        "ATOMIC_CMP_AND_SWP" => "ATOMIC_CS",
        "ATOMIC_FETCH_AND_ADD" => "ATOMIC_FA",
        "TSO" => "LSO",
        "LOCAL_INV" | "BIND_MW" | "MR_LIST" | "MR_INTERLEAVED" | "MKEY_CONFIGURE" => "UMR",
        "MEMCPY" => "MMO",
        other => other,
    };
    assert_eq!(ctrl["opcode_name"], opcode, "{id}");
    same(id, "qpn", &ctrl["qpn"], number(&vector["qpn"]));
    same(id, "se", &ctrl["se"], has(wr, "flags", "SOLICITED").into());
    // With a signature the last SET_PSV asks for the completion.
    if !wr["sig_block"].is_object() {
        let signaled = has(wr, "flags", "SIGNALED") || number(&vector["sq_sig_all"]) == 1;
        same(id, "ce", &ctrl["ce"], 2 * u64::from(signaled));
    }
    let fence = if has(wr, "flags", "FENCE") { 4 } else { after_umr.into() };
    same(id, "fm", &ctrl["fm"], fence);
    for (name, field) in [
        ("imm_data", "imm"),
        ("invalidate_rkey", "imm"),
        ("mkey", "imm"),
        ("mw_rkey", "imm"),
        ("stream_id", "stream_channel"),
    ] {
        if !wr[name].is_null() {
            same(id, name, &ctrl[field], number(&wr[name]));
        }
    }
    for (name, field) in [("remote_addr", "raddr"), ("rkey", "rkey")] {
        if !wr[name].is_null() {
            same(id, name, &wqe.json["raddr"][field], number(&wr[name]));
        }
    }
    for (name, field) in [("compare", "compare"), ("swap", "swap_add"), ("add", "swap_add")] {
        if !wr[name].is_null() {
            same(id, name, &wqe.json["atomic"][field], number(&wr[name]));
        }
    }
}

fn peer(id: &str, transport: Transport, wr: &Value, wqe: &Wqe) {
    let av = wqe.json.get("av").unwrap_or(&Value::Null);
    for (name, field) in [("remote_qpn", "dqpn_dctn"), ("remote_dctn", "dqpn_dctn"), ("dc_key", "dc_key")] {
        if !wr[name].is_null() {
            same(id, name, &av[field], number(&wr[name]));
        }
    }
    if !wr["remote_qkey"].is_null() {
        same(id, "qkey", &av["qkey"], number(&wr["remote_qkey"]));
    }
    if !wr["remote_srqn"].is_null() {
        assert_eq!(transport, Transport::Xrc);
        same(id, "srqn", &wqe.json["xrc"]["xrc_srqn"], number(&wr["remote_srqn"]));
    }
    let theirs = &wr["av"];
    if !theirs.is_object() {
        return;
    }
    let is_ib = theirs["net"] == "IB";
    same(id, "sl", &av["sl"], number(&theirs["sl"]) << u32::from(!is_ib));
    if is_ib {
        same(id, "dlid", &av["rlid_or_udp_sport"], number(&theirs["dlid"]));
        same(id, "src_path_bits", &av["mlid"], number(&theirs["src_path_bits"]) & 0x7f);
        same(id, "grh", &av["grh"], number(&theirs["is_global"]));
    } else {
        assert_eq!(av["rmac"].as_str().unwrap().replace(':', ""), theirs["dmac"].as_str().unwrap(), "{id}");
        if !theirs["udp_sport"].is_null() {
            same(id, "udp_sport", &av["rlid_or_udp_sport"], number(&theirs["udp_sport"]));
        }
    }
    if number(&theirs["is_global"]) == 1 {
        assert_eq!(av["rgid"], theirs["dgid"], "{id}");
        for (name, field) in [
            ("sgid_index", "src_addr_index"),
            ("hop_limit", "hop_limit"),
            ("tclass", "tclass"),
            ("flow_label", "flow_label"),
        ] {
            // Of a flow label 20 bits are written.
            same(id, name, &av[field], number(&theirs[name]) & 0xf_ffff);
        }
    }
}

/// Pieces of memory and inline data; the head of a frame goes before both.
fn data(id: &str, wr: &Value, wqe: &Wqe) {
    let empty = Value::Null;
    let get = |name: &str| wqe.json.get(name).unwrap_or(&empty);
    let head = get("eth_seg").get("inline_hdr").map_or_else(Vec::new, bytes);
    if !wr["mss"].is_null() {
        same(id, "mss", &get("eth_seg")["mss"], number(&wr["mss"]));
        assert_eq!(head, bytes(&wr["header"]), "{id}");
    }
    if !get("eth_seg").is_null() {
        same(id, "cs_flags", &get("eth_seg")["cs_flags"], if has(wr, "flags", "IP_CSUM") { 0xc0 } else { 0 });
        same(id, "inline_hdr_sz", &get("eth_seg")["inline_hdr_sz"], head.len() as u64);
    }
    if wr["inline"].is_array() {
        let theirs: Vec<u8> = list(&wr["inline"]).iter().flat_map(bytes).collect();
        let ours: Vec<u8> = list(get("inline")).iter().flat_map(|piece| bytes(&piece["data"])).collect();
        assert_eq!([head, ours].concat(), theirs, "{id}");
        return;
    }
    let is_tso = wr["opcode"] == "TSO";
    let mut skip = if is_tso { 0 } else { head.len() as u64 };
    let mut ours = list(get("data")).iter();
    for sge in list(&wr["sges"]) {
        let len = number(&sge["length"]);
        let taken = skip.min(len);
        skip -= taken;
        if len == taken {
            continue;
        }
        let ours = ours.next().unwrap_or_else(|| panic!("{id}: a piece is missing"));
        same(id, "byte_count", &ours["byte_count"], (len - taken) & 0x7fff_ffff);
        same(id, "lkey", &ours["lkey"], number(&sge["lkey"]));
        same(id, "addr", &ours["addr"], number(&sge["addr"]) + taken);
    }
    assert!(ours.next().is_none(), "{id}");
}

/// What a UMR makes of a key.
fn key(id: &str, wr: &Value, wqe: &Wqe) {
    let mkc = &wqe.json["mkc"];
    let bind = &wr["bind"];
    let access = if bind.is_object() { bind } else { wr };
    let is_unbound = bind.is_object() && number(&bind["length"]) == 0;
    if !is_unbound {
        for (name, field) in
            [("LOCAL_WRITE", "lw"), ("REMOTE_WRITE", "rw"), ("REMOTE_READ", "rr"), ("REMOTE_ATOMIC", "a")]
        {
            same(id, name, &mkc[field], has(access, "access", name).into());
        }
    }
    let empty = Value::Null;
    let klm = list(wqe.json.get("klm").unwrap_or(&empty));
    if bind.is_object() {
        same(id, "new_rkey", &mkc["mkey_7_0"], number(&wr["new_rkey"]) & 0xff);
        if !is_unbound {
            let is_zero_based = has(bind, "access", "ZERO_BASED");
            same(id, "start", &mkc["start_addr"], if is_zero_based { 0 } else { number(&bind["addr"]) });
            same(id, "len", &mkc["len"], number(&bind["length"]));
            same(id, "mr_lkey", &klm[0]["mkey"], number(&bind["mr_lkey"]));
            same(id, "addr", &klm[0]["address"], number(&bind["addr"]));
        }
        return;
    }
    let mut total = 0;
    for (i, sge) in list(&wr["sges"]).iter().enumerate() {
        same(id, "length", &klm[i]["byte_count"], number(&sge["length"]));
        same(id, "lkey", &klm[i]["mkey"], number(&sge["lkey"]));
        same(id, "addr", &klm[i]["address"], number(&sge["addr"]));
        total += number(&sge["length"]);
    }
    assert_eq!(klm.len(), list(&wr["sges"]).len(), "{id}");
    for (i, piece) in list(&wr["interleaved"]).iter().enumerate() {
        let ours = &wqe.json["repeat_entry"][i];
        let (count, skip) = (number(&piece["bytes_count"]), number(&piece["bytes_skip"]));
        same(id, "bytes_count", &ours["byte_count"], count);
        same(id, "bytes_skip", &ours["stride"], count + skip);
        same(id, "lkey", &ours["mkey"], number(&piece["lkey"]));
        same(id, "addr", &ours["va"], number(&piece["addr"]));
        same(id, "repeat", &wqe.json["repeat_block"]["repeat_count"], number(&wr["repeat_count"]));
        total += count * number(&wr["repeat_count"]);
    }
    same(id, "len", &mkc["len"], total);
}

/// What a signature checks, and how.
fn signature(id: &str, wr: &Value, wqe: &Wqe) {
    let (block, bsf) = (&wr["sig_block"], &wqe.json["bsf_basic"]);
    same(id, "check_mask", &bsf["check_byte_mask"], number(&block["check_mask"]));
    same(id, "bsf_size", &bsf["bsf_size"], 2);
    for (side, letter) in [("mem", "m"), ("wire", "w")] {
        let dif = &wqe.json[if side == "mem" { "bsf_inl_mem" } else { "bsf_inl_wire" }];
        let block = &block[side];
        same(id, "valid", &dif["valid"], (block["type"] == "T10DIF").into());
        if block.is_null() {
            continue;
        }
        same(id, "psv", &bsf[format!("{letter}_psv")], number(&wr[format!("psv_{side}")]));
        if block["type"] == "T10DIF" {
            same(id, "app_tag", &dif["dif_apptag"], number(&block["app_tag"]));
            same(id, "ref_tag", &dif["dif_reftag"], number(&block["ref_tag"]));
            same(id, "sig_type", &dif["sig_type"], if block["bg_type"] == "CRC" { 1 } else { 2 });
            same(id, "seed", &dif["seed"], (number(&block["bg"]) != 0).into());
            same(id, "remap", &dif["inc_reftag"], number(&block["dif_flags"]) & 1);
            same(id, "escape", &dif["apptag_escape"], number(&block["dif_flags"]) >> 1 & 1);
            same(id, "escape", &dif["appref_escape"], number(&block["dif_flags"]) >> 2 & 1);
        }
    }
}

/// The 64 bits that a side's signature begins with.
fn first_value(block: &Value) -> u64 {
    match block["type"].as_str().unwrap() {
        "T10DIF" => number(&block["bg"]) << 48 | number(&block["app_tag"]) << 32 | number(&block["ref_tag"]),
        "CRC64_XP10" => number(&block["seed"]),
        _ => number(&block["seed"]) << 32,
    }
}

fn copy(id: &str, wr: &Value, wqe: &Wqe) {
    same(id, "opaque_lkey", &wqe.json["mmo"]["lkey"], number(&wr["opaque_lkey"]));
    same(id, "opaque_addr", &wqe.json["mmo"]["addr"], number(&wr["opaque_addr"]));
    same(id, "opmod", &wqe.json["ctrl"]["opmod"], 1);
    for (i, side) in ["src", "dest"].iter().enumerate() {
        let piece = &wqe.json["data"][i];
        same(id, "lkey", &piece["lkey"], number(&wr[format!("{side}_lkey")]));
        same(id, "addr", &piece["addr"], number(&wr[format!("{side}_addr")]));
        same(id, "length", &piece["byte_count"], number(&wr["length"]) & 0x7fff_ffff);
    }
}

#[test]
fn every_receive_request_is_explained() {
    let mut n = 0;
    for vector in vectors().filter(|v| !v["wrs"].is_array()) {
        let id = vector["id"].as_str().unwrap();
        let head = match vector["kind"].as_str().unwrap() {
            "srq-recv" => ReceiveHead::Next,
            "recv-signature" => ReceiveHead::Signature,
            _ => ReceiveHead::None,
        };
        let wqe = &vector["wqes"][0];
        let receive = structure::receive(&bytes(&wqe["hex"]), head).unwrap();
        if head == ReceiveHead::Next {
            same(id, "next", &receive.json["srq_next"]["next_wqe_index"], number(&wqe["next_wqe_index"]));
        }
        let empty = Value::Null;
        let mut ours = list(receive.json.get("data").unwrap_or(&empty)).iter();
        // A shared queue keeps pieces of length 0, which the others skip.
        let keeps = head == ReceiveHead::Next;
        for sge in list(&vector["sges"]).iter().filter(|sge| keeps || number(&sge["length"]) != 0) {
            let ours = ours.next().unwrap_or_else(|| panic!("{id}: a piece is missing"));
            same(id, "byte_count", &ours["byte_count"], number(&sge["length"]) & 0x7fff_ffff);
            same(id, "lkey", &ours["lkey"], number(&sge["lkey"]));
            same(id, "addr", &ours["addr"], number(&sge["addr"]));
        }
        assert!(ours.next().is_none(), "{id}");
        n += 1;
    }
    assert_eq!(n, 64);
}
