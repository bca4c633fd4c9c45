//! Objects of libmlx5 on the pretend device, and where their memory is.

use super::{ffi::*, library::Library};
use mlx5_direct::{
    cqe::RequesterCqe,
    mlx5::ids::{Qpn, UserIndex},
};
use std::{
    ffi::c_int,
    ptr::{self, NonNull},
};

/// A context and its protection domain.
pub struct Device {
    pub library: &'static Library,
    pub context: NonNull<IbvContext>,
    pub pd: NonNull<IbvPd>,
    /// Queue pairs made so far.
    n_qps: u32,
}

/// A completion queue.
#[derive(Clone, Copy)]
pub struct Cq {
    pub cq: NonNull<IbvCqEx>,
    /// Where its memory is.
    pub dv: Mlx5dvCq,
    pub poll: PollCq,
    /// CQEs written so far, free-running.
    pub pi: u32,
}

/// A queue pair.
#[derive(Clone, Copy)]
pub struct Qp {
    pub qp: NonNull<IbvQp>,
    pub ex: NonNull<IbvQpEx>,
    /// The functions of direct verbs, where it was made for them; or null.
    pub dv_ex: *mut Mlx5dvQpEx,
    /// Where its memory is.
    pub dv: Mlx5dvQp,
    pub qpn: u32,
    pub user_index: u32,
    /// An XRC initiator: its requests name a shared receive queue.
    pub is_xrc: bool,
    pub post_send: PostSend,
    pub post_recv: PostRecv,
}

/// What a queue pair is asked to hold.
#[derive(Clone, Copy)]
pub struct QpOptions {
    pub qp_type: c_int,
    pub send_ops: u64,
    /// `MLX5DV_QP_EX_WITH_…`, or 0.
    pub dv_ops: u64,
    pub caps: IbvQpCap,
}

impl Device {
    /// Opens the device. Without locks, everything that is made of it is meant for one thread
    /// (`MLX5_SINGLE_THREADED`, which libmlx5 reads now).
    pub fn open(library: &'static Library, with_locks: bool) -> Self {
        // SAFETY: these programs have one thread.
        unsafe { std::env::set_var("MLX5_SINGLE_THREADED", if with_locks { "0" } else { "1" }) };
        let mut n = 0;
        // SAFETY: the library's own lists and objects, in the order that it asks for; none is ever freed.
        unsafe {
            let devices = (library.ibv_get_device_list)(&mut n);
            assert!(!devices.is_null() && n == 1, "{n} devices; the pretend one is not found");
            let context = NonNull::new((library.ibv_open_device)(*devices)).expect("a context");
            let pd = NonNull::new((library.ibv_alloc_pd)(context.as_ptr())).expect("a protection domain");
            Self { library, context, pd, n_qps: 0 }
        }
    }

    /// A function of `struct ibv_context`.
    fn operation<F: Copy>(&self, place: usize) -> F {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        // SAFETY: a pointer to a function of this type is there.
        unsafe { self.context.as_ptr().cast::<u8>().add(place).cast::<F>().read() }
    }

    /// A completion queue of `n_cqes` slots.
    pub fn cq(&self, n_cqes: u32) -> Cq {
        let mut attr = IbvCqInitAttrEx {
            cqe: n_cqes - 1,
            cq_context: ptr::null_mut(),
            channel: ptr::null_mut(),
            comp_vector: 0,
            wc_flags: STANDARD_WC_FLAGS,
            comp_mask: 0,
            flags: 0,
            parent_domain: ptr::null_mut(),
        };
        // SAFETY: a context; without attributes of direct verbs.
        let cq =
            unsafe { (self.library.mlx5dv_create_cq)(self.context.as_ptr(), &mut attr, ptr::null_mut()) };
        let cq = NonNull::new(cq).expect("a completion queue");
        // SAFETY: plain integers and addresses.
        let mut dv: Mlx5dvCq = unsafe { std::mem::zeroed() };
        let mut object = Mlx5dvObj::default();
        (object.cq.input, object.cq.output) = (cq.as_ptr().cast(), &mut dv);
        self.init(&mut object, MLX5DV_OBJ_CQ);
        assert_eq!((dv.cqe_cnt, dv.cqe_size), (n_cqes, 64));
        Cq { cq, dv, poll: self.operation(OPS_POLL_CQ), pi: 0 }
    }

