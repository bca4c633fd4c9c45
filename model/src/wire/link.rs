//! The in-memory cable: ports, a queue to each, and a place to interfere with frames on their way.

use std::collections::VecDeque;

/// A port of a [`Wire`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Port(pub usize);

/// What becomes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Arrives at once, in order.
    Deliver,
    /// Never arrives.
    Drop,
    /// Arrives `copies` times (0 is a drop).
    Duplicate {
        /// How often.
        copies: u32,
    },
    /// Arrives this many nanoseconds later.
    Delay {
        /// Nanoseconds.
        ns: u64,
    },
    /// Arrives after `frames` later frames of its direction, or after [`REORDER_LIMIT_NS`].
    Reorder {
        /// How many frames overtake it.
        frames: u32,
    },
}

/// How long a reordered frame waits for frames that do not come: 20 µs.
pub const REORDER_LIMIT_NS: u64 = 20_000;

/// Decides about each frame, and may change its bytes first. Closures will do.
pub trait Interference: Send {
    /// A frame goes from one port to another.
    fn frame(&mut self, from: Port, to: Port, frame: &mut Vec<u8>) -> Fate;
}

impl<F: FnMut(Port, Port, &mut Vec<u8>) -> Fate + Send> Interference for F {
    fn frame(&mut self, from: Port, to: Port, frame: &mut Vec<u8>) -> Fate {
        self(from, to, frame)
    }
}

/// A frame on its way.
struct Held {
    from: Port,
    frame: Vec<u8>,
    /// Frames of its direction that may still overtake it.
    overtakers: u32,
    due_ns: u64,
}

/// Whom a port is to be given frames for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// Ethernet: frames to this MAC.
    Mac([u8; 6]),
    /// InfiniBand: packets to this LID and the `2^lmc - 1` after it. A port without a LID has 0.
    Lid {
        /// First LID.
        lid: u16,
        /// Log2 of how many.
        lmc: u8,
    },
}

/// `LRH.DLID` of an InfiniBand packet; 0, which is nobody's, if it is cut off before.
pub(crate) fn dest_lid(packet: &[u8]) -> u16 {
    packet.get(2..4).map_or(0, |lid| u16::from_be_bytes([lid[0], lid[1]]))
}

impl Address {
    /// Whether a frame that was sent on the same link is for this address.
    fn is_dest_of(self, frame: &[u8]) -> bool {
        match self {
            Self::Mac(mac) => frame.starts_with(&mac),
            Self::Lid { lid, lmc } => {
                let dest = dest_lid(frame);
                lid != 0 && dest >> lmc == lid >> lmc
            }
        }
    }
}

#[derive(Default)]
struct End {
    /// None for an uplink, behind which any number of addresses may be.
    address: Option<Address>,
    arrived: VecDeque<Vec<u8>>,
    held: Vec<Held>,
    n_lost: u64,
}

/// Frames queued for a port at most; more are lost, as in a switch without flow control.
pub const QUEUE_LIMIT_FRAMES: usize = 4096;

/// Ports joined by a switch without memory of its own: a frame goes to the port that has its destination
/// address (its own port: loopback), or to all others if none has.
#[derive(Default)]
pub struct Wire {
    ends: Vec<End>,
    interference: Option<Box<dyn Interference>>,
    spare: Vec<Vec<u8>>,
}

impl Wire {
    /// A wire without ports.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a port.
    pub fn add_port(&mut self, address: Address) -> Port {
        self.ends.push(End { address: Some(address), ..End::default() });
        Port(self.ends.len() - 1)
    }

    /// Adds a port that leads elsewhere: it gets what is for none of the others.
    pub fn add_uplink(&mut self) -> Port {
        self.ends.push(End::default());
        Port(self.ends.len() - 1)
    }

    /// Changes a port's address.
    ///
    /// # Panics
    /// If the wire has no such port.
    pub fn set_address(&mut self, port: Port, address: Address) {
        self.ends[port.0].address = Some(address);
    }

    /// A port's MAC; none of an uplink, of a port of InfiniBand, or of one that the wire does not have.
    pub fn mac(&self, port: Port) -> Option<[u8; 6]> {
        match self.ends.get(port.0)?.address? {
            Address::Mac(mac) => Some(mac),
            Address::Lid { .. } => None,
        }
    }

