//! Bring-up and teardown.
#![forbid(unsafe_code)]

use super::{
    Function, Phase,
    dispatch::{Input, Output, done, out},
    init_segment::FW_VERSION,
    refusal::Refusal,
};
use crate::strict::{Rule, Violation};
use mlx5_direct::mlx5::{
    cmd::{
        DisableHcaIn, EnableHcaIn, EnableHcaOut, QueryAdapterOut, QueryAdapterParamBlock, QueryIssiOut,
        SetDriverVersionIn, SetIssiIn, TeardownHcaIn, TeardownHcaOut, TeardownProfile,
    },
    init_segment::NicInterface,
};

/// Bit map of the interface steps: 0 and 1.
const SUPPORTED_ISSI: u32 = 0b11;
/// The board's identity: what `ibv_devinfo` shows as board id.
const PSID: &[u8; 13] = b"MLX5_DIRECT01";
/// PCI-SIG number of Mellanox.
const VSD_VENDOR_ID: u16 = 0x15b3;
/// IEEE number of Mellanox.
const IEEE_VENDOR_ID: u32 = 0x02c9;

impl Function {
    pub(super) fn enable_hca(&mut self, input: &Input<'_>) -> Output {
        let input: EnableHcaIn = input.get()?;
        if input.function_id() != 0 {
            return Err(Refusal::FUNCTION_ID);
        }
        if self.phase == Phase::Initialised {
            return Err(Refusal::ENABLED_TWICE);
        }
        self.phase = Phase::Enabled;
        out(EnableHcaOut::new())
    }

    pub(super) fn disable_hca(&mut self, input: &Input<'_>) -> Output {
        let input: DisableHcaIn = input.get()?;
        if input.function_id() != 0 {
            return Err(Refusal::FUNCTION_ID);
        }
        if self.phase == Phase::Initialised {
            return Err(Refusal::INITIALISED);
        }
        let n_pages = self.pages.n_owned();
        if n_pages != 0 {
            let detail = format!("{n_pages} pages were not reclaimed before DISABLE_HCA");
            self.violate(Violation::new(Rule::PagesAtClose, detail));
        }
        self.pages.forget();
        self.phase = Phase::Off;
        out(EnableHcaOut::new())
    }

    pub(super) fn query_issi(&mut self, _: &Input<'_>) -> Output {
        out(QueryIssiOut::new().with_current_issi(self.issi).with_supported_issi_dw0(SUPPORTED_ISSI))
    }

    pub(super) fn set_issi(&mut self, input: &Input<'_>) -> Output {
        let issi = input.get::<SetIssiIn>()?.current_issi();
        if issi > 31 || SUPPORTED_ISSI >> issi & 1 == 0 {
            return Err(Refusal::ISSI_UNKNOWN);
        }
        self.issi = issi;
        done()
    }

    pub(super) fn init_hca(&mut self, _: &Input<'_>) -> Output {
        self.pages.check_init()?;
        self.phase = Phase::Initialised;
        done()
    }

    pub(super) fn teardown_hca(&mut self, input: &Input<'_>) -> Output {
        match input.get::<TeardownHcaIn>()?.profile() {
            TeardownProfile::GRACEFUL_CLOSE => self.report_leaks(),
            TeardownProfile::FORCE_CLOSE => {}
            // The driver goes on with the nic_interface register.
            TeardownProfile::PREPARE_FAST_TEARDOWN => return out(TeardownHcaOut::new()),
            _ => return Err(Refusal::PROFILE),
        }
        self.close_objects();
        self.phase = Phase::Enabled;
        out(TeardownHcaOut::new())
    }

    /// The driver wrote `nic_interface` = disabled: everything stops at once.
    pub(super) fn fast_teardown(&mut self) {
        debug_assert_eq!(self.iseg.nic_interface(), NicInterface::DISABLED);
        self.close_objects();
        self.pages.forget();
        self.phase = Phase::Off;
    }

    fn report_leaks(&mut self) {
        let kinds = [
            ("flow table", self.steering.len()),
            ("TIR", self.tirs.len()),
            ("TIS", self.tiss.len()),
            ("RQT", self.rqts.len()),
            ("SRQ", self.srqs.len()),
            ("RQ", self.rqs.len()),
            ("SQ", self.sqs.len()),
            ("QP", self.qps.len()),
            ("CQ", self.cqs.len()),
            ("EQ", self.eqs.len()),
            ("umem", self.umems.len()),
            ("mkey", self.mkeys.len()),
            ("protection domain", self.pds.len()),
            ("transport domain", self.transport_domains.len()),
            ("XRC domain", self.xrcds.len()),
            ("counter set", self.counters.len()),
            ("UAR page", self.uars.len()),
        ];
        let left: Vec<_> =
            kinds.iter().filter(|(_, n)| *n != 0).map(|(kind, n)| format!("{n} × {kind}")).collect();
        if !left.is_empty() {
            self.violate(Violation::new(Rule::LeakAtClose, format!("left: {}", left.join(", "))));
        }
    }

    pub(super) fn query_adapter(&mut self, _: &Input<'_>) -> Output {
        let mut psid = [0; 16];
        psid[..PSID.len()].copy_from_slice(PSID);
        let block = QueryAdapterParamBlock::new()
            .with_ieee_vendor_id(IEEE_VENDOR_ID)
            .with_vsd_vendor_id(VSD_VENDOR_ID)
            .with_vsd_contd_psid(psid);
        out(QueryAdapterOut::new().with_query_adapter_struct(block))
    }

    pub(super) fn set_driver_version(&mut self, input: &Input<'_>) -> Output {
        let version = input.get::<SetDriverVersionIn>()?.driver_version();
        self.note(|| {
            let end = version.iter().position(|byte| *byte == 0).unwrap_or(version.len());
            format!("driver {:?} on firmware {FW_VERSION:?}", String::from_utf8_lossy(&version[..end]))
        });
        done()
    }

    pub(super) fn nop(&mut self, _: &Input<'_>) -> Output {
        done()
    }
}
