//! From a function that nobody has touched to one that serves objects, and back.
//!
//! The order is that of Linux (`mlx5_function_setup`) and of rdma-core's VFIO provider; firmware refuses
//! another one.
#![forbid(unsafe_code)]

use super::{
    Core, OpenOptions,
    channel::Vectors,
    cmd_queue::{CommandQueue, Lane},
    events::AsyncEvents,
    health::Health,
    lock,
    pages::FirmwarePages,
    qp::max_qp_wr,
    regs,
    tables::Tables,
};
use crate::{
    Error, Gone, Result,
    backend::{DeviceAttr, LinkLayer, dma::DmaSpace, pci::PciFunction},
    mistake::mistake,
    mlx5::{
        caps::{AtomicCaps, CmdHcaCap, RoceCap},
        cmd::{
            AccessRegOpMod, AccessRegisterIn, CapType, CmdStatus, Command, DisableHcaIn, EnableHcaIn,
            InitHcaIn, ModifyNicVportContextIn, ModifyNicVportFieldSelect, QueryAdapterIn, QueryHcaCapIn,
            QueryIssiIn, QueryNicVportContextIn, QueryPagesOpMod, RegisterHostEndianness, RegisterId,
            SetDriverVersionIn, SetHcaCapIn, SetIssiIn, TeardownHcaIn,
        },
        context::NicVportContext,
        init_segment::{CmdifRevFwSub, FwRev, Initializing},
        layout::Layout,
        pci::{PciCommand, VENDOR_ID},
    },
};
use std::{
    io,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use zerocopy::IntoBytes;

/// Bytes of a capability group, of which the layouts declare the beginning.
const CAP_BYTES: usize = 4096;
/// Pause between two looks at `initializing`.
const INIT_POLL: Duration = Duration::from_millis(2);
/// `cmdif_checksum`: both sides sign.
const CHECKSUM_ENABLED: u8 = 3;
/// The queue pairs that Linux asks for: 2^18.
const LOG_MAX_QP: u8 = 18;
/// `cap_port_type`: Ethernet.
const PORT_TYPE_ETHERNET: u8 = 1;
/// `atomic_req_8b_endianness_mode`: host order.
const ATOMIC_HOST_ENDIAN: u8 = 1;
/// `atomic_operations`: compare-and-swap, fetch-and-add.
const ATOMIC_OPERATIONS: u16 = 3;
/// Largest send WQE: `ds` has six bits.
const MAX_SEND_WQE_BYTES: u32 = 63 * 16;
/// Largest send WQE that an RDMA READ may have.
const MAX_READ_WQE_BYTES: u32 = 512;
/// Largest receive WQE: `log_rq_stride` has three bits.
const MAX_RECV_WQE_BYTES: u32 = 16 << 7;

/// How far a function has been brought up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// The command queue stands.
    Attached,
    /// ENABLE_HCA.
    Enabled,
    /// INIT_HCA.
    Initialised,
}

/// What the device can do, as it is set.
#[derive(Debug)]
pub(super) struct Caps {
    pub(super) general: CmdHcaCap,
    pub(super) roce: RoceCap,
    atomic: AtomicCaps,
}

/// Takes hold of a function: bus mastering, command queue.
pub(super) fn attach(function: Arc<dyn PciFunction>, options: &OpenOptions) -> Result<Arc<Core>> {
    let config = |source| Error::os("access to PCI config space", source);
    if options.reset {
        function.reset().map_err(|source| Error::os("function-level reset", source))?;
    }
    let mut vendor = [0; 2];
    function.config_read(0, &mut vendor).map_err(config)?;
    if u16::from_le_bytes(vendor) != VENDOR_ID {
        return Err(Error::Unsupported {
            capability: "PCI vendor id",
            reason: format!("0x{:04x}, this driver drives 0x{VENDOR_ID:04x}", u16::from_le_bytes(vendor)),
        });
    }
    master_bus(&*function, true).map_err(config)?;

    let health = Arc::new(Health::new(Arc::clone(&function)));
    wait_initialised(&*function, &health, options.fw_init_timeout)?;
    let dma = DmaSpace::new(Arc::clone(&function));
    let cmd = CommandQueue::new(
        Arc::clone(&function),
        Arc::clone(&dma),
        Arc::clone(&health),
        options.command_timeout,
    )?;
    wait_initialised(&*function, &health, options.fw_init_timeout)?;
    Ok(Arc::new(Core {
        pages: FirmwarePages::new(Arc::clone(&dma), options.max_firmware_pages),
        vectors: Vectors::new(function.n_vectors()),
        events: AsyncEvents::new()?,
        tables: Tables::default(),
        graves: Mutex::default(),
        function,
        dma,
        health,
        cmd,
    }))
}

