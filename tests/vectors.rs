//! Bytes that nobody here wrote: work requests as libmlx5 encodes them, completions as it reads them.
//!
//! `tests/data/wqe-vectors.jsonl` and `cqe-vectors.jsonl` were made by Debian's libmlx5 44. Each request goes
//! through the posting path of our queues, at the same place of a ring of the same size that was filled with
//! 0xa5, and must give the same WQE, doorbell record and register.
//!
//! Where ours differs on purpose:
//! - Bytes that libmlx5 leaves as they were are not part of a WQE's meaning, and hold old data there: the
//!   padding behind inline data, what follows a WQE in its last WQEBB, the immediate field of operations
//!   without one (`ibv_wr` only), fetch-and-add's compare field and most of a LOCAL_INV's key context. We leave the first two
//!   alone too, and write 0 to the others.
//!
//! libmlx5 puts the small fence on the request after a LOCAL_INV by itself; ours is asked to.

mod fixture;
#[path = "fixture/vector.rs"]
mod vector;

use fixture::{Cq, RING_FILL, Recv, Send, SendOptions, UAR_FILL, wc_status};
use mlx5_direct::{
    cqe::CqeOpcode,
    mlx5::ids::{Lkey, Qpn, Rkey},
    queue::{
        AddressHandle, Completion, Connected, CqeSize, Flags, Gather, PostError, PostList, Rc, Remote,
        Request, SgeList, Transport, Uc, Ud,
    },
    wqe::{self, AvSeg, DecodeError, DecodedWqe, Peer, Segment, SendOpcode},
};
use serde_json::Value;
use std::collections::BTreeMap;
use vector::{bytes, lines, number};

fn flags(vector: &Value) -> Flags {
    let mut flags = Flags::NONE;
    for (name, flag) in
        [("signaled", Flags::SIGNALED), ("fence", Flags::FENCE), ("solicited", Flags::SOLICITED)]
    {
        if vector[name] == true {
            flags = flags | flag;
        }
    }
    if vector["follows_local_inv"] == true {
        flags = flags | Flags::AFTER_INVALIDATE;
    }
    flags
}

/// Names the SGEs of a vector.
fn sges<'l, 'q, K: SgeList, T: Transport>(
    mut request: Request<'l, 'q, K, T>,
    vector: &Value,
) -> Result<Request<'l, 'q, K, T>, PostError> {
    for sge in vector["sges"].as_array().expect("sges") {
        let (lkey, addr, len) = (number(&sge["lkey"]), number(&sge["addr"]), number(&sge["length"]));
        // SAFETY: no device reads the ring.
        request = unsafe { request.sge(Lkey::new(lkey as u32), addr, len as u32)? };
    }
    Ok(request)
}

/// Ends a request with the SGEs or the inline data of a vector.
fn finish<T: Transport>(request: Request<'_, '_, Gather, T>, vector: &Value) -> Result<(), PostError> {
    if !vector["inline"].is_string() {
        sges(request, vector)?.finish();
        return Ok(());
    }
    let data = bytes(&vector["inline"]);
    let mut at = 0;
    let mut pieces = vector["inline_pieces"].as_array().unwrap().iter().map(|p| {
        let piece = &data[at..at + number(p) as usize];
        at += piece.len();
        piece
    });
    let mut request = request.inline(pieces.next().unwrap())?;
    for piece in pieces {
        request = request.inline(piece)?;
    }
    request.finish();
    Ok(())
}

fn remote(vector: &Value) -> Remote {
    Remote { addr: number(&vector["remote_addr"]), rkey: Rkey::new(number(&vector["rkey"]) as u32) }
}

fn imm(vector: &Value) -> u32 {
    number(&vector["imm"]) as u32
}

