//! The device behind one open descriptor without a card: objects are numbers, and nothing ever happens to them.
#![forbid(unsafe_code)]

use crate::{
    command::{Command, Reply, core, extendable},
    eyes,
    uapi::*,
};
use std::{
    collections::BTreeMap,
    ffi::c_int,
    sync::atomic::{AtomicU32, Ordering},
};

/// Registers of the last two UAR pages, which libmlx5 takes for a queue pair's own: it rings them without a lock
/// (the last `num_low_latency_bfregs` of 16).
const OWN_REGISTERS: [u32; 4] = [24, 25, 28, 29];
/// Registers that queue pairs share, as the kernel hands them out when there are no more of the others.
const SHARED_REGISTERS: [u32; 10] = [4, 5, 8, 9, 12, 13, 16, 17, 20, 21];

/// One `ibv_context`'s kernel side.
#[derive(Debug)]
pub(crate) struct Idle {
    n_handles: u32,
    /// Registers of [`OWN_REGISTERS`] that no queue pair has.
    free_registers: Vec<u32>,
    n_shared: usize,
    /// Where each is, and its slots.
    cqs: BTreeMap<u32, (Mlx5CreateCq, u32)>,
    qps: BTreeMap<u32, Qp>,
}

impl Default for Idle {
    fn default() -> Self {
        Self {
            n_handles: 0,
            free_registers: OWN_REGISTERS.into(),
            n_shared: 0,
            cqs: BTreeMap::new(),
            qps: BTreeMap::new(),
        }
    }
}

#[derive(Debug)]
struct Qp {
    caps: CreateQp,
    state: u8,
    bfreg_index: u32,
}

impl Idle {
    /// Carries out a command.
    pub(crate) fn execute(&mut self, command: &Command<'_>) -> Result<Reply, c_int> {
        let handle = self.n_handles + 1;
        let reply = match command.number & !number::EXTENDED {
            number::GET_CONTEXT => get_context()?,
            number::QUERY_DEVICE => query_device(command.is_extended()),
            number::QUERY_PORT => core(query_port()),
            // The second number is the driver's: `pdn`.
            number::ALLOC_PD => core(HandleResp { handle }).driver(handle),
            number::CREATE_AH => core(HandleResp { handle }).driver(Mlx5CreateAhResp {
                response_length: size_of::<Mlx5CreateAhResp>() as u32,
                dmac: [0x02, 0, 0, 0, 0, 0x01],
                ..Default::default()
            }),
            // Keys have eight bits that are the user's.
            number::REG_MR => core(RegMrResp { mr_handle: handle, lkey: handle << 8, rkey: handle << 8 }),
            number::ALLOC_MW => core(CreateCqResp { cq_handle: handle, cqe: handle << 8 }),
            number::CREATE_COMP_CHANNEL => core(HandleResp { handle: event_descriptor()? }),
            number::CREATE_CQ => {
                let request: CreateCq = command.structure()?;
                self.cqs.insert(handle, (command.driver::<CreateCq, _>()?, request.cqe + 1));
                extendable(command, CreateCqResp { cq_handle: handle, cqe: request.cqe })
                    .driver(NumberResp { number: handle, reserved: 0 })
            }
            number::CREATE_QP => self.create_qp(command, handle)?,
            number::QUERY_QP => core(self.query_qp(command.structure()?)?),
            number::MODIFY_QP => {
                let request: ModifyQp = command.structure()?;
                let qp = self.qps.get_mut(&request.qp_handle).ok_or(libc::EINVAL)?;
                if request.attr_mask & attr_mask::STATE != 0 {
                    qp.state = request.qp_state;
                }
                Reply::default()
            }
            number::DESTROY_QP => {
                let qp = self.qps.remove(&command.structure()?).ok_or(libc::EINVAL)?;
                if OWN_REGISTERS.contains(&qp.bfreg_index) {
                    self.free_registers.push(qp.bfreg_index);
                }
                core(0u32)
            }
            number::CREATE_SRQ => {
                let request: CreateSrq = command.structure()?;
                created_srq(handle, request.max_wr, request.max_sge)
            }
            number::CREATE_XSRQ => {
                let request: CreateXsrq = command.structure()?;
                created_srq(handle, request.max_wr, request.max_sge)
            }
            number::OPEN_XRCD => core(HandleResp { handle }),
            number::DESTROY_CQ => {
                self.cqs.remove(&command.structure()?).ok_or(libc::EINVAL)?;
                core([0u32; 2])
            }
            number::DESTROY_SRQ => core(0u32),
            number::DEALLOC_PD
            | number::DESTROY_AH
            | number::DEREG_MR
            | number::DEALLOC_MW
            | number::CLOSE_XRCD => Reply::default(),
            _ => return Err(libc::EOPNOTSUPP),
        };
        self.n_handles = handle;
        Ok(reply)
    }

