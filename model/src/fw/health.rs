//! Health of a function as the init segment tells it.
#![forbid(unsafe_code)]

use mlx5_direct::mlx5::init_segment::HealthSyndrome;

/// What killed the firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fatal {
    /// `synd` of the health buffer.
    pub syndrome: HealthSyndrome,
    /// `ext_synd` of the health buffer.
    pub ext_syndrome: u16,
}

impl Fatal {
    /// A broken rule under `strict=stop`.
    pub const STRICT: Self = Self { syndrome: HealthSyndrome::FW_ERR, ext_syndrome: 0x57 };

    /// With this syndrome.
    pub const fn new(syndrome: HealthSyndrome) -> Self {
        Self { syndrome, ext_syndrome: 0 }
    }
}