/// Lets a function write to memory, or not.
fn master_bus(function: &dyn PciFunction, on: bool) -> io::Result<()> {
    let mut command = [0; 2];
    function.config_read(PciCommand::OFFSET, &mut command)?;
    let command = PciCommand::from_bits(u16::from_le_bytes(command)).with_memory(true).with_bus_master(on);
    function.config_write(PciCommand::OFFSET, &command.into_bits().to_le_bytes())
}

fn wait_initialised(function: &dyn PciFunction, health: &Health, timeout: Duration) -> Result<()> {
    let deadline = Instant::now() + timeout;
    loop {
        let word = regs::read(function, regs::INITIALIZING);
        if !Initializing::from_bytes(word).fw_initializing() {
            return Ok(());
        }
        if u32::from_be_bytes(word) == regs::ALL_ONES
            && let Some(gone) = health.sense()
        {
            return Err(Error::DeviceGone(gone));
        }
        if Instant::now() >= deadline {
            return Err(Error::Timeout { what: "initialisation of the firmware".into(), after: timeout });
        }
        function.relax(INIT_POLL);
    }
}

/// Brings an attached function up to where objects can be made. `stage` follows, for who has to undo it.
pub(super) fn initialise(core: &Core, options: &OpenOptions, stage: &mut Stage) -> Result<Caps> {
    let cmd = &core.cmd;
    if !mistake!(EnableSkipped) {
        cmd.call(&EnableHcaIn::request())?;
    }
    *stage = Stage::Enabled;
    set_issi(cmd)?;
    core.pages.supply(cmd, QueryPagesOpMod::BOOT_PAGES)?;
    let endianness = RegisterHostEndianness::new();
    let write = AccessRegisterIn::request().with_register_id(RegisterId::HOST_ENDIANNESS);
    cmd.exec(
        Lane::Regular,
        &write.with_op_mod(AccessRegOpMod::WRITE),
        endianness.as_bytes(),
        size_of_val(&endianness),
    )?;
    set_caps(cmd, options)?;
    core.pages.supply(cmd, QueryPagesOpMod::INIT_PAGES)?;
    cmd.call(&InitHcaIn::request())?;
    *stage = Stage::Initialised;
    let caps = Caps::query(cmd)?;
    if caps.general.driver_version() {
        let mut version = [0; 64];
        let text = concat!("Linux,mlx5-direct,", env!("CARGO_PKG_VERSION")).as_bytes();
        version[..text.len()].copy_from_slice(text);
        // For the firmware's log; Linux does not mind a refusal either.
        let _ = cmd.call(&SetDriverVersionIn::request().with_driver_version(version));
    }
    if caps.link_layer() == LinkLayer::Ethernet && caps.general.roce() {
        let input = ModifyNicVportContextIn::request()
            .with_field_select(ModifyNicVportFieldSelect::new().with_roce_en(true))
            .with_nic_vport_context(NicVportContext::new().with_roce_en(true));
        cmd.call(&input)?;
    }
    Ok(caps)
}

/// Interface step 1: the commands that this driver uses.
fn set_issi(cmd: &CommandQueue) -> Result<()> {
    let supported = match cmd.call(&QueryIssiIn::request()) {
        Ok(out) => out.supported_issi_dw0(),
        // What a device answers that has no steps.
        Err(Error::Command { status: CmdStatus::BAD_OP_ERR, .. }) => 1,
        Err(error) => return Err(error),
    };
    if supported & 2 == 0 {
        return Err(Error::Unsupported {
            capability: "supported_issi",
            reason: format!("steps 0x{supported:x}, step 1 is needed; update the firmware"),
        });
    }
    cmd.call(&SetIssiIn::request().with_current_issi(1)).map(|_| ())
}

fn query_cap(cmd: &CommandQueue, group: CapType, current: bool) -> Result<Vec<u8>> {
    let input = QueryHcaCapIn::request().with_op_mod(group.op_mod(current));
    Ok(cmd.exec(Lane::Regular, &input, &[], CAP_BYTES)?.1)
}

fn parse<L: Layout>(bytes: &[u8]) -> Result<L> {
    let parsed =
        L::read_from_prefix(bytes).map_err(|_| Error::Protocol(format!("{} is cut off", L::DESC.name)))?;
    Ok(parsed.0)
}

/// Writes a group back: the bytes that were current, with `changed` at their start.
fn set_cap<L: Layout>(cmd: &CommandQueue, group: CapType, mut current: Vec<u8>, changed: L) -> Result<()> {
    current[..size_of::<L>()].copy_from_slice(changed.as_bytes());
    let input = SetHcaCapIn::request().with_op_mod(group.op_mod(false));
    cmd.exec(Lane::Regular, &input, &current, 0).map(|_| ())
}

