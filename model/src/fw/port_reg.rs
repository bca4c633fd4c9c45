//! Registers that tools ask a port for: flow control, error correction, lanes, module; and which registers there are.
#![forbid(unsafe_code)]

use super::{Function, refusal::Refusal, reg::one_port};
use mlx5_direct::mlx5::cmd::{
    McamEnhancedFeatures, McamReg, MciaReg, PcamEnhancedFeatures, PcamReg, PcmrReg, PfccReg, PmlpReg,
    PplmReg, PvlcReg, RegisterId,
};

/// Lanes of the port, all of module 0.
const N_LANES: u8 = 4;
/// Where `PMLP` has the lane of the module.
const MODULE_LANE_SHIFT: u32 = 16;
/// `MCIA.status`: the module, a cable without electronics, has no memory to read.
const NO_EEPROM_MODULE: u8 = 1;
/// Error correction: none, and Reed-Solomon (528, 514), with which 100GBASE-CR4 runs.
const NO_FEC: u8 = 1 << 0;
const RS_FEC: u8 = 1 << 2;
/// Virtual lanes of an InfiniBand port, as its PortInfo says.
const N_VIRTUAL_LANES: u8 = 4;
/// First registers of the groups of PCAM and MCAM.
const FIRST_PORT_REGISTER: u16 = 0x5000;
const FIRST_MANAGEMENT_REGISTER: u16 = 0x9000;
const REGISTERS_PER_GROUP: u16 = 128;
const PORT_REGISTERS: [RegisterId; 9] = [
    RegisterId::PMLP,
    RegisterId::PMTU,
    RegisterId::PTYS,
    RegisterId::PAOS,
    RegisterId::PFCC,
    RegisterId::PPCNT,
    RegisterId::PPLM,
    RegisterId::PCMR,
    RegisterId::PCAM,
];
const MANAGEMENT_REGISTERS: [RegisterId; 3] = [RegisterId::MCIA, RegisterId::MPCNT, RegisterId::MCAM];

/// Registers from `first` on, a bit each, the first in the lowest bit.
fn mask(first: u16, registers: &[RegisterId]) -> [u8; 16] {
    let places = registers.iter().filter_map(|register| register.0.checked_sub(first));
    let bits = places.filter(|at| *at < REGISTERS_PER_GROUP).fold(0_u128, |bits, at| bits | 1 << at);
    bits.to_be_bytes()
}

/// `new` where `mask` has bits.
fn masked(old: u8, new: u8, mask: u8) -> u8 {
    old & !mask | new & mask
}

impl Function {
    /// What a reset makes of flow control: pauses, both ways, and none of priorities.
    pub(super) fn default_pauses() -> PfccReg {
        PfccReg::new().with_local_port(1).with_pptx(true).with_pprx(true)
    }

    pub(super) fn pfcc(&mut self, register: PfccReg, write: bool) -> Result<PfccReg, Refusal> {
        one_port(register.local_port())?;
        let pauses = &mut self.pauses;
        if write {
            if !register.pptx_mask_n() {
                pauses.set_pptx(register.pptx());
            }
            if !register.pprx_mask_n() {
                pauses.set_pprx(register.pprx());
            }
            pauses.set_pfctx(masked(pauses.pfctx(), register.pfctx(), register.prio_mask_tx()));
            pauses.set_pfcrx(masked(pauses.pfcrx(), register.pfcrx(), register.prio_mask_rx()));
            if register.minor_stall_mask() {
                pauses.set_device_stall_minor_watermark(register.device_stall_minor_watermark());
            }
            if register.critical_stall_mask() {
                pauses.set_device_stall_critical_watermark(register.device_stall_critical_watermark());
            }
        }
        Ok(*pauses)
    }