    /// A queue pair, ready to send.
    pub fn qp(&mut self, send_cq: &Cq, recv_cq: &Cq, options: &QpOptions) -> Qp {
        // SAFETY: plain integers and addresses.
        let mut attr: IbvQpInitAttrEx = unsafe { std::mem::zeroed() };
        attr.send_cq = send_cq.cq.as_ptr().cast();
        attr.recv_cq = recv_cq.cq.as_ptr().cast();
        attr.cap = options.caps;
        attr.qp_type = options.qp_type;
        attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.pd = self.pd.as_ptr();
        attr.send_ops_flags = options.send_ops;
        if options.qp_type == IBV_QPT_RAW_PACKET {
            attr.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
            attr.max_tso_header = MAX_TSO_HEADER;
        }
        let mut dv_attr = Mlx5dvQpInitAttr {
            comp_mask: MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
            create_flags: 0,
            dc_init_attr: Default::default(),
            send_ops_flags: options.dv_ops,
        };
        let dv_attr = if options.dv_ops == 0 { ptr::null_mut() } else { &raw mut dv_attr };
        // SAFETY: objects of this device.
        let qp = unsafe { (self.library.mlx5dv_create_qp)(self.context.as_ptr(), &mut attr, dv_attr) };
        let qp =
            NonNull::new(qp).unwrap_or_else(|| panic!("no queue pair: {}", std::io::Error::last_os_error()));
        // What CQEs must say. `mlx5_store_uidx` takes the first free number, but of every 4096 leaves out the last.
        let user_index = self.n_qps / 4095 * 4096 + self.n_qps % 4095;
        self.n_qps += 1;
        // SAFETY: plain integers and addresses.
        let mut dv: Mlx5dvQp = unsafe { std::mem::zeroed() };
        let mut object = Mlx5dvObj::default();
        (object.qp.input, object.qp.output) = (qp.as_ptr(), &mut dv);
        self.init(&mut object, MLX5DV_OBJ_QP);
        // SAFETY: a queue pair made with `send_ops_flags`.
        let ex = NonNull::new(unsafe { (self.library.ibv_qp_to_qp_ex)(qp.as_ptr()) })
            .expect("the other interface");
        let dv_ex = match options.dv_ops {
            0 => ptr::null_mut(),
            // SAFETY: the other interface of a queue pair made by direct verbs.
            _ => unsafe { (self.library.mlx5dv_qp_ex_from_ibv_qp_ex)(ex.as_ptr()) },
        };
        // SAFETY: a queue pair.
        let qpn = unsafe { (*qp.as_ptr()).qp_num };
        let qp = Qp {
            qp,
            ex,
            dv_ex,
            dv,
            qpn,
            user_index,
            is_xrc: options.qp_type == IBV_QPT_XRC_SEND,
            post_send: self.operation(OPS_POST_SEND),
            post_recv: self.operation(OPS_POST_RECV),
        };
        self.connect(&qp);
        qp
    }

    /// To RTS. The device checks nothing, but the library keeps the state.
    fn connect(&self, qp: &Qp) {
        for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
            // SAFETY: plain integers.
            let mut attr: IbvQpAttr = unsafe { std::mem::zeroed() };
            attr.qp_state = state;
            attr.port_num = 1;
            // With the port libmlx5 takes what it can do with raw packets.
            let mask = if state == IBV_QPS_INIT { IBV_QP_STATE | IBV_QP_PORT } else { IBV_QP_STATE };
            // SAFETY: a queue pair of this device.
            let failed = unsafe { (self.library.ibv_modify_qp)(qp.qp.as_ptr(), &mut attr, mask) };
            assert_eq!(failed, 0, "to state {state}");
        }
    }

    fn init(&self, object: &mut Mlx5dvObj, kind: u64) {
        // SAFETY: an object of the library, and room for what it tells of it.
        let failed = unsafe { (self.library.mlx5dv_init_obj)(object, kind) };
        assert_eq!(failed, 0, "mlx5dv_init_obj");
    }
}