    fn create_qp(&mut self, command: &Command<'_>, handle: u32) -> Result<Reply, c_int> {
        // A number of its own among all contexts of the process.
        static N_QPS: AtomicU32 = AtomicU32::new(0);
        let caps: CreateQp = command.structure()?;
        let qpn = 0x40 + N_QPS.fetch_add(1, Ordering::Relaxed);
        let bfreg_index = self.free_registers.pop().unwrap_or_else(|| {
            self.n_shared += 1;
            SHARED_REGISTERS[self.n_shared % SHARED_REGISTERS.len()]
        });
        let memory: Mlx5CreateQp = command.driver::<CreateQp, _>()?;
        if let Some((cq, n_cqes)) = self.cqs.get(&caps.send_cq_handle) {
            eyes::remember(qpn, &memory, cq, *n_cqes);
        }
        self.qps.insert(handle, Qp { caps, state: 0, bfreg_index });
        let response = CreateQpResp {
            qp_handle: handle,
            qpn,
            max_send_wr: caps.max_send_wr,
            max_recv_wr: caps.max_recv_wr,
            max_send_sge: caps.max_send_sge,
            max_recv_sge: caps.max_recv_sge,
            max_inline_data: caps.max_inline_data,
            reserved: 0,
        };
        Ok(extendable(command, response).driver(Mlx5CreateQpResp { bfreg_index, ..Default::default() }))
    }

    fn query_qp(&self, handle: u32) -> Result<QueryQpResp, c_int> {
        let qp = self.qps.get(&handle).ok_or(libc::EINVAL)?;
        Ok(QueryQpResp {
            max_send_wr: qp.caps.max_send_wr,
            max_recv_wr: qp.caps.max_recv_wr,
            max_send_sge: qp.caps.max_send_sge,
            max_recv_sge: qp.caps.max_recv_sge,
            max_inline_data: qp.caps.max_inline_data,
            qp_state: qp.state,
            cur_qp_state: qp.state,
            port_num: 1,
            sq_sig_all: qp.caps.sq_sig_all,
            ..Default::default()
        })
    }
}

fn created_srq(handle: u32, max_wr: u32, max_sge: u32) -> Reply {
    core(CreateSrqResp { srq_handle: handle, max_wr, max_sge, srqn: handle })
        .driver(NumberResp { number: handle, reserved: 0 })
}

/// A descriptor on which no event ever comes.
fn event_descriptor() -> Result<u32, c_int> {
    crate::libc_calls::event_descriptor().map(|fd| fd as u32)
}