/// A transport as the vectors have it.
trait Vectors: Transport {
    const NAME: &'static str;
    /// Segments before the data of a vector's request.
    fn n_header(opcode: &str) -> usize;
    /// Writes a vector's request.
    fn write(list: &mut PostList<'_, Self>, vector: &Value) -> Result<(), PostError>;
    fn decode(bytes: &[u8]) -> Result<DecodedWqe<'_>, DecodeError>;
}

/// What RC and UC have in common.
fn write_connected<T: Connected>(list: &mut PostList<'_, T>, vector: &Value) -> Result<(), PostError> {
    let flags = flags(vector);
    let request = match vector["opcode"].as_str().expect("opcode") {
        "SEND" => list.send(1, flags)?,
        "SEND_IMM" => list.send_imm(1, imm(vector), flags)?,
        "RDMA_WRITE" => list.rdma_write(1, remote(vector), flags)?,
        "RDMA_WRITE_IMM" => list.rdma_write_imm(1, remote(vector), imm(vector), flags)?,
        "LOCAL_INV" => {
            list.local_inv(1, Rkey::new(number(&vector["invalidate_rkey"]) as u32), flags)?.finish();
            return Ok(());
        }
        other => panic!("opcode {other}"),
    };
    finish(request, vector)
}

fn n_header_connected(opcode: &str) -> usize {
    if opcode.starts_with("RDMA") { 2 } else { 1 }
}

impl Vectors for Rc {
    const NAME: &'static str = "RC";

    fn n_header(opcode: &str) -> usize {
        n_header_connected(opcode)
    }

    fn write(list: &mut PostList<'_, Self>, vector: &Value) -> Result<(), PostError> {
        let (flags, remote) = (flags(vector), || remote(vector));
        let opcode = vector["opcode"].as_str().expect("opcode");
        match opcode {
            "RDMA_READ" => sges(list.rdma_read(1, remote(), flags)?, vector)?.finish(),
            "SEND_INVAL" => {
                let rkey = Rkey::new(number(&vector["invalidate_rkey"]) as u32);
                return finish(list.send_inval(1, rkey, flags)?, vector);
            }
            "ATOMIC_CS" | "ATOMIC_FA" => {
                let operand = |name: &str| number(&vector[name]);
                let request = match opcode {
                    "ATOMIC_CS" => {
                        list.compare_swap(1, remote(), operand("compare"), operand("swap"), flags)?
                    }
                    _ => list.fetch_add(1, remote(), operand("add"), flags)?,
                };
                let sge = &vector["sges"][0];
                // SAFETY: no device reads the ring.
                unsafe { request.sge(Lkey::new(number(&sge["lkey"]) as u32), number(&sge["addr"]))? }
                    .finish();
            }
            _ => return write_connected(list, vector),
        }
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<DecodedWqe<'_>, DecodeError> {
        wqe::decode(bytes)
    }
}

impl Vectors for Uc {
    const NAME: &'static str = "UC";

    fn n_header(opcode: &str) -> usize {
        n_header_connected(opcode)
    }

    fn write(list: &mut PostList<'_, Self>, vector: &Value) -> Result<(), PostError> {
        write_connected(list, vector)
    }

    fn decode(bytes: &[u8]) -> Result<DecodedWqe<'_>, DecodeError> {
        wqe::decode(bytes)
    }
}

impl Vectors for Ud {
    const NAME: &'static str = "UD";

    fn n_header(_: &str) -> usize {
        4
    }

    fn write(list: &mut PostList<'_, Self>, vector: &Value) -> Result<(), PostError> {
        let (to, flags) = (handle(&vector["ud"]), flags(vector));
        let request = match vector["opcode"].as_str().expect("opcode") {
            "SEND" => list.send(1, &to, flags)?,
            "SEND_IMM" => list.send_imm(1, &to, imm(vector), flags)?,
            other => panic!("opcode {other}"),
        };
        finish(request, vector)
    }

    fn decode(bytes: &[u8]) -> Result<DecodedWqe<'_>, DecodeError> {
        wqe::decode_as(bytes, Peer::Av)
    }
}

/// A handle of an InfiniBand port, from its parts.
fn handle(ud: &Value) -> AddressHandle {
    let part = |name: &str| number(&ud[name]);
    let mut av = AvSeg::new()
        .with_ext(true)
        // `MLX5_STAT_RATE_OFFSET`.
        .with_stat_rate(if part("static_rate") == 0 { 0 } else { part("static_rate") as u8 + 5 })
        .with_sl(part("sl") as u8)
        .with_mlid(part("src_path_bits") as u8)
        .with_rlid_or_udp_sport(part("dlid") as u16);
    let grh = &ud["grh"];
    if grh.is_object() {
        av = av
            .with_grh(true)
            .with_src_addr_index(number(&grh["sgid_index"]) as u8)
            .with_hop_limit(number(&grh["hop_limit"]) as u8)
            .with_tclass(number(&grh["traffic_class"]) as u8)
            .with_flow_label(number(&grh["flow_label"]) as u32)
            .with_rgid(bytes(&grh["dgid"]).try_into().expect("16 bytes"));
    }
    AddressHandle::new(av).with_peer(Qpn::new(part("remote_qpn") as u32), part("qkey") as u32)
}

