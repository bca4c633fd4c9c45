//! Health syndromes: what firmware says when it has failed, and what that asks for.

use mlx5_direct::mlx5::init_segment::HealthSyndrome;

/// A health syndrome.
#[derive(Debug)]
pub struct Health {
    /// The syndrome.
    pub syndrome: HealthSyndrome,
    /// How the kernel prints it (`hsynd_str`).
    pub text: &'static str,
    /// What it asks for.
    pub remedy: &'static str,
}

/// Every health syndrome that the kernel has a text for.
pub const HEALTH: &[Health] = &[
    syndrome(
        HealthSyndrome::FW_ERR,
        "firmware internal error",
        "save a firmware dump (devlink health dump show pci/… reporter fw_fatal), note fw_ver and ext_synd, update firmware",
    ),
    syndrome(
        HealthSyndrome::IRISC_ERR,
        "irisc not responding",
        "a processor of the device hangs: reset the device (devlink health recover, or power cycle), update firmware; ext_synd and assert_var are for the vendor",
    ),
    syndrome(
        HealthSyndrome::HW_UNRECOVERABLE_ERR,
        "unrecoverable hardware error",
        "power cycle the host; if it comes back the card is broken",
    ),
    syndrome(
        HealthSyndrome::CRC_ERR,
        "firmware CRC error",
        "burn the firmware again (mstflint verify), then power cycle",
    ),
    syndrome(
        HealthSyndrome::FETCH_PCI_ERR,
        "ICM fetch PCI error",
        "the device could not read host memory: look for AER and IOMMU faults in the kernel log, reseat the card",
    ),
    syndrome(
        HealthSyndrome::HW_FTL_ERR,
        "HW fatal error",
        "power cycle the host; if it comes back the card is broken",
    ),
    syndrome(
        HealthSyndrome::ASYNC_EQ_OVERRUN_ERR,
        "async EQ buffer overrun",
        "events came faster than the driver took them: look for interrupts off or a stuck CPU",
    ),
    syndrome(
        HealthSyndrome::EQ_ERR,
        "EQ error",
        "look for IOMMU faults on the event queue's memory; reload the driver",
    ),
    syndrome(
        HealthSyndrome::EQ_INV,
        "Invalid EQ referenced",
        "a queue names an event queue that is gone: reload the driver, update it",
    ),
    syndrome(
        HealthSyndrome::FFSER_ERR,
        "FFSER error",
        "a memory error in the device: power cycle; if it comes back replace the card",
    ),
    syndrome(
        HealthSyndrome::HIGH_TEMP,
        "High temperature",
        "cooling: fans, air flow, neighbours of the slot; mget_temp or sensors show the reading",
    ),
    syndrome(
        HealthSyndrome(0x12),
        "ICM fetch PCI data poisoned error",
        "host memory gave the device poisoned data: look for machine checks (rasdaemon, mcelog)",
    ),
    syndrome(
        HealthSyndrome(0x13),
        "Trust lockdown error",
        "the device has locked itself: only a cold reset (power off and on) brings it back",
    ),
];

const fn syndrome(syndrome: HealthSyndrome, text: &'static str, remedy: &'static str) -> Health {
    Health { syndrome, text, remedy }
}

/// A health syndrome, if the kernel has a text for it.
pub fn health(syndrome: HealthSyndrome) -> Option<&'static Health> {
    HEALTH.iter().find(|entry| entry.syndrome == syndrome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_syndrome_has_a_text() {
        for (_, bits) in HealthSyndrome::TABLE.1 {
            assert!(health(HealthSyndrome(u8::try_from(*bits).unwrap())).is_some());
        }
    }
}
