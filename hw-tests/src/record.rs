//! What a run leaves: read back, compared and drawn later.

use crate::environment::Environment;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// A run of scenarios on a device.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Run {
    /// What was given as `--device`.
    pub(crate) device: String,
    pub(crate) environment: Environment,
    pub(crate) scenarios: Vec<Row>,
}

/// A scenario and how it ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) asserts: String,
    pub(crate) verdict: Verdict,
    /// Why it failed or was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    pub(crate) ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) latency: Option<Latency>,
}

/// How a scenario ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Pass,
    Fail,
    Skip,
}

impl Verdict {
    /// As tables show it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "FAIL",
            Self::Skip => "skip",
        }
    }
}

/// Latencies of a measuring scenario.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) samples: u64,
    /// Shares of the samples that were not slower, and the microseconds that they took.
    pub(crate) quantiles: Vec<(f64, f64)>,
}

/// Quantiles that are kept: those that are told, and enough between them for a curve.
const QUANTILES: [f64; 15] =
    [0.0, 0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 1.0];

impl Latency {
    /// From nanoseconds.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let us = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Self { samples: histogram.len(), quantiles: QUANTILES.map(|q| (q, us(q))).to_vec() }
    }

    /// Microseconds at one of the kept quantiles.
    pub(crate) fn at(&self, quantile: f64) -> Option<f64> {
        self.quantiles.iter().find(|(q, _)| *q == quantile).map(|(_, us)| *us)
    }
}

impl Run {
    /// Passed, failed, skipped.
    pub(crate) fn counts(&self) -> [usize; 3] {
        [Verdict::Pass, Verdict::Fail, Verdict::Skip]
            .map(|verdict| self.scenarios.iter().filter(|row| row.verdict == verdict).count())
    }

    /// The scenario of this name.
    pub(crate) fn row(&self, name: &str) -> Option<&Row> {
        self.scenarios.iter().find(|row| row.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_keep_what_is_told() {
        let mut histogram = Histogram::new(3).unwrap();
        (1..=1000).for_each(|n| histogram.record(n * 1000).unwrap());
        let latency = Latency::of(&histogram);
        for (quantile, us) in [(0.0, 1.0), (0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = latency.at(quantile).unwrap();
            assert!((found - us).abs() <= us / 500.0, "{quantile}: {found}");
        }
        assert_eq!((latency.samples, latency.at(0.42)), (1000, None));
    }
}