/// What ConnectX-6 answers under Linux, as far as the library's data path depends on it.
fn get_context() -> Result<Reply, c_int> {
    Ok(core(GetContextResp { async_fd: event_descriptor()?, num_comp_vectors: 1 }).driver(
        AllocUcontextResp {
            qp_tab_size: 1 << 18,
            bf_reg_size: 512,
            tot_bfregs: 16,
            cache_line_size: 64,
            max_sq_desc_sz: 1024,
            max_rq_desc_sz: 512,
            max_send_wqebb: 1 << 15,
            max_recv_wr: 1 << 15,
            max_srq_recv_wr: 1 << 15,
            num_ports: 1,
            response_length: size_of::<AllocUcontextResp>() as u32,
            cqe_version: CQE_VERSION_1,
            cmds_supp_uhw: CMDS_SUPP_UHW_QUERY_DEVICE,
            eth_min_inline: if port() == Some(Port::EthernetL2) { INLINE_MODE_L2 } else { INLINE_MODE_NONE },
            log_uar_size: 12,
            num_uars_per_page: 1,
            ..Default::default()
        },
    ))
}

fn query_device(extended: bool) -> Reply {
    let base = QueryDeviceResp {
        fw_ver: 20 << 32 | 36 << 16 | 1010,
        node_guid: 0x0200_0000_0000_0001u64.to_be(),
        sys_image_guid: 0x0200_0000_0000_0001u64.to_be(),
        max_mr_size: u64::MAX,
        page_size_cap: !0xfff,
        vendor_id: 0x02c9,
        vendor_part_id: 0x101b,
        max_qp: 1 << 18,
        max_qp_wr: 1 << 15,
        max_sge: 30,
        max_sge_rd: 30,
        max_cq: 1 << 24,
        max_cqe: (1 << 22) - 1,
        max_mr: 1 << 24,
        max_pd: 1 << 23,
        max_qp_rd_atom: 16,
        max_res_rd_atom: 1 << 22,
        max_qp_init_rd_atom: 16,
        // `IB_ATOMIC_HCA`: without it libmlx5 refuses atomics.
        atomic_cap: 1,
        max_mw: 1 << 24,
        max_ah: i32::MAX as u32,
        max_srq: 1 << 23,
        max_srq_wr: (1 << 15) - 1,
        max_srq_sge: 31,
        // Memory windows of type 2B, XRC, checksums of raw packets.
        device_cap_flags: 1 << 24 | 1 << 20 | 1 << 26,
        max_pkeys: 1,
        local_ca_ack_delay: 16,
        phys_port_cnt: 1,
        ..Default::default()
    };
    if extended {
        let response_length = size_of::<ExQueryDeviceResp>() as u32;
        core(ExQueryDeviceResp { base, comp_mask: 0, response_length }).driver(Mlx5QueryDeviceResp {
            comp_mask: 0,
            response_length: size_of::<Mlx5QueryDeviceResp>() as u32,
            max_tso: 1 << 18,
            tso_qpts: 1 << qp_type::RAW_PACKET,
        })
    } else {
        core(base)
    }
}

/// What the port is, if not InfiniBand's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Port {
    Ethernet,
    /// Queues want the heads of frames in requests.
    EthernetL2,
}

/// As `MLX5_UVERBS_PORT` says.
fn port() -> Option<Port> {
    match std::env::var("MLX5_UVERBS_PORT").ok()?.as_str() {
        "eth" => Some(Port::Ethernet),
        "eth-l2" => Some(Port::EthernetL2),
        _ => None,
    }
}

/// An InfiniBand port, if nothing is said: addresses are LIDs, and libmlx5 makes address vectors by itself.
fn query_port() -> QueryPortResp {
    QueryPortResp {
        max_msg_sz: 1 << 30,
        gid_tbl_len: 1,
        pkey_tbl_len: 1,
        lid: 1,
        sm_lid: 1,
        // ACTIVE.
        state: 4,
        // 4096 bytes.
        max_mtu: 5,
        active_mtu: 5,
        max_vl_num: 1,
        // 4x HDR.
        active_width: 2,
        active_speed: 64,
        // LinkUp.
        phys_state: 5,
        link_layer: if port().is_some() { 2 } else { 1 },
        ..Default::default()
    }
}