/// Chooses among what the device can do.
fn set_caps(cmd: &CommandQueue, options: &OpenOptions) -> Result<()> {
    let current = query_cap(cmd, CapType::GENERAL, true)?;
    let max: CmdHcaCap = parse(&query_cap(cmd, CapType::GENERAL, false)?)?;
    let mut general: CmdHcaCap = parse(&current)?;
    // 128 entries.
    general.set_pkey_table_size(0);
    general.set_log_max_qp(max.log_max_qp().min(LOG_MAX_QP));
    general.set_cmdif_checksum(if options.command_signatures { CHECKSUM_ENABLED } else { 0 });
    // UAR pages of 4 KiB, whatever the host's pages are.
    general.set_log_uar_page_sz(0);
    if max.cache_line_128byte() && cfg!(target_arch = "powerpc64") {
        general.set_cache_line_128byte(true);
    }
    if max.num_vhca_ports() > 0 {
        general.set_num_vhca_ports(max.num_vhca_ports());
    }
    if max.roce() && max.roce_rw_supported() {
        general.set_roce(true);
    }
    set_cap(cmd, CapType::GENERAL, current, general)?;
    cmd.use_signatures(options.command_signatures);

    if general.atomic() {
        let max: AtomicCaps = parse(&query_cap(cmd, CapType::ATOMIC, false)?)?;
        if max.supported_atomic_req_8b_endianness_mode_1() {
            let current = query_cap(cmd, CapType::ATOMIC, true)?;
            let atomic: AtomicCaps = parse(&current)?;
            let atomic = atomic.with_atomic_req_8b_endianness_mode(ATOMIC_HOST_ENDIAN);
            set_cap(cmd, CapType::ATOMIC, current, atomic)?;
        }
    }
    if general.roce() {
        let current = query_cap(cmd, CapType::ROCE, true)?;
        let max: RoceCap = parse(&query_cap(cmd, CapType::ROCE, false)?)?;
        let roce: RoceCap = parse(&current)?;
        if max.sw_r_roce_src_udp_port() && !roce.sw_r_roce_src_udp_port() {
            set_cap(cmd, CapType::ROCE, current, roce.with_sw_r_roce_src_udp_port(true))?;
        }
    }
    Ok(())
}

impl Core {
    /// A group of capabilities that few ask for.
    pub(super) fn cap_group<L: Layout>(&self, group: CapType) -> Result<L> {
        parse(&query_cap(&self.cmd, group, true)?)
    }
}

impl Caps {
    fn query(cmd: &CommandQueue) -> Result<Self> {
        let general: CmdHcaCap = parse(&query_cap(cmd, CapType::GENERAL, true)?)?;
        let group = |wanted, group| if wanted { query_cap(cmd, group, true) } else { Ok(vec![0; CAP_BYTES]) };
        let caps = Self {
            general,
            roce: parse(&group(general.roce(), CapType::ROCE)?)?,
            atomic: parse(&group(general.atomic(), CapType::ATOMIC)?)?,
        };
        if caps.link_layer() == LinkLayer::Ethernet && !general.roce() {
            return Err(Error::Unsupported {
                capability: "roce",
                reason: "the port is Ethernet and RoCE is off; turn it on in the firmware's configuration"
                    .into(),
            });
        }
        Ok(caps)
    }

    pub(super) fn link_layer(&self) -> LinkLayer {
        if self.general.port_type() == PORT_TYPE_ETHERNET {
            LinkLayer::Ethernet
        } else {
            LinkLayer::InfiniBand
        }
    }

    /// How the RoCE address table names a port: only functions that own several ports count them.
    pub(super) fn vhca_port_num(&self, port: u8) -> u8 {
        if self.general.num_vhca_ports() > 1 { port } else { 0 }
    }

