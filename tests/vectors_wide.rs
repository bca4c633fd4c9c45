//! Bytes that nobody here wrote, of what is rarer: raw packets, memory windows of both types, and keys over
//! pieces of others, as libmlx5 44 encodes them (`tests/data/raw-packet-vectors.jsonl`, `umr-vectors.jsonl`). As in `tests/vectors.rs`, each request goes through the posting path of our
//! queues, at the same place of a ring of the same size, and must give the same WQEs, doorbell record and register.
//!
//! A vector says itself which bytes libmlx5 left as they were (`untouched`). Where they are, ours may differ: the
//! immediate field of `ibv_wr`, the padding behind a header and what of a key's context the mask does not name are 0 here.
//!
//! Where a queue wants heads in requests, libmlx5 copies the first 18 bytes out of the frame; ours is given them.

mod fixture;
#[path = "fixture/vector.rs"]
mod vector;

use fixture::{RING_FILL, Recv, Send, SendOptions};
use mlx5_direct::{
    mlx5::ids::{Lkey, Rkey},
    queue::{
        Bindable, Checksums, Flags, IndirectKey, KeyAccess, Paired, PostError, PostList, QueueId, RawPacket,
        Rc, Remote, Request, Sge, SgeList, Strided, Transport, Uc, Window, WindowAccess, Xrc,
    },
    wqe::{self, Peer, Segment},
};
use serde_json::Value;
use std::{cell::Cell, collections::BTreeMap, num::NonZeroU16};
use vector::{bytes, lines, number};

/// A piece of memory of a vector.
#[derive(Clone, Copy)]
struct Piece {
    lkey: u32,
    addr: u64,
    len_bytes: u32,
}

fn array<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

fn has_flag(wr: &Value, name: &str) -> bool {
    array(wr, "flags").iter().any(|flag| flag == name)
}

fn flags(wr: &Value) -> Flags {
    [("SIGNALED", Flags::SIGNALED), ("FENCE", Flags::FENCE), ("SOLICITED", Flags::SOLICITED)]
        .into_iter()
        .filter(|(name, _)| has_flag(wr, name))
        .fold(Flags::NONE, |all, (_, flag)| all | flag)
}

fn checksums(wr: &Value) -> Checksums {
    if has_flag(wr, "IP_CSUM") { Checksums::ALL } else { Checksums::NONE }
}

fn pieces(wr: &Value) -> Vec<Piece> {
    let piece = |sge: &Value| Piece {
        lkey: number(&sge["lkey"]) as u32,
        addr: number(&sge["addr"]),
        len_bytes: number(&sge["length"]) as u32,
    };
    array(wr, "sges").iter().map(piece).collect()
}

/// Takes the first `n` bytes out of pieces of the memory that the vectors' frames are in.
fn take_head(pieces: &mut Vec<Piece>, n: usize) -> Vec<u8> {
    let mut head = vec![];
    while head.len() < n {
        let piece = pieces.first_mut().expect("a frame of so many bytes");
        let at = piece.addr - 0x2000_0000_0000;
        head.push((11 * at + (at >> 8) + 1) as u8);
        (piece.addr, piece.len_bytes) = (piece.addr + 1, piece.len_bytes - 1);
        if piece.len_bytes == 0 {
            pieces.remove(0);
        }
    }
    head
}

fn sges<'l, 'q, K: SgeList, T: Transport>(
    mut request: Request<'l, 'q, K, T>,
    pieces: &[Piece],
) -> Result<Request<'l, 'q, K, T>, PostError> {
    for piece in pieces {
        // SAFETY: no device reads the ring.
        request = unsafe { request.sge(Lkey::new(piece.lkey), piece.addr, piece.len_bytes)? };
    }
    Ok(request)
}

