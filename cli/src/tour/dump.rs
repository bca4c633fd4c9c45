//! Bytes of a run as structures, with a note for each field that says something.

use super::{
    page::{Dump, Part, Shown},
    scene::Scene,
};
use mlx5_direct::{
    cqe::{CQE_BYTES, CqeOpcode, CqeSyndrome, ErrorCqe, RequesterCqe, ResponderCqe},
    mlx5::layout::{Desc, Field, Kind, Layout},
    wqe::{CompletionMode, DataSeg, SEGMENT_BYTES, SendOpcode},
};
use mlx5_model::trace::Record;
use mlx5_study::{
    record::Structure,
    structure::{Transport, wqe},
    wire,
};

/// The numbers by which notes know whose a thing is.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    qpns: [u64; 2],
    keys: [u64; 2],
}

impl Facts {
    pub(super) fn of(scene: &Scene) -> Self {
        let both = [&scene.a, &scene.b];
        Self {
            qpns: both.map(|host| host.qp.qpn().get().into()),
            keys: both.map(|host| host.mr.rkey().get().into()),
        }
    }

    fn owner(of: [u64; 2], value: u64) -> Option<&'static str> {
        of.iter().position(|one| *one == value).map(|n| ["A", "B"][n])
    }

    fn qp(&self, value: u64) -> String {
        match Self::owner(self.qpns, value) {
            Some(host) => format!("{host}'s queue pair"),
            None => "nobody's queue pair".into(),
        }
    }

    fn key(&self, value: u64) -> String {
        match Self::owner(self.keys, value) {
            Some(host) => format!("the key of {host}'s memory"),
            None => "no key of anybody".into(),
        }
    }

    /// What a field says here.
    fn note(&self, structure: &Structure, field: &Field) -> Option<String> {
        let Kind::Bits { .. } = field.kind else { return Some(first_sentence(field.doc)) };
        let value = structure.desc.read(field, &structure.bytes);
        let told = match structure.desc.name {
            "CtrlSeg" => self.of_ctrl(field.name, value),
            "RaddrSeg" | "DataSeg" | "InlineSeg" | "AtomicSeg" => {
                self.of_memory(structure, field.name, value)
            }
            "RequesterCqe" | "ResponderCqe" | "ErrorCqe" => self.of_cqe(structure, field.name, value),
            _ => self.of_packet(field.name, value),
        };
        told.or_else(|| (value != 0).then(|| first_sentence(field.doc)))
    }

    fn of_ctrl(&self, field: &str, value: u64) -> Option<String> {
        Some(match field {
            "wqe_index" => "the 64-byte block of the send queue in which the WQE starts; it counts on, the ring starts over".into(),
            "opcode" => match SendOpcode(value as u8) {
                SendOpcode::RDMA_READ => "fetch bytes from the peer's memory",
                SendOpcode::RDMA_WRITE => "put bytes into the peer's memory",
                SendOpcode::RDMA_WRITE_IMM => "put bytes into the peer's memory, and use up one of its receive WQEs to say so",
                SendOpcode::SEND => "send a message; the peer has said where messages go",
                SendOpcode::SEND_IMM => "send a message, with 32 bits beside it",
                SendOpcode::ATOMIC_FA => "add to 8 bytes of the peer's memory, and bring back what was there",
                SendOpcode::ATOMIC_CS => "compare 8 bytes of the peer's memory, and swap if they are equal",
                _ => return None,
            }
            .into(),
            "qpn" => format!("{}, the sender's own: the card knows the peer from the connection", self.qp(value)),
            "ds" => format!("the WQE is {value} × 16 bytes long"),
            "ce" => match CompletionMode(value as u8) {
                CompletionMode::ALWAYS => "signalled (IBV_SEND_SIGNALED): write a CQE when it is done",
                _ => "unsignalled: write no CQE, unless it fails",
            }
            .into(),
            "imm" if value != 0 => "the 32 bits that the receiver's CQE will have".into(),
            _ => return None,
        })
    }

    fn of_memory(&self, structure: &Structure, field: &str, value: u64) -> Option<String> {
        Some(match (structure.desc.name, field) {
            (_, "raddr") => "where, in the peer's memory".into(),
            (_, "rkey") => match Self::owner(self.keys, value) {
                Some(host) => format!("the key of {host}'s memory, by which the peer's card opens it"),
                None => "no key of anybody: the peer's card will find nothing by it".into(),
            },
            ("DataSeg", "byte_count") => format!("{value} bytes of own memory"),
            (_, "lkey") => format!("{}, its owner's own", self.key(value)),
            (_, "addr") => "where, in own memory".into(),
            ("InlineSeg", "inline") => "the bytes are in the WQE: no address, no key".into(),
            ("InlineSeg", "byte_count") => "how many follow".into(),
            (_, "swap_add") => "the value to add or to swap in".into(),
            (_, "compare") => "the value to compare with; add uses none".into(),
            _ => return None,
        })
    }

    fn of_cqe(&self, structure: &Structure, field: &str, value: u64) -> Option<String> {
        Some(match (structure.desc.name, field) {
            (_, "user_index" | "srqn_or_user_index") => {
                "a number that the driver gave the queue pair, to find it again".into()
            }
            ("RequesterCqe", "byte_cnt") if value != 0 => "bytes that came".into(),
            ("ResponderCqe", "byte_cnt") => "length of the message: only here the receiver learns it".into(),
            (_, "timestamp") => "the card's clock".into(),
            (_, "send_wqe_opcode") => "what was asked".into(),
            (_, "qpn") => self.qp(value),
            ("ResponderCqe", "rqpn") => format!("{}, which sent it", self.qp(value)),
            ("ResponderCqe", "wqe_counter") => "which receive WQE was used up, counted from 0".into(),
            (_, "wqe_counter") => "the wqe_index of the WQE that this is about".into(),
            (_, "opcode") => match CqeOpcode(value as u8) {
                CqeOpcode::REQ => "a send request is done, and all before it",
                CqeOpcode::RESP_WR_IMM => "a WRITE with immediate has come",
                CqeOpcode::RESP_SEND => "a message has come",
                CqeOpcode::RESP_SEND_IMM => "a message has come, with 32 bits beside it",
                CqeOpcode::REQ_ERR => "a send request failed",
                CqeOpcode::RESP_ERR => "a receive request failed",
                _ => return None,
            }
            .into(),
            (_, "owner") => {
                "tells new from old: it changes with each lap of the ring, and the first lap's is 0".into()
            }
            ("ResponderCqe", "imm_inval_pkey") if value != 0 => {
                "the 32 bits that came beside the message".into()
            }
            ("ResponderCqe", "sl") if value & 8 != 0 => "on Ethernet: RoCE v2, over IPv6".into(),
            ("ErrorCqe", "syndrome") => match CqeSyndrome(value as u8) {
                CqeSyndrome::REMOTE_ACCESS_ERR => {
                    "the peer's card refused: key, address, length or right is wrong (IBV_WC_REM_ACCESS_ERR)"
                }
                CqeSyndrome::WR_FLUSH_ERR => {
                    "given up: the queue pair was in error already (IBV_WC_WR_FLUSH_ERR)"
                }
                _ => return None,
            }
            .into(),
            ("ErrorCqe", "vendor_err_synd") => {
                "the vendor's own reason; of what it means hardly anything is public".into()
            }
            _ => return None,
        })
    }

    fn of_packet(&self, field: &str, value: u64) -> Option<String> {
        Some(match field {
            "dest_qp" => self.qp(value),
            "r_key" => self.key(value),
            "psn" => "number of this packet in its direction".into(),
            "ack_req" => match value {
                1 => "answer this packet: it is a message's last",
                _ => "no answer asked for",
            }
            .into(),
            _ => return None,
        })
    }
}

