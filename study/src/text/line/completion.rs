//! What all failed completions have in common: names, meaning, causes, next checks.

use crate::{
    facts::{Wc, causes_of, checks_of, vendor, vendor_origin, wc_of_syndrome},
    record::{Failure, Record},
};
use mlx5_direct::cqe::CqeSyndrome;
use serde_json::{Map, Value, json};

/// A failed completion as its text tells it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Failed {
    pub(super) syndrome: Option<CqeSyndrome>,
    pub(super) status: Option<&'static Wc>,
    pub(super) vendor: Option<u8>,
}

impl Failed {
    pub(super) fn of_syndrome(syndrome: CqeSyndrome, vendor: Option<u8>) -> Self {
        Self { syndrome: Some(syndrome), status: Some(wc_of_syndrome(syndrome)), vendor }
    }

    pub(super) fn of_status(status: &'static Wc, vendor: Option<u8>) -> Self {
        Self { syndrome: status.syndrome, status: Some(status), vendor }
    }

    /// The fields where the text has a CQE's syndrome.
    pub(super) fn as_cqe(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        if let Some(syndrome) = self.syndrome {
            fields.insert("syndrome".into(), json!(format!("0x{:02x}", syndrome.0)));
            let name = syndrome.name().map(|name| format!("MLX5_CQE_SYNDROME_{name}"));
            fields.insert("syndrome_name".into(), json!(name));
        }
        if let Some(status) = self.status {
            fields.insert("ibv_wc_status".into(), json!(status.name));
            fields.insert("ibv_wc_status_num".into(), json!(status.number));
        }
        if let Some(code) = self.vendor {
            fields.insert("vendor_err_synd".into(), json!(format!("0x{code:02x}")));
        }
        self.with_meaning(fields)
    }

    /// The fields where the text has a status of verbs.
    pub(super) fn as_wc(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        if let Some(status) = self.status {
            fields.insert("ibv_wc_status_num".into(), json!(status.number));
            fields.insert("ibv_wc_status".into(), json!(status.name));
        }
        let syndrome = self.syndrome.map(|syndrome| format!("0x{:02x}", syndrome.0));
        fields.insert("cqe_syndrome".into(), json!(syndrome));
        if let Some(code) = self.vendor {
            fields.insert("vendor_err".into(), json!(format!("0x{code:02x}")));
            fields.insert("vendor_err_dec".into(), json!(code));
        }
        self.with_meaning(fields)
    }

    fn with_meaning(&self, mut fields: Map<String, Value>) -> Map<String, Value> {
        if let Some(known) = self.vendor.and_then(|code| vendor(self.syndrome, code)) {
            fields.insert("vendor_public_meaning".into(), json!(known.meaning));
        }
        fields
    }

    /// Whether it only follows an earlier error.
    pub(super) fn is_flush(&self) -> bool {
        self.syndrome == Some(CqeSyndrome::WR_FLUSH_ERR)
    }

    /// Tells a record what this failure means: sentence, causes, checks, whose it is.
    pub(super) fn explain(&self, record: &mut Record, who: &str, queue: Option<String>) {
        let status = self.status.map_or("an unknown error", |status| status.text);
        let mut says = format!("{who} failed: {status}");
        if let Some(syndrome) = self.syndrome {
            says += &format!(" (CQE syndrome 0x{:02x} {})", syndrome.0, syndrome.name().unwrap_or("unknown"));
        }
        if let Some(code) = self.vendor {
            says += &format!("; vendor syndrome 0x{code:02x}");
            match vendor(self.syndrome, code) {
                Some(known) => says += &format!(": {}, by public reports ({})", known.meaning, known.source),
                None => {
                    says += " has no public reading";
                    if let Some(origin) = vendor_origin(code) {
                        says += &format!(" (others of its group came from {origin})");
                    }
                }
            }
        }
        if self.is_flush() {
            says += "; this follows from an earlier error on the same queue";
        }
        record.says = says + ".";
        if let Some(syndrome) = self.syndrome {
            record.causes.extend(causes_of(syndrome, self.vendor));
            record.check.extend(checks_of(syndrome).iter().map(|check| (*check).to_owned()));
        } else if let Some(status) = self.status {
            record.corrections.push(format!(
                "{} ({}) is made of no mlx5 CQE: libmlx5 and the kernel map syndromes that they do not know to IBV_WC_GENERAL_ERR (21), so this number was set elsewhere, or the CQE was not mlx5's",
                status.name, status.number
            ));
            record.check.push(
                "who set the status: a library above verbs, or memory that was never written".to_owned(),
            );
        }
        record.failure = Some(Failure { queue, is_flush: self.is_flush() });
    }
}