    /// Lets `interference` decide about every frame from now on.
    pub fn interfere(&mut self, interference: Option<Box<dyn Interference>>) {
        self.interference = interference;
    }

    /// Sends a frame from a port.
    ///
    /// # Panics
    /// If the wire has no such port.
    pub fn send(&mut self, from: Port, frame: &[u8], now_ns: u64) {
        assert!(from.0 < self.ends.len(), "no port {from:?}");
        // Too short to be for anybody.
        if frame.len() < 6 {
            return;
        }
        let is_dest = |end: &End| end.address.is_some_and(|address| address.is_dest_of(frame));
        match self.ends.iter().position(is_dest) {
            Some(to) => self.carry(from, Port(to), frame, now_ns),
            None => {
                for to in (0..self.ends.len()).filter(|&to| to != from.0) {
                    self.carry(from, Port(to), frame, now_ns);
                }
            }
        }
    }

    fn carry(&mut self, from: Port, to: Port, bytes: &[u8], now_ns: u64) {
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.clear();
        frame.extend_from_slice(bytes);
        let fate = match &mut self.interference {
            Some(interference) => interference.frame(from, to, &mut frame),
            None => Fate::Deliver,
        };
        let end = &mut self.ends[to.0];
        match fate {
            Fate::Deliver => end.arrive(frame),
            Fate::Drop | Fate::Duplicate { copies: 0 } => {
                self.spare.push(frame);
                return;
            }
            Fate::Duplicate { copies } => {
                for _ in 1..copies {
                    end.arrive(frame.clone());
                }
                end.arrive(frame);
            }
            Fate::Delay { ns } => {
                let due_ns = now_ns.saturating_add(ns);
                end.held.push(Held { from, frame, overtakers: u32::MAX, due_ns });
                return;
            }
            Fate::Reorder { frames } => {
                let due_ns = now_ns.saturating_add(REORDER_LIMIT_NS);
                end.held.push(Held { from, frame, overtakers: frames, due_ns });
                return;
            }
        }
        end.overtaken(from);
    }

    /// The next frame that has arrived at a port. Give its buffer back with [`recycle`](Self::recycle).
    ///
    /// # Panics
    /// If the wire has no such port.
    pub fn receive(&mut self, port: Port, now_ns: u64) -> Option<Vec<u8>> {
        let end = &mut self.ends[port.0];
        if !end.held.is_empty() {
            end.held.sort_by_key(|held| held.due_ns);
            end.release(|held| held.due_ns <= now_ns);
        }
        end.arrived.pop_front()
    }

    /// Takes a frame's buffer back for later frames.
    pub fn recycle(&mut self, frame: Vec<u8>) {
        if self.spare.len() < 64 {
            self.spare.push(frame);
        }
    }

    /// When the next held frame is due.
    pub fn next_deadline(&self) -> Option<u64> {
        self.ends.iter().flat_map(|end| &end.held).map(|held| held.due_ns).min()
    }

    /// Whether a frame waits to be received at any port.
    pub fn has_arrivals(&self) -> bool {
        self.ends.iter().any(|end| !end.arrived.is_empty())
    }

    /// Frames lost at a port because its queue was full.
    ///
    /// # Panics
    /// If the wire has no such port.
    pub fn n_lost(&self, port: Port) -> u64 {
        self.ends[port.0].n_lost
    }
}

impl End {
    fn arrive(&mut self, frame: Vec<u8>) {
        if self.arrived.len() < QUEUE_LIMIT_FRAMES {
            self.arrived.push_back(frame);
        } else {
            self.n_lost += 1;
        }
    }

    /// A frame from `from` has passed those that wait to be overtaken.
    fn overtaken(&mut self, from: Port) {
        for held in self.held.iter_mut().filter(|h| h.from == from && h.overtakers != u32::MAX) {
            held.overtakers = held.overtakers.saturating_sub(1);
        }
        self.release(|held| held.overtakers == 0);
    }

    fn release(&mut self, ready: impl Fn(&Held) -> bool) {
        let mut at = 0;
        while at < self.held.len() {
            if ready(&self.held[at]) {
                let held = self.held.remove(at);
                self.arrive(held.frame);
            } else {
                at += 1;
            }
        }
    }
}