    pub(super) fn device_attr(&self, core: &Core) -> Result<DeviceAttr> {
        let caps = &self.general;
        if caps.num_ports() == 0 {
            return Err(Error::Protocol("the device has no port: num_ports is 0".into()));
        }
        let function = &*core.function;
        let adapter = core.cmd.call(&QueryAdapterIn::request())?.query_adapter_struct();
        let psid = adapter.vsd_contd_psid();
        let psid_end = psid.iter().position(|byte| *byte == 0).unwrap_or(psid.len());
        let vport = core.cmd.call(&QueryNicVportContextIn::request())?.nic_vport_context();
        let rev = FwRev::from_bytes(regs::read(function, regs::FW_REV));
        let sub = CmdifRevFwSub::from_bytes(regs::read(function, regs::CMDIF_REV_FW_SUB));
        let mut config = [0; 12];
        function
            .config_read(0, &mut config)
            .map_err(|source| Error::os("access to PCI config space", source))?;
        let max_wqe_sz_sq = u32::from(caps.max_wqe_sz_sq()).min(MAX_SEND_WQE_BYTES);
        let sges = |wqe_bytes: u32| wqe_bytes.saturating_sub(32) / 16;
        let log2 = |log: u8| 1_u32 << log.min(31);
        let frequency = match caps.device_frequency_khz() {
            0 => caps.device_frequency_mhz().saturating_mul(1000),
            khz => khz,
        };
        Ok(DeviceAttr {
            fw_ver: format!("{}.{}.{:04}", rev.fw_rev_major(), rev.fw_rev_minor(), sub.fw_rev_subminor()),
            board_id: String::from_utf8_lossy(&psid[..psid_end]).into_owned(),
            vendor_id: u32::from(u16::from_le_bytes([config[0], config[1]])),
            vendor_part_id: u32::from(u16::from_le_bytes([config[2], config[3]])),
            hw_ver: u32::from(config[8]),
            node_guid: vport.node_guid(),
            sys_image_guid: vport.system_image_guid(),
            phys_port_cnt: caps.num_ports(),
            page_size_cap: u64::MAX << caps.log_pg_sz().clamp(12, 63),
            max_mr_size: match caps.log_max_mrw_sz() {
                0 | 64.. => u64::MAX,
                log => 1 << log,
            },
            max_msg_size: log2(caps.log_max_msg()),
            max_qp: log2(caps.log_max_qp()),
            max_qp_wr: max_qp_wr(caps.log_max_qp_sz()),
            max_send_sge: sges(max_wqe_sz_sq),
            max_sge_rd: sges(max_wqe_sz_sq.min(MAX_READ_WQE_BYTES)),
            max_recv_sge: u32::from(caps.max_wqe_sz_rq()).min(MAX_RECV_WQE_BYTES) / 16,
            max_inline_data: max_wqe_sz_sq.saturating_sub(32 + 4),
            max_wqe_sz_sq,
            max_cq: log2(caps.log_max_cq()),
            max_cqe: log2(caps.log_max_cq_sz().min(23)),
            max_mr: log2(caps.log_max_mkey()),
            max_pd: log2(caps.log_max_pd()),
            max_qp_rd_atom: 1 << caps.log_max_ra_res_qp().min(7),
            max_qp_init_rd_atom: 1 << caps.log_max_ra_req_qp().min(7),
            atomic_cap: caps.atomic()
                && self.atomic.atomic_operations() & ATOMIC_OPERATIONS == ATOMIC_OPERATIONS,
            atomic_host_endian: self.atomic.atomic_req_8b_endianness_mode() == ATOMIC_HOST_ENDIAN,
            local_ca_ack_delay: caps.local_ca_ack_delay(),
            // A RoCE port has the default partition only.
            max_pkeys: match self.link_layer() {
                LinkLayer::Ethernet => 1,
                LinkLayer::InfiniBand => 128 << caps.pkey_table_size().min(5),
            },
            bf_reg_size_bytes: if caps.bf() { log2(caps.log_bf_reg_size()) } else { 0 },
            hca_core_clock_khz: frequency,
            cqe_version: caps.cqe_version(),
            roce_udp_sport: self.roce.sw_r_roce_src_udp_port(),
            roce_min_udp_sport: self.roce.r_roce_min_src_udp_port(),
            num_comp_vectors: core.vectors.n_channels(),
        })
    }
}

/// Takes a function down from `stage`, and all memory back. If that does not work, the function is reset.
pub(super) fn tear_down(core: &Core, stage: Stage) -> Result<()> {
    let orderly = orderly_down(core, stage);
    // Nobody waits for a command any more when the memory goes.
    core.declare_gone(Gone::Closed);
    // Linux waits a minute for a function to come back from a reset, also for one that has left the bus.
    let reset = || core.health.sense() != Some(Gone::Pci) && core.function.reset().is_ok();
    if orderly.is_err() && !reset() {
        core.dma.distrust();
    }
    // A function that nobody drives writes nothing, whatever it still believes (Linux: `pci_clear_master`). After the
    // reset, which the kernel ends by restoring the register. One that has left the bus cannot be told.
    let _ = master_bus(&*core.function, false);
    core.cmd.release();
    core.pages.drop_all();
    core.tables.clear();
    lock(&core.graves).clear();
    orderly
}

fn orderly_down(core: &Core, stage: Stage) -> Result<()> {
    core.health.answers()?;
    if stage >= Stage::Initialised {
        core.cmd.call(&TeardownHcaIn::request())?;
    }
    if stage >= Stage::Enabled {
        core.pages.reclaim_all(&core.cmd, &*core.function)?;
        core.cmd.call(&DisableHcaIn::request())?;
    }
    Ok(())
}
