//! A function with an Ethernet send queue and receive queues, by hand.

use super::rig::{Answer, Cq, Page, Raw, Rig, pages};
use mlx5_model::Model;

const LOG_WQES: u32 = 4;
const BUFFER_BYTES: u64 = 2048;
/// Data segments of a receive WQE.
const SGES: u64 = 2;

/// A ring with a record and a counter.
pub(crate) struct Queue {
    pub(crate) number: u32,
    memory: u64,
    pub(crate) record: u64,
    pi: u16,
}

pub(crate) struct Port {
    pub(crate) rig: Rig,
    pub(crate) domain: u32,
    mac: [u8; 6],
    page: Page,
    pd: u32,
    key: u32,
    send_cq: Cq,
    receive_cq: Cq,
    sq: Queue,
    pub(crate) rq: Queue,
    more_rqs: Vec<Queue>,
    tir: u32,
    buffers: u64,
    frame: u64,
}

/// The two ends of a cable.
pub(crate) fn cable() -> (Port, Port) {
    let model = Model::new("ports=2,bar=trapped".parse().unwrap()).unwrap();
    (Port::new(Rig::on(&model, 0)), Port::new(Rig::on(&model, 1)))
}

impl Port {
    /// `user_index` of the first receive queue; the others count on.
    pub(crate) const FIRST_USER_INDEX: u32 = 0x500;

    fn new(mut rig: Rig) -> Self {
        rig.bring_up();
        let (uar, pd) = (rig.alloc_uar(), rig.alloc_pd());
        let domain = rig.run(Raw::cmd(0x816, 16)).ok().dword(8);
        let tis = rig.run(Raw::cmd(0x912, 192).set(0x20 + 0x24, 23, 0, domain)).ok().dword(8);
        // All of memory, by physical address.
        let key = Raw::cmd(0x200, 272).set(0x10, 11, 10, 3).set(0x14, 31, 8, 0xff_ffff);
        let key = rig.run(key.set(0x1c, 31, 31, 1).set(0x1c, 23, 0, pd)).ok().dword(8) << 8;
        let (eqn, _) = rig.create_eq(uar, 6, 0, 0);
        let (send_cq, receive_cq) = (rig.create_cq(uar, 6, eqn), rig.create_cq(uar, 7, eqn));
        let wq = |rig: &mut Rig, log_stride: u32| {
            let (memory, record) = (rig.alloc(64 << LOG_WQES, 0), rig.alloc(8, 0));
            let wq = Raw::new(192)
                .set(0x00, 31, 28, 1)
                .set(0x08, 23, 0, pd)
                .set(0x0c, 23, 0, uar)
                .set64(0x10, record)
                .set(0x20, 19, 16, log_stride)
                .set(0x20, 4, 0, LOG_WQES);
            (wq, Queue { number: 0, memory, record, pi: 0 })
        };
        let (description, mut sq) = wq(&mut rig, 6);
        let context = Raw::new(240)
            .set(0x00, 28, 28, 1)
            .set(0x00, 26, 24, 1) // L2 inline
            .set(0x08, 23, 0, send_cq.number)
            .set(0x20, 31, 16, 1)
            .set(0x2c, 23, 0, tis)
            .put(0x30, &description.0);
        let create = Raw::cmd(0x904, 272).put(0x20, &context.0).list(&pages(sq.memory, 64 << LOG_WQES));
        sq.number = rig.run(create).ok().dword(8);
        rig.run(Raw::cmd(0x905, 272).set(8, 23, 0, sq.number).set(0x20, 23, 20, 1)).ok();
        let (buffers, frame) = (rig.alloc(BUFFER_BYTES << LOG_WQES, 0xee), rig.alloc(0x4000, 0));
        let (page, mac) = (rig.map_uar(uar), rig.mac());
        let rq = Queue { number: 0, memory: 0, record: 0, pi: 0 };
        let more_rqs = Vec::new();
        let mut port = Self {
            rig,
            domain,
            mac,
            page,
            pd,
            key,
            send_cq,
            receive_cq,
            sq,
            rq,
            more_rqs,
            tir: 0,
            buffers,
            frame,
        };
        port.rq = port.create_rq(Self::FIRST_USER_INDEX);
        let direct = Raw::new(240).set(0x1c, 23, 0, port.rq.number).set(0x24, 23, 0, domain);
        port.tir = port.create_tir(&direct);
        port
    }