/// The first sentence of a documentation comment, as a note.
fn first_sentence(doc: &str) -> String {
    let text = doc.trim().trim_end_matches('.');
    let text = text.split_once(". ").map_or(text, |(first, _)| first).replace('\n', " ").replace('`', "");
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text,
    }
}

impl Facts {
    fn shown(&self, structure: Structure) -> Shown {
        let notes = structure.desc.fields.iter().map(|field| self.note(&structure, field)).collect();
        Shown { structure, notes, brief: None }
    }

    /// A send WQE.
    pub(super) fn wqe(&self, title: impl Into<String>, bytes: &[u8]) -> Part {
        let structures = segments(bytes).into_iter().map(|one| self.shown(one)).collect();
        Part::Shows(Dump { title: title.into(), bytes: bytes.to_vec(), structures, is_text: false })
    }

    /// The send WQEs of a list: the first whole, of the others what differs from the one before.
    pub(super) fn wqes(&self, wqes: &[Vec<u8>]) -> Vec<Part> {
        let first = wqes.iter().take(1).map(|wqe| self.wqe(format!("WQE 0, {} bytes", wqe.len()), wqe));
        let others = wqes.windows(2).zip(1..);
        first.chain(others.map(|(pair, n)| self.wqe_like(format!("WQE {n}"), &pair[1], &pair[0]))).collect()
    }