impl Qp {
    /// The ring of sends.
    pub fn send_ring(&self) -> Window {
        Window { base: self.dv.sq.buf.cast(), len_bytes: 64 * self.dv.sq.wqe_cnt as usize }
    }

    /// The ring of receives.
    pub fn recv_ring(&self) -> Window {
        let len_bytes = (self.dv.rq.wqe_cnt * self.dv.rq.stride) as usize;
        Window { base: self.dv.rq.buf.cast(), len_bytes }
    }

    /// Both halves of the BlueFlame register.
    pub fn register(&self) -> Window {
        Window { base: self.dv.bf.reg.cast(), len_bytes: 2 * self.dv.bf.size as usize }
    }

    /// Both words of the doorbell record.
    pub fn records(&self) -> Vec<u8> {
        Window { base: self.dv.dbrec.cast(), len_bytes: 8 }.read()
    }

    /// Index of the next WQEBB: what the doorbell record says.
    pub fn pi(&self) -> u16 {
        // SAFETY: the second word of the queue pair's record.
        unsafe { self.dv.dbrec.add(1).read_volatile() }.get() as u16
    }

    /// A completion of the request at `wqe_counter`.
    pub fn requester_cqe(&self, wqe_counter: u16) -> [u8; 64] {
        RequesterCqe::new()
            .with_qpn(Qpn::new(self.qpn))
            .with_user_index(UserIndex::new(self.user_index))
            .with_wqe_counter(wqe_counter)
            .to_bytes()
    }
}

impl Cq {
    fn slot(&self, index: u32) -> *mut u8 {
        let slot = (index & (self.dv.cqe_cnt - 1)) as usize;
        // SAFETY: a slot of the ring.
        unsafe { self.dv.buf.cast::<u8>().add(slot * 64) }
    }

    /// Writes a CQE as a device would, with the owner bit of the lap.
    pub fn complete(&mut self, cqe: [u8; 64]) {
        self.write(cqe, false);
    }

    /// Writes a CQE, or one of the lap before.
    pub fn write(&mut self, mut cqe: [u8; 64], wrong_owner: bool) {
        cqe[63] = cqe[63] & !1 | u8::from(self.pi & self.dv.cqe_cnt != 0) ^ u8::from(wrong_owner);
        // SAFETY: a slot of the ring.
        unsafe { self.slot(self.pi).cast::<[u8; 64]>().write_volatile(cqe) };
        self.pi = self.pi.wrapping_add(1);
    }

    /// Where the `n` newest CQEs are.
    pub fn newest(&self, n: u32) -> impl Iterator<Item = *const u8> + '_ {
        (1..=n).map(|i| self.slot(self.pi.wrapping_sub(i)).cast_const())
    }

    /// Takes completions until there are no more; gives their number.
    pub fn drain(&self) -> u32 {
        let (mut wc, mut n) = (IbvWc::default(), 0);
        // SAFETY: a completion queue and room for one completion.
        while unsafe { (self.poll)(self.cq.as_ptr().cast(), 1, &mut wc) } == 1 {
            assert_eq!(wc.status, 0, "{wc:?}");
            n += 1;
        }
        n
    }
}

/// Memory of libmlx5's that a device would read, looked at by copies.
#[derive(Clone, Copy)]
pub struct Window {
    base: *mut u8,
    len_bytes: usize,
}

impl Window {
    pub fn fill(&self, byte: u8) {
        // SAFETY: within the object's memory, which is never freed.
        unsafe { self.base.write_bytes(byte, self.len_bytes) }
    }

    pub fn read(&self) -> Vec<u8> {
        // SAFETY: as in `fill`; the library writes only when it is called.
        unsafe { std::slice::from_raw_parts(self.base, self.len_bytes) }.to_vec()
    }
}