    fn create_rq(&mut self, user_index: u32) -> Queue {
        let (memory, record) = (self.rig.alloc(64 << LOG_WQES, 0), self.rig.alloc(8, 0));
        let wq = Raw::new(192)
            .set(0x00, 31, 28, 1)
            .set(0x08, 23, 0, self.pd)
            .set64(0x10, record)
            .set(0x20, 19, 16, 4 + SGES.ilog2())
            .set(0x20, 4, 0, LOG_WQES);
        let context = Raw::new(240)
            .set(0x00, 18, 18, 1) // flush in error
            .set(0x04, 23, 0, user_index)
            .set(0x08, 23, 0, self.receive_cq.number)
            .put(0x30, &wq.0);
        let create = Raw::cmd(0x908, 272).put(0x20, &context.0).list(&pages(memory, (16 * SGES) << LOG_WQES));
        let number = self.rig.run(create).ok().dword(8);
        self.rig.run(Raw::cmd(0x909, 272).set(8, 23, 0, number).set(0x20, 23, 20, 1)).ok();
        Queue { number, memory, record, pi: 0 }
    }

    /// Changes what `select` says of the send queue's context: the syndrome.
    fn modify_sq(&self, select: u64, context: &Raw) -> u32 {
        let input = Raw::cmd(0x905, 272).set(8, 31, 28, 1).set(8, 23, 0, self.sq.number).set64(0x10, select);
        self.rig.run(input.put(0x20, &context.0).set(0x20, 23, 20, 1)).syndrome()
    }

    fn sq_dword(&self, at: usize) -> u32 {
        let query = Raw::cmd(0x907, 16).set(8, 23, 0, self.sq.number);
        self.rig.exec(&query, 272).ok().dword(0x20 + at)
    }

    /// Has the send queue go on at a rate: the syndrome.
    pub(crate) fn set_rate(&self, index: u32) -> u32 {
        self.modify_sq(1, &Raw::new(240).set(0x1c, 15, 0, index))
    }

    /// What QUERY_SQ says is the send queue's rate.
    pub(crate) fn rate(&self) -> u32 {
        self.sq_dword(0x1c) & 0xffff
    }

    /// Puts the send queue into a queue group: the syndrome.
    pub(crate) fn set_queue_group(&self, group: u32) -> u32 {
        self.modify_sq(1 << 2, &Raw::new(240).set(0x20, 15, 0, group))
    }

    /// What QUERY_SQ says is the send queue's group.
    pub(crate) fn queue_group(&self) -> u32 {
        self.sq_dword(0x20) & 0xffff
    }

    /// A further receive queue.
    pub(crate) fn add_rq(&mut self) -> u32 {
        let queue = self.create_rq(Self::FIRST_USER_INDEX + 1 + self.more_rqs.len() as u32);
        self.more_rqs.push(queue);
        self.more_rqs.last().unwrap().number
    }

    pub(crate) fn tir(&self) -> u32 {
        self.tir
    }

    pub(crate) fn create_tir(&self, context: &Raw) -> u32 {
        self.rig.run(Raw::cmd(0x900, 272).put(0x20, &context.0)).ok().dword(8)
    }

    pub(crate) fn create_rqt(&self, rqs: &[u32]) -> u32 {
        let n = rqs.len() as u32;
        let mut input = Raw::cmd(0x916, 272).set(0x20 + 0x14, 15, 0, n).set(0x20 + 0x18, 15, 0, n);
        input.0.extend(rqs.iter().flat_map(|rq| rq.to_be_bytes()));
        self.rig.run(input).ok().dword(8)
    }

    pub(crate) fn create_table(&self, level: u32) -> u32 {
        let input = Raw::cmd(0x930, 64).set(0x18, 23, 16, level).set(0x18, 7, 0, 3);
        self.rig.run(input).ok().dword(8) & 0xff_ffff
    }

    pub(crate) fn set_root(&self, table: u32) {
        self.rig.run(Raw::cmd(0x92f, 64).set(0x14, 23, 0, table)).ok();
    }

    pub(crate) fn set_miss(&self, table: u32, next: u32) {
        let input = Raw::cmd(0x93c, 64).set(0x0c, 15, 0, 1).set(0x14, 23, 0, table);
        self.rig.run(input.set(0x18, 27, 24, 1).set(0x1c, 23, 0, next)).ok();
    }

    pub(crate) fn group(&self, table: u32, first: u32, last: u32, enable: u32, criteria: &Raw) -> Answer {
        let input = Raw::cmd(0x933, 1024)
            .set(0x14, 23, 0, table)
            .set(0x1c, 31, 0, first)
            .set(0x24, 31, 0, last)
            .set(0x3c, 7, 0, enable)
            .put(0x40, &criteria.0);
        self.rig.run(input)
    }

    pub(crate) fn create_group(&self, table: u32, first: u32, last: u32, enable: u32, criteria: &Raw) -> u32 {
        self.group(table, first, last, enable, criteria).ok().dword(8) & 0xff_ffff
    }