/// Which bytes of the WQE libmlx5 wrote: see the head of this file.
fn written<T: Vectors>(vector: &Value, len: usize) -> Vec<bool> {
    let mut written = vec![true; len];
    let opcode = vector["opcode"].as_str().unwrap();
    if vector["api"] == "ibv_wr"
        && !["SEND_IMM", "SEND_INVAL", "RDMA_WRITE_IMM", "LOCAL_INV"].contains(&opcode)
    {
        written[12..16].fill(false);
    }
    if opcode == "LOCAL_INV" {
        // Of the memory key context, what its mask does not name.
        written[65..68].fill(false);
        written[72..].fill(false);
    }
    if opcode == "ATOMIC_FA" {
        written[40..48].fill(false);
    }
    if let Some(data) = vector["inline"].as_str() {
        let header = 16 * T::n_header(opcode);
        if !data.is_empty() {
            written[header + 4 + data.len() / 2..].fill(false);
        }
    }
    written
}

/// What a transport's requests came to.
#[derive(Debug, PartialEq, Eq)]
struct Count {
    equal: usize,
    wrapped: usize,
    blue_flame: usize,
}

/// Posts all requests of a transport, but those that `passed_over` names.
fn send_requests<T: Vectors>(passed_over: &[&str]) -> Count {
    let vectors = lines(include_str!("data/wqe-vectors.jsonl"));
    let mut by_queue: BTreeMap<u64, (Send<T>, u32)> = BTreeMap::new();
    let (mut n_equal, mut n_wrapped, mut n_blue_flame) = (0, 0, 0);
    for vector in vectors.iter().filter(|v| v["kind"] == "send" && v["transport"] == T::NAME) {
        if passed_over.contains(&vector["opcode"].as_str().unwrap()) {
            continue;
        }
        let id = vector["id"].as_str().unwrap();
        let qpn = number(&vector["qpn"]);
        let n_wqebbs = number(&vector["ring_wqebbs"]) as usize;
        let (send, pi) = by_queue.entry(qpn).or_insert_with(|| {
            let log_wq_size = n_wqebbs.ilog2() as u8;
            (Send::of(SendOptions { qpn: qpn as u32, log_wq_size, ..SendOptions::default() }), 0)
        });
        // On to the vector's place, the counter's wrap included.
        let ahead = (number(&vector["wqe_index"]) as u16).wrapping_sub(*pi as u16);
        let index = pi.wrapping_add(u32::from(ahead));
        send.advance(pi, index);
        send.ring.fill(RING_FILL);

        let mut list = send.queue.post_list();
        T::write(&mut list, vector).unwrap_or_else(|e| panic!("{id}: {e}"));
        list.ring();

        let expected = bytes(&vector["wqe"]);
        let wqe = send.wqe(index as usize, expected.len());
        let written = written::<T>(vector, expected.len());
        for i in 0..expected.len() {
            assert!(!written[i] || wqe[i] == expected[i], "{id} byte {i}:\n{wqe:02x?}\n{expected:02x?}");
        }
        // Whole WQEBBs: what follows the data was not touched.
        let used_wqebbs = number(&vector["wqebbs"]) as usize;
        let padding_at = match vector["inline"].is_string() {
            true => written.iter().rposition(|w| *w).unwrap() + 1,
            false => expected.len(),
        };
        let all = send.wqe(index as usize, n_wqebbs * 64);
        assert!(all[padding_at..].iter().all(|b| *b == RING_FILL), "{id}: wrote past the WQE's end");

        let decoded = T::decode(&expected).unwrap_or_else(|e| panic!("{id}: {e}"));
        let n_sges = decoded.segments().filter(|s| matches!(s, Segment::Data(_))).count();
        let named = vector["sges"].as_array().map_or(0, |s| s.iter().filter(|s| s["length"] != 0).count());
        assert_eq!(n_sges, named, "{id}:\n{decoded}");
        let inline = decoded.segments().find_map(|s| match s {
            Segment::Inline { data, .. } => Some(data.to_vec()),
            _ => None,
        });
        assert_eq!(inline.unwrap_or_default(), vector.get("inline").map_or(vec![], bytes), "{id}");

        assert_eq!(send.record.read(4, 4), bytes(&vector["record"]), "{id}: record");
        assert_eq!(send.record.read(0, 4), [0; 4], "{id}: the receive word");

        let register = send.take_register();
        let expected_register = bytes(&vector["register"]);
        assert_eq!(register.len(), expected_register.len(), "{id}: register");
        let n = expected.len().min(register.len());
        for i in 0..n {
            assert!(!written[i] || register[i] == expected_register[i], "{id}: register byte {i}");
        }
        assert_ne!(RING_FILL, UAR_FILL);
        if register.len() > 8 {
            assert_eq!(register, all[..register.len()], "{id}: BlueFlame is what the ring holds");
            n_blue_flame += 1;
        }

        if index as usize % n_wqebbs + used_wqebbs > n_wqebbs {
            n_wrapped += 1;
        }
        *pi = index + used_wqebbs as u32;
        assert_eq!(send.retire(index).unwrap().n_freed, used_wqebbs as u32, "{id}");
        n_equal += 1;
    }
    Count { equal: n_equal, wrapped: n_wrapped, blue_flame: n_blue_flame }
}