    pub(super) fn pvlc(&self, register: PvlcReg) -> Result<PvlcReg, Refusal> {
        one_port(register.local_port())?;
        if !self.is_infiniband() {
            return Err(Refusal::REGISTER);
        }
        let lanes = PvlcReg::new().with_local_port(1).with_vl_hw_cap(N_VIRTUAL_LANES);
        Ok(lanes.with_vl_admin(N_VIRTUAL_LANES).with_vl_operational(N_VIRTUAL_LANES))
    }

    /// Frames have no check sequence here that could be wrong; that it is looked at can be turned off all the same.
    pub(super) fn pcmr(&mut self, register: PcmrReg, write: bool) -> Result<PcmrReg, Refusal> {
        one_port(register.local_port())?;
        if write {
            self.checks_fcs = register.fcs_chk();
        }
        Ok(PcmrReg::new().with_local_port(1).with_fcs_cap(true).with_fcs_chk(self.checks_fcs))
    }

    pub(super) fn pplm(&self, register: PplmReg) -> Result<PplmReg, Refusal> {
        one_port(register.local_port())?;
        let active = if self.link_up() && !self.is_infiniband() { RS_FEC } else { NO_FEC };
        Ok(PplmReg::new()
            .with_local_port(1)
            .with_fec_override_cap_100g(NO_FEC | RS_FEC)
            .with_fec_mode_active(active.into()))
    }

    pub(super) fn pmlp(&self, register: PmlpReg) -> Result<PmlpReg, Refusal> {
        one_port(register.local_port())?;
        let lane = |lane: u32| lane << MODULE_LANE_SHIFT;
        Ok(PmlpReg::new()
            .with_local_port(1)
            .with_width(N_LANES)
            .with_lane0_module_mapping(lane(0))
            .with_lane1_module_mapping(lane(1))
            .with_lane2_module_mapping(lane(2))
            .with_lane3_module_mapping(lane(3)))
    }

    pub(super) fn mcia(&self, register: MciaReg) -> Result<MciaReg, Refusal> {
        if register.module() != 0 {
            return Err(Refusal::PORT);
        }
        Ok(register.with_status(NO_EEPROM_MODULE).with_dwords([0; 128]))
    }

    pub(super) fn pcam(&self, register: PcamReg) -> Result<PcamReg, Refusal> {
        let (registers, features) = (register.access_reg_group() == 0, register.feature_group() == 0);
        if !registers || !features {
            return Err(Refusal::REGISTER_GROUP);
        }
        let features = PcamEnhancedFeatures::new()
            .with_pfcc_mask(true)
            .with_per_lane_error_counters(true)
            .with_rx_buffer_fullness_counters(true)
            .with_rx_icrc_encapsulated_counter(!self.is_infiniband())
            .with_ptys_connector_type(true)
            .with_ppcnt_statistical_group(true);
        Ok(PcamReg::new()
            .with_port_access_reg_cap_mask(mask(FIRST_PORT_REGISTER, &PORT_REGISTERS))
            .with_enhanced_features(features))
    }

    pub(super) fn mcam(&self, register: McamReg) -> Result<McamReg, Refusal> {
        let group = register.access_reg_group();
        if group > 2 || register.feature_group() != 0 {
            return Err(Refusal::REGISTER_GROUP);
        }
        let first = FIRST_MANAGEMENT_REGISTER + REGISTERS_PER_GROUP * u16::from(group);
        let features = McamEnhancedFeatures::new()
            .with_pcie_performance_group(true)
            .with_tx_overflow_buffer_pkt(true)
            .with_pcie_outbound_stalled(true);
        Ok(McamReg::new()
            .with_access_reg_group(group)
            .with_mng_access_reg_cap_mask(mask(first, &MANAGEMENT_REGISTERS))
            .with_enhanced_features(features))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_bits_from_the_lowest() {
        let bits = mask(0x5000, &[RegisterId::PPCNT, RegisterId::PPLM, RegisterId::PCAM, RegisterId::MCAM]);
        assert_eq!(bits, [0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 1, 0]);
        assert_eq!(mask(0x9100, &MANAGEMENT_REGISTERS), [0; 16]);
    }
}