    pub(crate) fn flow_context(&self, table: u32, index: u32, context: &Raw) -> Answer {
        let mut input = Raw::cmd(0x936, 64).set(0x14, 23, 0, table).set(0x20, 31, 0, index);
        input.0.extend(&context.0);
        self.rig.run(input)
    }

    pub(crate) fn set_flow_context(&self, table: u32, index: u32, context: &Raw) {
        self.flow_context(table, index, context).ok();
    }

    /// An entry with one destination, as kind and number, or none.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn set_entry(
        &self,
        table: u32,
        group: u32,
        index: u32,
        value: &Raw,
        action: u32,
        flow_tag: u32,
        destination: Option<(u64, u32)>,
    ) {
        let context = Raw::new(768)
            .set(0x04, 31, 0, group)
            .set(0x08, 23, 0, flow_tag)
            .set(0x0c, 15, 0, action)
            .set(0x10, 23, 0, destination.is_some().into())
            .put(0x40, &value.0);
        let list: Vec<u64> = destination.iter().map(|(kind, id)| kind << 56 | u64::from(*id) << 32).collect();
        self.set_flow_context(table, index, &context.list(&list));
    }

    /// Everything that comes in goes to a TIR.
    pub(crate) fn take_all_to(&self, tir: u32) {
        let table = self.create_table(0);
        self.set_root(table);
        let all = self.create_group(table, 0, 0, 0, &Raw::new(512));
        self.set_entry(table, all, 0, &Raw::new(512), 4, 0, Some((2, tir)));
    }

    pub(crate) fn take_all(&self) {
        self.take_all_to(self.tir);
    }

    pub(crate) fn modify_rq(&self, select: u64, context: Raw) {
        let context = context.set(0, 23, 20, 1);
        let input = Raw::cmd(0x909, 272).set(8, 31, 28, 1).set(8, 23, 0, self.rq.number).set64(0x10, select);
        self.rig.run(input.put(0x20, &context.0)).ok();
    }

    pub(crate) fn query_rq_state(&self) -> u32 {
        self.rig.exec(&Raw::cmd(0x90b, 16).set(8, 23, 0, self.rq.number), 272).ok().dword(0x20) >> 20 & 0xf
    }

    /// Posts a buffer of this length, in two pieces.
    pub(crate) fn post(&mut self, len_bytes: u32) {
        self.post_with_key(len_bytes, self.key);
    }

    pub(crate) fn post_with_key(&mut self, len_bytes: u32, key: u32) {
        let slot = u64::from(self.rq.pi) & ((1 << LOG_WQES) - 1);
        let buffer = self.buffers + slot * BUFFER_BYTES;
        post(&self.rig, &mut self.rq, buffer, len_bytes, key);
    }

    /// The same on queue `n`, 0 being the first.
    pub(crate) fn post_on(&mut self, n: usize, len_bytes: u32) {
        let queue = if n == 0 { &mut self.rq } else { &mut self.more_rqs[n - 1] };
        post(&self.rig, queue, self.buffers, len_bytes, self.key);
    }

    pub(crate) fn buffer(&self, slot: u64) -> Vec<u8> {
        self.rig.read(self.buffers + slot * BUFFER_BYTES, BUFFER_BYTES as usize)
    }

    /// The next receive CQE.
    #[track_caller]
    pub(crate) fn receive(&mut self) -> Vec<u8> {
        self.receive_cq.wait(&self.rig)
    }

    /// The next receive CQE, if what is on its way brings one.
    pub(crate) fn received(&mut self) -> Option<Vec<u8>> {
        self.settle();
        self.receive_cq.poll(&self.rig, true)
    }

    /// Lets everything that was sent arrive: a frame is there after two rounds of the engine, and each command takes one.
    pub(crate) fn settle(&self) {
        for _ in 0..3 {
            self.rig.run(Raw::cmd(0x80d, 16)).ok();
        }
    }

    /// A frame to a port: its addresses before `rest`, which begins with the ethertype.
    pub(crate) fn to(&self, dest: &Self, rest: &[u8]) -> Vec<u8> {
        [&dest.mac[..], &self.mac, rest].concat()
    }

    /// Sends with `n_inline` bytes in the WQE, and returns the CQE.
    fn transmit(&mut self, opcode: u8, eth: Raw, frame: &[u8], n_inline: usize) -> Vec<u8> {
        self.rig.write(self.frame, frame);
        let n_behind = n_inline.saturating_sub(2).next_multiple_of(16);
        let ds = 3 + n_behind / 16;
        let slot = u64::from(self.sq.pi) & ((1 << LOG_WQES) - 1);
        let eth =
            if n_inline == 0 { eth } else { eth.set(0xc, 31, 16, n_inline as u32).put(0xe, &frame[..2]) };
        let mut wqe = Raw::new(128)
            .set(0, 23, 8, self.sq.pi.into())
            .set(0, 7, 0, opcode.into())
            .set(4, 31, 8, self.sq.number)
            .set(4, 5, 0, ds as u32)
            .set(8, 3, 2, 2)
            .put(0x10, &eth.0);
        if n_inline > 2 {
            wqe = wqe.put(0x20, &frame[2..n_inline]);
        }
        let data = 0x20 + n_behind;
        let wqe = wqe
            .set(data, 30, 0, (frame.len() - n_inline) as u32)
            .set(data + 4, 31, 0, self.key)
            .set64(data + 8, self.frame + n_inline as u64);
        let n_wqebbs = ds.div_ceil(4);
        for (n, wqebb) in wqe.0.chunks(64).take(n_wqebbs).enumerate() {
            let slot = (slot + n as u64) & ((1 << LOG_WQES) - 1);
            self.rig.write(self.sq.memory + slot * 64, wqebb);
        }
        self.sq.pi = self.sq.pi.wrapping_add(n_wqebbs as u16);
        self.rig.write(self.sq.record + 4, &u32::from(self.sq.pi).to_be_bytes());
        self.page.ring(wqe.0[..8].try_into().unwrap());
        self.send_cq.wait(&self.rig)
    }

    #[track_caller]
    fn sent(cqe: &[u8]) {
        assert_eq!(cqe[63] >> 4, 0, "REQ: {cqe:x?}");
    }

    /// Sends a frame, with checksums that the device is to fill in.
    #[track_caller]
    pub(crate) fn send(&mut self, frame: &[u8], cs_flags: u32) {
        Self::sent(&self.transmit(0x0a, Raw::new(16).set(4, 31, 24, cs_flags), frame, 18));
    }

    pub(crate) fn send_inline(&mut self, frame: &[u8], n_inline: usize) -> Vec<u8> {
        self.transmit(0x0a, Raw::new(16), frame, n_inline)
    }

    /// Sends with a tag that the device is to insert.
    #[track_caller]
    pub(crate) fn send_tagged(&mut self, frame: &[u8], tci: u32) {
        let eth = Raw::new(16).set(4, 31, 24, 0xc0).set(0xc, 31, 31, 1).set(0xc, 15, 0, tci);
        Self::sent(&self.transmit(0x0a, eth, frame, 0));
    }

    #[track_caller]
    pub(crate) fn send_large(&mut self, head: &[u8], payload: &[u8], mss: u32) {
        Self::sent(&self.try_large(head, payload, mss));
    }

    pub(crate) fn try_large(&mut self, head: &[u8], payload: &[u8], mss: u32) -> Vec<u8> {
        let eth = Raw::new(16).set(4, 31, 24, 0xc0).set(4, 15, 0, mss);
        self.transmit(0x0e, eth, &[head, payload].concat(), head.len())
    }
}

