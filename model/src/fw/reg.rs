//! ACCESS_REG: registers of the port and the node.
#![forbid(unsafe_code)]

use super::{
    Function,
    dispatch::{Input, Output},
    refusal::Refusal,
};
use mlx5_direct::mlx5::{
    cmd::{
        AccessRegOpMod, AccessRegisterIn, AccessRegisterOut, NodeDescriptionReg, PaosReg, PaosStatus,
        PcapReg, PmtuReg, PtysReg, RegisterId,
    },
    layout::Layout,
};
use zerocopy::{FromBytes, IntoBytes};

/// Link types of PTYS.
const PROTO_INFINIBAND: u8 = 1;
const PROTO_ETHERNET: u8 = 4;
/// Link widths and rates of InfiniBand, a bit each: 1x is bit 0, 4x bit 1; SDR is bit 0, EDR bit 5.
const IB_WIDTH_4X: u16 = 1 << 1;
const IB_WIDTH_1X_4X: u16 = 0b11;
const IB_PROTO_EDR: u16 = 1 << 5;
const IB_PROTO_SDR_TO_EDR: u16 = 0b11_1111;
/// 100GBASE-CR4, -SR4, -KR4.
const ETH_PROTO_100G: u32 = 0b111 << 20;
const ETH_PROTO_100G_CR4: u32 = 1 << 20;
/// `PTYS.connector_type`: a cable with its ends attached.
const DIRECT_ATTACH: u8 = 7;
pub(super) const NODE_DESCRIPTION: &[u8; 11] = b"mlx5-direct";

/// The head of a register, from what the driver sent.
fn register<T: Layout + FromBytes>(image: &[u8]) -> Result<T, Refusal> {
    T::read_from_prefix(image).map(|(register, _)| register).map_err(|_| Refusal::LIST_SHORT)
}

pub(super) fn one_port(local_port: u8) -> Result<(), Refusal> {
    if local_port == 1 { Ok(()) } else { Err(Refusal::PORT) }
}

impl Function {
    pub(super) fn access_reg(&mut self, input: &Input<'_>) -> Output {
        let (head, image) = input.get_with_list::<AccessRegisterIn>()?;
        let write = match head.op_mod() {
            AccessRegOpMod::WRITE => true,
            AccessRegOpMod::READ => false,
            _ => return Err(Refusal::BAD_OP_MOD),
        };
        let image = match (head.register_id(), write) {
            (RegisterId::HOST_ENDIANNESS, true) => image.to_vec(),
            (RegisterId::NODE_DESC, false) => {
                let mut desc = [0; 64];
                desc[..NODE_DESCRIPTION.len()].copy_from_slice(NODE_DESCRIPTION);
                NodeDescriptionReg::new().with_desc(desc).as_bytes().to_vec()
            }
            (RegisterId::NODE_DESC, true) => {
                let desc = register::<NodeDescriptionReg>(image)?.desc();
                if let Some(port) = &mut self.ib_port {
                    port.set_node_description(desc);
                }
                image.to_vec()
            }
            (RegisterId::PCAP, true) => self.set_pcap(register(image)?)?.as_bytes().to_vec(),
            (RegisterId::PAOS, _) => self.paos(register(image)?, write)?.as_bytes().to_vec(),
            (RegisterId::PMTU, _) => self.pmtu(register(image)?, write)?.as_bytes().to_vec(),
            (RegisterId::PTYS, false) => self.ptys(register(image)?)?.as_bytes().to_vec(),
            (RegisterId::PPCNT, false) => self.ppcnt(register(image)?)?,
            (RegisterId::MPCNT, false) => self.mpcnt(register(image)?)?,
            (RegisterId::PFCC, _) => self.pfcc(register(image)?, write)?.as_bytes().to_vec(),
            (RegisterId::PCMR, _) => self.pcmr(register(image)?, write)?.as_bytes().to_vec(),
            (RegisterId::PVLC, false) => self.pvlc(register(image)?)?.as_bytes().to_vec(),
            (RegisterId::PPLM, false) => self.pplm(register(image)?)?.as_bytes().to_vec(),
            (RegisterId::PMLP, false) => self.pmlp(register(image)?)?.as_bytes().to_vec(),
            (RegisterId::MCIA, false) => self.mcia(register(image)?)?.as_bytes().to_vec(),
            (RegisterId::PCAM, false) => self.pcam(register(image)?)?.as_bytes().to_vec(),
            (RegisterId::MCAM, false) => self.mcam(register(image)?)?.as_bytes().to_vec(),
            (
                RegisterId::HOST_ENDIANNESS
                | RegisterId::PTYS
                | RegisterId::PPCNT
                | RegisterId::MPCNT
                | RegisterId::PVLC
                | RegisterId::PPLM
                | RegisterId::PMLP
                | RegisterId::MCIA
                | RegisterId::PCAM
                | RegisterId::MCAM,
                _,
            ) => return Err(Refusal::REGISTER_READ_ONLY),
            _ => return Err(Refusal::REGISTER),
        };
        let mut output = AccessRegisterOut::new().as_bytes().to_vec();
        output.extend(image);
        Ok(output)
    }