#[test]
fn send_requests_are_encoded_as_libmlx5_does() {
    let count = send_requests::<Rc>(&[]);
    assert_eq!(count.equal, 726);
    assert!(count.wrapped >= 10 && count.blue_flame >= 600, "{count:?}");
    // libmlx5 takes SEND with invalidate on UC too, which InfiniBand does not have there (9.4.1).
    let count = send_requests::<Uc>(&["SEND_INVAL"]);
    assert_eq!(count.equal, 134);
    let count = send_requests::<Ud>(&[]);
    assert_eq!((count.equal, count.wrapped), (116, 16));
}

#[test]
fn receive_requests_are_encoded_as_libmlx5_does() {
    let vectors = lines(include_str!("data/wqe-vectors.jsonl"));
    let mut by_queue: BTreeMap<u64, (Recv, u16)> = BTreeMap::new();
    let mut n_equal = 0;
    for vector in vectors.iter().filter(|v| v["kind"] == "recv") {
        let id = vector["id"].as_str().unwrap();
        let qpn = number(&vector["qpn"]);
        let stride = number(&vector["stride"]) as usize;
        let (recv, pi) = by_queue
            .entry(qpn)
            .or_insert_with(|| (Recv::new(qpn as u32, 8, stride.ilog2() as u8, (stride / 16) as u8), 0));
        let index = number(&vector["index"]) as u16;
        while *pi != index {
            recv.queue.post(0, &[]).unwrap();
            recv.retire().unwrap();
            *pi += 1;
        }
        let before = recv.ring.read(usize::from(index) % 256 * stride, stride);
        let mut list = recv.queue.post_list();
        let mut request = list.recv(u64::from(index)).unwrap();
        for sge in vector["sges"].as_array().unwrap() {
            let (lkey, addr, len) = (number(&sge["lkey"]), number(&sge["addr"]), number(&sge["length"]));
            // SAFETY: no device reads the ring.
            request = unsafe { request.sge(Lkey::new(lkey as u32), addr, len as u32) }.unwrap();
        }
        request.finish();
        list.publish();

        let expected = bytes(&vector["wqe"]);
        let slot = recv.ring.read(usize::from(index) % 256 * stride, stride);
        assert_eq!(slot[..expected.len()], expected, "{id}");
        assert_eq!(slot[expected.len()..], before[expected.len()..], "{id}: wrote past the terminator");
        assert_eq!(recv.record.read(0, 4), bytes(&vector["record"]), "{id}: record");
        assert_eq!(recv.retire().unwrap().wr_id, u64::from(index), "{id}");
        *pi += 1;
        n_equal += 1;
    }
    assert_eq!(n_equal, 35);
}