/// Posts a raw packet of a queue that wants `n_head` bytes of each frame in the request.
fn post_raw(list: &mut PostList<'_, RawPacket>, wr: &Value, n_head: usize) -> Result<(), PostError> {
    let (flags, checksums) = (flags(wr), checksums(wr));
    if wr["opcode"] == "TSO" {
        let mss = NonZeroU16::new(number(&wr["mss"]) as u16).expect("an mss");
        sges(list.lso(1, &bytes(&wr["header"]), mss, checksums, flags)?, &pieces(wr))?.finish();
        return Ok(());
    }
    if !has_flag(wr, "INLINE") {
        let mut pieces = pieces(wr);
        let head = take_head(&mut pieces, n_head);
        sges(list.send_with_header(1, &head, checksums, flags)?, &pieces)?.finish();
        return Ok(());
    }
    let mut buffers: Vec<_> = array(wr, "inline").iter().map(bytes).collect();
    let mut head = vec![];
    for buffer in &mut buffers {
        head.extend(buffer.drain(..buffer.len().min(n_head - head.len())));
    }
    let mut request = list.send_with_header(1, &head, checksums, flags)?.inline(&buffers[0])?;
    for buffer in &buffers[1..] {
        request = request.inline(buffer)?;
    }
    request.finish();
    Ok(())
}

/// Which of `len` bytes libmlx5 wrote.
fn written(wqe: &Value, len: usize) -> Vec<bool> {
    let mut written = vec![true; len];
    for range in array(wqe, "untouched") {
        let (at, n) = (number(&range[0]) as usize, number(&range[1]) as usize);
        written[at..at + n].fill(false);
    }
    written
}

/// A queue of a vector, and the index of its next WQEBB.
struct Queue<T> {
    send: Send<T>,
    pi: u32,
}

impl<T: Transport> Queue<T> {
    fn of(vector: &Value, min_header_bytes: u8) -> Self {
        let mut options = SendOptions {
            qpn: number(&vector["qpn"]) as u32,
            log_wq_size: number(&vector["sq_wqebbs"]).ilog2() as u8,
            ..SendOptions::default()
        };
        options.limits.min_header_bytes = min_header_bytes;
        Self { send: Send::of(options), pi: 0 }
    }