    fn paos(&mut self, register: PaosReg, write: bool) -> Result<PaosReg, Refusal> {
        one_port(register.local_port())?;
        // Linux sets `ase`, others do not: a write means the state it carries.
        if write && self.vport.set_paos(register.admin_status() == PaosStatus::UP) {
            self.port_event();
        }
        let status = |up| if up { PaosStatus::UP } else { PaosStatus::DOWN };
        Ok(PaosReg::new()
            .with_local_port(1)
            .with_admin_status(status(self.vport.paos_up))
            .with_oper_status(status(self.link_up())))
    }

    fn pmtu(&mut self, register: PmtuReg, write: bool) -> Result<PmtuReg, Refusal> {
        one_port(register.local_port())?;
        if self.is_infiniband() {
            // The path MTU, and the subnet manager's to change.
            let mtu = self.config.mtu_bytes;
            let register = PmtuReg::new().with_local_port(1);
            return Ok(register.with_max_mtu(mtu).with_admin_mtu(mtu).with_oper_mtu(mtu));
        }
        if write {
            self.vport.frame_mtu = register.admin_mtu().min(self.vport.max_frame_mtu);
        }
        Ok(PmtuReg::new()
            .with_local_port(1)
            .with_max_mtu(self.vport.max_frame_mtu)
            .with_admin_mtu(self.vport.frame_mtu)
            .with_oper_mtu(self.vport.frame_mtu))
    }

    /// Only an InfiniBand port has such a mask.
    fn set_pcap(&mut self, register: PcapReg) -> Result<PcapReg, Refusal> {
        one_port(register.local_port())?;
        let port = self.ib_port.as_mut().ok_or(Refusal::REGISTER)?;
        // Linux writes the 32 bits of PortInfo into the first dword.
        let [a, b, c, d, ..] = register.port_capability_mask();
        port.set_capability_mask(u32::from_be_bytes([a, b, c, d]));
        Ok(register)
    }

    fn ptys(&self, register: PtysReg) -> Result<PtysReg, Refusal> {
        one_port(register.local_port())?;
        let ports = PtysReg::new().with_local_port(1).with_proto_mask(register.proto_mask());
        let asks = |proto| register.proto_mask() & proto != 0;
        if self.is_infiniband() && asks(PROTO_INFINIBAND) {
            let (width, proto) = if self.link_up() { (IB_WIDTH_4X, IB_PROTO_EDR) } else { (0, 0) };
            return Ok(ports
                .with_ib_link_width_capability(IB_WIDTH_1X_4X)
                .with_ib_proto_capability(IB_PROTO_SDR_TO_EDR)
                .with_ib_link_width_admin(IB_WIDTH_1X_4X)
                .with_ib_proto_admin(IB_PROTO_SDR_TO_EDR)
                .with_ib_link_width_oper(width)
                .with_ib_proto_oper(proto));
        }
        if self.is_infiniband() || !asks(PROTO_ETHERNET) {
            return Ok(ports);
        }
        let oper = if self.link_up() { ETH_PROTO_100G_CR4 } else { 0 };
        Ok(ports
            .with_connector_type(DIRECT_ATTACH)
            .with_eth_proto_capability(ETH_PROTO_100G)
            .with_eth_proto_admin(ETH_PROTO_100G)
            .with_eth_proto_oper(oper)
            .with_eth_proto_lp_advertise(oper))
    }
}