fn post(rig: &Rig, queue: &mut Queue, buffer: u64, len_bytes: u32, key: u32) {
    let slot = u64::from(queue.pi) & ((1 << LOG_WQES) - 1);
    let first = 30.min(len_bytes);
    let wqe = Raw::new(32)
        .set(0x00, 30, 0, first)
        .set(0x04, 31, 0, key)
        .set64(0x08, buffer)
        .set(0x10, 30, 0, len_bytes - first)
        .set(0x14, 31, 0, key)
        .set64(0x18, buffer + u64::from(first));
    rig.write(queue.memory + slot * 16 * SGES, &wqe.0);
    queue.pi = queue.pi.wrapping_add(1);
    rig.write(queue.record, &u32::from(queue.pi).to_be_bytes());
}

/// An IPv4 packet behind its ethertype; its checksum is 0.
pub(crate) fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let total = (20 + payload.len()) as u16;
    let head = [0x08, 0, 0x45, 0, (total >> 8) as u8, total as u8, 0, 7, 0, 0, 64, protocol, 0, 0];
    [&head[..], &[10, 0, 0, 1, 10, 0, 0, 2], payload].concat()
}

/// A UDP datagram to port 7, without a checksum.
pub(crate) fn udp(payload: &[u8]) -> Vec<u8> {
    let len = (8 + payload.len()) as u16;
    [&[0x30, 0, 0, 7, (len >> 8) as u8, len as u8, 0, 0], payload].concat()
}

/// The header of a TCP segment.
pub(crate) fn tcp(seq: u32) -> Vec<u8> {
    [&[0x30, 0, 0, 7], &seq.to_be_bytes()[..], &[0, 0, 0, 1, 0x50, 0x18, 0x10, 0, 0, 0, 0, 0]].concat()
}