    /// Posts a vector's requests by `post`, one after the other, and compares; gives whether they went over the ring's end.
    fn compare(
        &mut self,
        vector: &Value,
        post: impl Fn(&mut PostList<'_, T>, &Value) -> Result<(), PostError>,
    ) -> bool {
        let id = vector["id"].as_str().expect("id");
        let wqes = array(vector, "wqes");
        let ahead = (number(&wqes[0]["wqe_index"]) as u16).wrapping_sub(self.pi as u16);
        let first = self.pi.wrapping_add(ahead.into());
        self.send.advance(&mut self.pi, first);
        self.send.ring.fill(RING_FILL);

        let mut list = self.send.queue.post_list();
        for wr in array(vector, "wrs") {
            post(&mut list, wr).unwrap_or_else(|e| panic!("{id}: {e}"));
        }
        let n_wqebbs = list.n_wqebbs();
        list.ring();

        let last = wqes.last().expect("a WQE");
        let mut last_index = first;
        for wqe in wqes {
            let expected = bytes(&wqe["hex"]);
            last_index =
                first.wrapping_add((number(&wqe["wqe_index"]) as u16).wrapping_sub(first as u16).into());
            let ours = self.send.wqe(last_index as usize, expected.len());
            let written = written(wqe, expected.len());
            if let Some(at) = (0..expected.len()).find(|i| written[*i] && ours[*i] != expected[*i]) {
                panic!("{id} byte {at}:\nours   {ours:02x?}\ntheirs {expected:02x?}");
            }
        }
        self.pi = first.wrapping_add(n_wqebbs);
        assert_eq!(self.pi as u16, number(&vector["producer_after"]) as u16, "{id}");
        assert_eq!(self.send.record.read(4, 4), bytes(&vector["doorbell_record"]), "{id}: record");

        let register = self.send.take_register();
        let expected = bytes(&vector["uar"]["hex"]);
        assert_eq!(register.len(), expected.len(), "{id}: register");
        if vector["uar"]["method"] == "doorbell" {
            assert_eq!(register, expected, "{id}: doorbell");
        } else {
            assert_eq!(register, self.send.wqe(last_index as usize, register.len()), "{id}: BlueFlame");
            assert!(register.len() >= bytes(&last["hex"]).len(), "{id}: the whole WQE");
        }
        assert_eq!(self.send.retire(last_index).unwrap().n_freed, n_wqebbs, "{id}");
        let n_ring = self.send.n_wqebbs as u32;
        first % n_ring + n_wqebbs > n_ring
    }
}

#[test]
fn raw_packets_are_encoded_as_libmlx5_does() {
    let mut queues = BTreeMap::<String, Queue<RawPacket>>::new();
    let (mut n_vectors, mut n_requests, mut n_wrapped, mut n_large) = (0, 0, 0, 0);
    for vector in lines(include_str!("data/raw-packet-vectors.jsonl")).iter().filter(|v| v["kind"] != "recv")
    {
        assert!(vector["defect"].is_null());
        let name = vector["queue"].as_str().expect("a queue");
        // `eth_min_inline` of the kernel's answer, L2.
        let n_head = if name == "raw-l2inline" { 18 } else { 0 };
        let queue = queues.entry(name.to_owned()).or_insert_with(|| Queue::of(vector, n_head));
        n_wrapped += usize::from(queue.compare(vector, |list, wr| post_raw(list, wr, n_head.into())));
        n_vectors += 1;
        n_requests += array(vector, "wrs").len();
        n_large += array(vector, "wrs").iter().filter(|wr| wr["opcode"] == "TSO").count();

        for theirs in array(vector, "wqes") {
            let (theirs, wr) = (bytes(&theirs["hex"]), &vector["wrs"][0]);
            let decoded =
                wqe::decode_as(&theirs, Peer::Eth).unwrap_or_else(|e| panic!("{}: {e}", vector["id"]));
            let Some(Segment::Eth { segment, header }) = decoded.segments().nth(1) else {
                panic!("{}: {decoded}", vector["id"]);
            };
            let n_header = usize::from(segment.inline_hdr_sz());
            assert_eq!(header.len(), n_header.saturating_sub(2), "{decoded}");
            if wr["opcode"] == "TSO" {
                let all = [&segment.inline_hdr_start().to_be_bytes(), header].concat();
                assert_eq!(all, bytes(&wr["header"]), "{decoded}");
            } else {
                assert_eq!(n_header, usize::from(n_head), "{decoded}");
            }
        }
    }
    assert_eq!((n_vectors, n_requests, n_large), (344, 350, 85));
    assert!(n_wrapped >= 40, "{n_wrapped}");
}

#[test]
fn receives_of_raw_packets_are_encoded_as_libmlx5_does() {
    let mut recv = Recv::new(0x111, 4, 5, 2);
    let mut n_equal = 0;
    for vector in lines(include_str!("data/raw-packet-vectors.jsonl")).iter().filter(|v| v["kind"] == "recv")
    {
        let (id, wqe) = (&vector["id"], &vector["wqes"][0]);
        let mut list = recv.queue.post_list();
        let mut request = list.recv(1).unwrap();
        for piece in pieces(vector) {
            // SAFETY: no device reads the ring.
            request = unsafe { request.sge(Lkey::new(piece.lkey), piece.addr, piece.len_bytes) }.unwrap();
        }
        request.finish();
        list.publish();
        let expected = bytes(&wqe["hex"]);
        let ours = recv.ring.read(number(&wqe["ring_pos"]) as usize * expected.len(), expected.len());
        let written = written(wqe, expected.len());
        assert!(
            (0..ours.len()).all(|i| !written[i] || ours[i] == expected[i]),
            "{id}:\n{ours:02x?}\n{expected:02x?}"
        );
        assert_eq!(recv.record.read(0, 4), bytes(&vector["doorbell_record"]), "{id}: record");
        recv.retire_at(number(&wqe["wqe_index"]) as u16).unwrap();
        n_equal += 1;
    }
    assert_eq!(n_equal, 3);
}

/// `enum ibv_access_flags` of a vector, as `flag` gives each by its name.
fn access<A: Copy + std::ops::BitOr<Output = A>>(names: &Value, none: A, flag: impl Fn(&str) -> A) -> A {
    let names = names.as_array().expect("access flags");
    names.iter().fold(none, |all, name| all | flag(name.as_str().expect("a name")))
}

/// Posts a request that changes a key, of a queue pair with this identity.
fn post_change<T: Paired>(
    list: &mut PostList<'_, T>,
    wr: &Value,
    flags: Flags,
    owner: QueueId,
) -> Result<(), PostError> {
    if wr["opcode"] == "BIND_MW" {
        let bind = &wr["bind"];
        let (addr, len_bytes) = (number(&bind["addr"]), number(&bind["length"]));
        let lkey = Lkey::new(number(&bind["mr_lkey"]) as u32);
        let mut window = Window::new(Rkey::new(number(&wr["mw_rkey"]) as u32));
        let access = access(&bind["access"], WindowAccess::default(), |name| match name {
            "REMOTE_WRITE" => WindowAccess::REMOTE_WRITE,
            "REMOTE_READ" => WindowAccess::REMOTE_READ,
            "REMOTE_ATOMIC" => WindowAccess::REMOTE_ATOMIC,
            "ZERO_BASED" => WindowAccess::ZERO_BASED,
            other => panic!("access {other}"),
        });
        match (number(&wr["mw_type"]), len_bytes) {
            (1, 0) => list.close_mw_type_1(1, &mut window, flags)?.finish(),
            (1, _) => {
                let memory = Sge { lkey, addr, len_bytes: len_bytes as u32 };
                // SAFETY: no device reads the ring.
                unsafe { list.bind_mw_type_1(1, &mut window, memory, access, flags)? }.finish();
            }
            _ => {
                // SAFETY: no device reads the ring.
                let memory = unsafe { Bindable::new(owner, lkey, addr, len_bytes) };
                list.bind_mw(1, &mut window, &memory.view(0..len_bytes, access), flags)?.finish();
            }
        }
        assert_eq!(u64::from(window.rkey().get()), number(&wr["new_rkey"]));
        return Ok(());
    }
    let key = IndirectKey::new(Rkey::new(number(&wr["mkey"]) as u32), 64);
    let access = access(&wr["access"], KeyAccess::LOCAL_READ, |name| match name {
        "LOCAL_WRITE" => KeyAccess::LOCAL_WRITE,
        "REMOTE_WRITE" => KeyAccess::REMOTE_WRITE,
        "REMOTE_READ" => KeyAccess::REMOTE_READ,
        "REMOTE_ATOMIC" => KeyAccess::REMOTE_ATOMIC,
        other => panic!("access {other}"),
    });
    let strided: Vec<_> = array(wr, "interleaved")
        .iter()
        .map(|piece| Strided {
            lkey: Lkey::new(number(&piece["lkey"]) as u32),
            addr: number(&piece["addr"]),
            len_bytes: number(&piece["bytes_count"]) as u16,
            skip_bytes: number(&piece["bytes_skip"]) as u16,
        })
        .collect();
    let pieces: Vec<_> = pieces(wr)
        .into_iter()
        .map(|piece| Sge { lkey: Lkey::new(piece.lkey), addr: piece.addr, len_bytes: piece.len_bytes })
        .collect();
    // SAFETY: no device reads the ring.
    let request = unsafe {
        match strided.is_empty() {
            true => list.umr_list(1, key, &pieces, access, flags)?,
            false => {
                list.umr_interleaved(1, key, number(&wr["repeat_count"]) as u32, &strided, access, flags)?
            }
        }
    };
    request.finish();
    Ok(())
}

/// A request of the vectors that change keys, or one that follows such a change.
trait Changes: Paired {
    const NAME: &'static str;
    fn follow(list: &mut PostList<'_, Self>, wr: &Value, flags: Flags) -> Result<(), PostError>;
}

impl Changes for Rc {
    const NAME: &'static str = "RC";