    /// A send WQE that is like another before it: of its fields only those that differ are told.
    pub(super) fn wqe_like(&self, title: impl Into<String>, bytes: &[u8], like: &[u8]) -> Part {
        let mut shown: Vec<_> = segments(bytes).into_iter().map(|one| self.shown(one)).collect();
        for (one, other) in shown.iter_mut().zip(segments(like)) {
            let differs = |field: &Field| {
                let range = field.bit_offset / 8..(field.bit_offset + field.bit_width).div_ceil(8);
                match field.kind {
                    Kind::Bits { .. } => {
                        one.structure.desc.read(field, &one.structure.bytes)
                            != other.desc.read(field, &other.bytes)
                    }
                    _ => one.structure.bytes[range.clone()] != other.bytes[range],
                }
            };
            let names: Vec<_> = one.structure.desc.fields.iter().filter(|field| differs(field)).collect();
            let told = names.iter().map(|field| {
                let mut text = String::new();
                let _ = std::fmt::Write::write_fmt(
                    &mut text,
                    format_args!("{} {}", field.name, super::page::value(field, &one.structure)),
                );
                text
            });
            let told: Vec<_> = told.collect();
            one.brief = Some(match told.is_empty() {
                true => "the same".into(),
                false => format!("the same but for {}", told.join(", ")),
            });
        }
        Part::Shows(Dump { title: title.into(), bytes: bytes.to_vec(), structures: shown, is_text: false })
    }

    /// A receive WQE: data segments and nothing else.
    pub(super) fn recv_wqe(&self, title: impl Into<String>, bytes: &[u8]) -> Part {
        let (segments, _) = bytes.as_chunks::<SEGMENT_BYTES>();
        let structures = segments
            .iter()
            .enumerate()
            .map(|(n, bytes)| structure("data segment", n * SEGMENT_BYTES, DataSeg::DESC, bytes));
        let structures = structures.map(|one| self.shown(one)).collect();
        Part::Shows(Dump { title: title.into(), bytes: bytes.to_vec(), structures, is_text: false })
    }

    /// A CQE.
    pub(super) fn cqe(&self, title: impl Into<String>, bytes: &[u8]) -> Part {
        let desc = match CqeOpcode(bytes.get(CQE_BYTES - 1).map_or(0, |byte| byte >> 4)) {
            CqeOpcode::REQ => RequesterCqe::DESC,
            CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR => ErrorCqe::DESC,
            _ => ResponderCqe::DESC,
        };
        let structures = vec![self.shown(structure("CQE", 0, desc, bytes))];
        Part::Shows(Dump { title: title.into(), bytes: bytes.to_vec(), structures, is_text: false })
    }

    /// A packet. The headers that every packet of the connection has alike are told in a line, if they were told before.
    pub(super) fn packet(&self, title: impl Into<String>, frame: &[u8], is_first: bool) -> Part {
        let packet = wire::Packet::parse(frame);
        let headers = packet.map(|packet| packet.headers).unwrap_or_default();
        let icrc_is_right = mlx5_model::wire::Packet::parse(frame).is_ok();
        let structures = headers.into_iter().map(|header| {
            let name = header.desc.name;
            let mut shown = self.shown(header);
            shown.brief = match name {
                "Icrc" if icrc_is_right => Some(format!(
                    "{}, a CRC over all that nobody may change on the way; computed again here, it is right",
                    super::page::hex(&shown.structure.bytes)
                )),
                "Icrc" => Some("wrong".into()),
                "Ethernet" | "Ipv6" | "Udp" if !is_first => {
                    Some("as in the first packet, but for directions and lengths".into())
                }
                _ => None,
            };
            shown
        });
        let structures = structures.collect();
        Part::Shows(Dump { title: title.into(), bytes: frame.to_vec(), structures, is_text: false })
    }
}

/// Memory, as text.
pub(super) fn memory(title: impl Into<String>, bytes: Vec<u8>) -> Part {
    Part::Shows(Dump { title: title.into(), bytes, structures: Vec::new(), is_text: true })
}

/// Bytes that are no text.
pub(super) fn plain(title: impl Into<String>, bytes: Vec<u8>) -> Part {
    Part::Shows(Dump { title: title.into(), bytes, structures: Vec::new(), is_text: false })
}

/// In one line: what a packet is, and its number.
pub(super) fn arrow(record: &Record) -> String {
    let words = match mlx5_model::wire::Packet::parse(&record.bytes) {
        Ok(packet) => {
            let bth = packet.headers.bth;
            let name = wire::opcode_name(bth.opcode.0).unwrap_or_default();
            let payload = match packet.payload.len() {
                0 => String::new(),
                n => format!(", {n} bytes of payload"),
            };
            let answer = match packet.headers.aeth {
                Some(aeth) if aeth.syndrome > 0x1f => format!(", {:?}", aeth.what()),
                _ => String::new(),
            };
            format!("{name}, PSN 0x{:x}{payload}{answer}", bth.psn.get())
        }
        Err(error) => error.to_string(),
    };
    match record.function {
        0 => format!("A --- {words:-<66}> B", words = words + " "),
        _ => format!("A <-- {words:-<67} B", words = words + " "),
    }
}

fn structure(title: &str, offset_bytes: usize, desc: &'static Desc, bytes: &[u8]) -> Structure {
    Structure { title: title.into(), offset_bytes, desc, bytes: bytes.to_vec() }
}

/// The segments of a WQE of a reliable connection.
fn segments(bytes: &[u8]) -> Vec<Structure> {
    wqe(bytes, Some(Transport::Rc)).map_or_else(Vec::new, |wqe| wqe.structures)
}