/// `ibv_wc_opcode` of a completion.
fn wc_opcode(wc: &Completion<'_>) -> u64 {
    match (wc.opcode(), wc.send_opcode()) {
        (CqeOpcode::REQ, Some(opcode)) => match opcode {
            SendOpcode::RDMA_WRITE | SendOpcode::RDMA_WRITE_IMM => 1,
            SendOpcode::RDMA_READ => 2,
            SendOpcode::ATOMIC_CS => 3,
            SendOpcode::ATOMIC_FA => 4,
            _ => 0,
        },
        (CqeOpcode::RESP_WR_IMM, _) => 129,
        _ => 128,
    }
}

#[test]
fn completions_mean_what_libmlx5_says() {
    let mut n_checked = BTreeMap::<String, usize>::new();
    for vector in lines(include_str!("data/cqe-vectors.jsonl")) {
        let id = vector["id"].as_str().unwrap();
        let size = if vector["cqe_size"] == 128 { CqeSize::B128 } else { CqeSize::B64 };
        let mut cq = Cq::new(1, size);
        let cqe: [u8; 64] = bytes(&vector["cqe"]).try_into().unwrap();
        cq.complete_raw(&cqe);
        let mut done = cq.queue.poll();
        let wc = done.next().unwrap_or_else(|| panic!("{id}: not polled"));
        assert_eq!(u64::from(wc.qpn().get()), number(&vector["qpn"]), "{id}");
        let u32_at = |at: usize| u32::from_be_bytes(cqe[at..at + 4].try_into().unwrap());
        assert_eq!(wc.user_index().get(), u32_at(0x20) & 0xff_ffff, "{id}");
        assert_eq!(wc.timestamp(), u64::from_be_bytes(cqe[0x30..0x38].try_into().unwrap()), "{id}");
        assert_eq!(u32::from(wc.wqe_counter()), u32_at(0x3c) >> 16, "{id}");
        let is_send = vector["case"].as_str().unwrap().starts_with("requester");
        assert_eq!((wc.is_send(), wc.is_recv()), (is_send, !is_send), "{id}");
        match wc.error() {
            Some(error) => {
                assert_eq!(u64::from(wc_status(error.syndrome)), number(&vector["status"]), "{id}: {error}");
                assert_eq!(u64::from(error.vendor_err), number(&vector["vendor_err"]), "{id}");
                assert!(!error.to_string().contains('\n') && error.to_string().contains("vendor_err"));
            }
            None => {
                assert_eq!(number(&vector["status"]), 0, "{id}");
                assert_eq!(wc_opcode(&wc), number(&vector["opcode"]), "{id}");
                if !vector["byte_len"].is_null() {
                    assert_eq!(u64::from(wc.byte_len()), number(&vector["byte_len"]), "{id}");
                }
            }
        }
        if vector["case"] == "responder" {
            let flags = (wc.imm().is_some() as u64) << 1 | (wc.invalidated_rkey().is_some() as u64) << 3;
            let source = wc.source().unwrap_or_else(|| panic!("{id}: no source"));
            assert_eq!(flags | source.grh as u64, number(&vector["wc_flags"]), "{id}");
            assert_eq!(wc.imm().map(u64::from), vector.get("imm").map(number), "{id}");
            let rkey = wc.invalidated_rkey().map(|rkey| u64::from(rkey.get()));
            assert_eq!(rkey, vector.get("invalidated_rkey").map(number), "{id}");
            assert_eq!(u64::from(source.qpn.get()), number(&vector["src_qp"]), "{id}");
            assert_eq!(u64::from(source.slid), number(&vector["slid"]), "{id}");
            assert_eq!(u64::from(source.sl), number(&vector["sl"]), "{id}");
            assert_eq!(u64::from(source.path_bits), number(&vector["dlid_path_bits"]), "{id}");
        }
        assert!(done.next().is_none(), "{id}");
        *n_checked.entry(vector["transport"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert_eq!(
        n_checked.into_iter().collect::<Vec<_>>(),
        [("RC".to_owned(), 126), ("UC".to_owned(), 45), ("UD".to_owned(), 41)]
    );
}