    fn follow(list: &mut PostList<'_, Self>, wr: &Value, flags: Flags) -> Result<(), PostError> {
        let request = match wr["opcode"].as_str().expect("opcode") {
            "SEND" => list.send(1, flags)?,
            "RDMA_WRITE" => {
                let rkey = Rkey::new(number(&wr["rkey"]) as u32);
                list.rdma_write(1, Remote { addr: number(&wr["remote_addr"]), rkey }, flags)?
            }
            other => panic!("opcode {other}"),
        };
        sges(request, &pieces(wr))?.finish();
        Ok(())
    }
}

impl Changes for Uc {
    const NAME: &'static str = "UC";

    fn follow(_: &mut PostList<'_, Self>, wr: &Value, _: Flags) -> Result<(), PostError> {
        panic!("no vector of UC goes on with {wr}")
    }
}

impl Changes for Xrc {
    const NAME: &'static str = "XRC";

    fn follow(_: &mut PostList<'_, Self>, wr: &Value, _: Flags) -> Result<(), PostError> {
        panic!("no vector of XRC goes on with {wr}")
    }
}

/// A bind's new low byte is what the program says, and here always the next one: the vector with that in its WQE.
fn with_next_name(vector: &Value) -> Value {
    let mut vector = vector.clone();
    let wr = &mut vector["wrs"][0];
    if wr["opcode"] == "BIND_MW" {
        let old = number(&wr["mw_rkey"]);
        let new = old & !0xff | (old + 1) & 0xff;
        let drawn = number(&wr["new_rkey"]) as u8;
        wr["new_rkey"] = format!("0x{new:x}").into();
        // `mkey_7_0` of the context, in the second WQEBB.
        let mut hex = vector["wqes"][0]["hex"].as_str().expect("hex").to_owned();
        assert_eq!(hex[142..144], format!("{drawn:02x}"));
        hex.replace_range(142..144, &format!("{:02x}", new as u8));
        vector["wqes"][0]["hex"] = hex.into();
    }
    vector
}

/// Posts a transport's vectors of key changes; gives how many, and those over the ring's end.
fn changes<T: Changes>() -> (usize, usize) {
    let mut queue: Option<Queue<T>> = None;
    let (mut n_vectors, mut n_wrapped) = (0, 0);
    for vector in lines(include_str!("data/umr-vectors.jsonl")).iter().filter(|v| v["transport"] == T::NAME) {
        let wr = &vector["wrs"][0];
        // A bind of type 2 to nothing is `local_inv` here, under the same rkey. The right to write locally is no right of a
        // window's, though libmlx5 would grant it.
        let is_unbind = wr["mw_type"] == 2 && number(&wr["bind"]["length"]) == 0;
        if is_unbind || array(&wr["bind"], "access").iter().any(|name| name == "LOCAL_WRITE") {
            continue;
        }
        let vector = &with_next_name(vector);
        let queue = queue.get_or_insert_with(|| Queue::of(vector, 0));
        let owner = queue.send.queue.id();
        let pending = Cell::new(number(&vector["small_fence_pending"]) != 0);
        let wrapped = queue.compare(vector, |list, wr| {
            let mut flags = flags(wr);
            if pending.replace(false) {
                flags = flags | Flags::AFTER_INVALIDATE;
            }
            let opcode = wr["opcode"].as_str().expect("opcode");
            pending.set(["BIND_MW", "MR_LIST", "MR_INTERLEAVED", "MKEY_CONFIGURE"].contains(&opcode));
            match pending.get() {
                true => post_change(list, wr, flags, owner),
                false => T::follow(list, wr, flags),
            }
        });
        n_wrapped += usize::from(wrapped);
        n_vectors += 1;
        let first = bytes(&vector["wqes"][0]["hex"]);
        let decoded = wqe::decode(&first).unwrap_or_else(|e| panic!("{}: {e}", vector["id"]));
        let n = decoded.segments().filter(|s| matches!(s, Segment::Klm(_) | Segment::RepeatEntry(_))).count();
        let wanted = match wr["opcode"].as_str() {
            Some("BIND_MW") => usize::from(number(&wr["bind"]["length"]) != 0),
            _ => array(wr, "sges").len() + array(wr, "interleaved").len(),
        };
        assert_eq!(n, wanted, "{}: {decoded}", vector["id"]);
    }
    (n_vectors, n_wrapped)
}

#[test]
fn changes_of_keys_are_encoded_as_libmlx5_does() {
    let counts = (changes::<Rc>(), changes::<Uc>(), changes::<Xrc>());
    // Vectors, and those of them over the ring's end.
    assert_eq!(counts, ((38, 11), (6, 1), (14, 3)));
}
