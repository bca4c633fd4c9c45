//! `--explain`: the first WQE, its doorbell and its CQE, byte by byte and field by field.

use mlx5_direct::{
    cqe::CQE_BYTES,
    mlx5::context::ServiceType,
    queue::{Completion, SendQueue, Transport},
    wqe::{MAX_WQEBBS, WQEBB_BYTES},
};
use mlx5_model::trace::Hexdump;
use mlx5_study::structure;
use std::io::{self, Write};

/// What was seen first at one end.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    doorbell: Option<Doorbell>,
    requester_cqe: Option<[u8; CQE_BYTES]>,
    responder_cqe: Option<[u8; CQE_BYTES]>,
}

/// The first doorbell and what it was rung for.
#[derive(Debug)]
struct Doorbell {
    /// The first WQE of the list.
    wqe: Vec<u8>,
    /// Whether it has an address vector.
    is_datagram: bool,
    /// Requests in the list.
    n: u32,
    /// First 8 bytes of its last WQE.
    register: [u8; 8],
    /// The producer counter.
    record: u32,
    blue_flame: bool,
}

impl Shown {
    /// A list of `n` requests of one size was rung for, the queue's first if nothing was seen yet.
    pub(crate) fn posted<T: Transport>(&mut self, queue: &SendQueue<T>, n: u32, n_wqebbs: u32) {
        if self.doorbell.is_some() || n == 0 {
            return;
        }
        let mut buffer = [0; MAX_WQEBBS * WQEBB_BYTES];
        let last = n_wqebbs - n_wqebbs / n;
        let register = queue.copy_wqe(last as u16, &mut buffer).and_then(|wqe| wqe.first_chunk().copied());
        let wqe = queue.copy_wqe(0, &mut buffer).map(<[u8]>::to_vec);
        if let (Some(register), Some(wqe)) = (register, wqe) {
            let blue_flame = n == 1 && n_wqebbs <= queue.blue_flame_max_wqebbs();
            let is_datagram = T::SERVICE == ServiceType::UD;
            self.doorbell = Some(Doorbell { wqe, is_datagram, n, register, record: n_wqebbs, blue_flame });
        }
    }

    /// A completion was taken.
    pub(crate) fn completed(&mut self, bytes: [u8; CQE_BYTES], wc: &Completion<'_>) {
        let place = if wc.is_send() { &mut self.requester_cqe } else { &mut self.responder_cqe };
        place.get_or_insert(bytes);
    }

    /// Prints what was sent and how it completed.
    pub(crate) fn print_sent(&self, name: &str, out: &mut impl Write) -> io::Result<()> {
        if let Some(doorbell) = &self.doorbell {
            writeln!(out, "first WQE of {name}, {} bytes:", doorbell.wqe.len())?;
            write!(out, "{}", Hexdump(&doorbell.wqe))?;
            wqe(&doorbell.wqe, doorbell.is_datagram, out)?;
            doorbell.print(name, out)?;
        }
        if let Some(bytes) = &self.requester_cqe {
            cqe("first CQE of a send request", name, bytes, out)?;
        }
        Ok(())
    }

    /// Prints how a message received completed.
    pub(crate) fn print_received(&self, name: &str, out: &mut impl Write) -> io::Result<()> {
        self.responder_cqe
            .iter()
            .try_for_each(|bytes| cqe("first CQE of a receive request", name, bytes, out))
    }
}

impl Doorbell {
    fn print(&self, name: &str, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "its doorbell, at {name}:")?;
        writeln!(
            out,
            "  record    0x{:08x}  send counter: {} WQEBB posted, written first",
            self.record & 0xffff,
            self.record
        )?;
        let register = u64::from_be_bytes(self.register);
        let last = if self.n == 1 { "the WQE".into() } else { format!("the last of {} WQEs", self.n) };
        write!(out, "  register  0x{register:016x}  first 8 bytes of {last}")?;
        if self.blue_flame {
            write!(out, "; rung by BlueFlame: all {} bytes of the WQE", self.wqe.len())?;
        }
        writeln!(out)
    }
}

/// Prints a send WQE, segment by segment. Stops where the bytes do.
fn wqe(bytes: &[u8], is_datagram: bool, out: &mut impl Write) -> io::Result<()> {
    let transport = if is_datagram { structure::Transport::Ud } else { structure::Transport::Rc };
    let parts = structure::wqe(bytes, Some(transport)).map_or_else(Vec::new, |wqe| wqe.structures);
    parts.iter().try_for_each(|part| {
        writeln!(out, " 0x{:02x} {}, {}", part.offset_bytes, part.title, part.desc.prm)?;
        write!(out, "{}", part.desc.explain(&part.bytes))
    })
}

fn cqe(title: &str, name: &str, bytes: &[u8; CQE_BYTES], out: &mut impl Write) -> io::Result<()> {
    let Some(cqe) = structure::cqe(bytes, false) else { return Ok(()) };
    let desc = cqe.structure.desc;
    writeln!(out, "{title}, at {name}, {}:", desc.prm)?;
    write!(out, "{}{}", Hexdump(bytes), desc.explain(bytes))
}
