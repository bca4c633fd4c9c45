//! Memory that goes while the device still has its address.
#![forbid(unsafe_code)]

use super::{Function, Phase, buffer::Buffer};
use crate::strict::{Queue, Rule, Violation};
use std::ops::Range;

/// What still names the memory: the queue, if it is one's, and in words.
type Named = (Option<Queue>, String);

impl Function {
    /// A range is about to be unmapped: no object may have its address any more.
    ///
    /// Keys that a UMR has changed are left out: mlx5e unmaps a page of its striding receive queues while the key's list
    /// still has it, and no posted WQE leads there.
    pub(crate) fn check_unmap(&mut self, iova: u64, len_bytes: u64) {
        if !self.running() || self.phase == Phase::Off {
            return;
        }
        let range = iova..iova.saturating_add(len_bytes);
        if let Some((queue, what)) = self.who_names(&range) {
            let detail = format!("IOVA 0x{iova:x}, {len_bytes} bytes, is unmapped and is memory of {what}");
            let mut violation = Violation::new(Rule::DmaUnmapInUse, detail);
            violation.queue = queue;
            self.violate(violation);
        }
    }

    fn who_names(&self, range: &Range<u64>) -> Option<Named> {
        let has = |buffer: &Buffer, record: Option<u64>| {
            buffer.touches(range) || record.is_some_and(|record| range.contains(&record))
        };
        let named = |queue: Queue| (Some(queue), queue.to_string());
        let qps = self.qps.iter().find(|(_, qp)| has(qp.buffer(), qp.record()));
        let cqs = self.cqs.iter().find(|(_, cq)| has(&cq.buffer, Some(cq.context.dbr_addr())));
        let sqs = self.sqs.iter().find(|(_, sq)| has(sq.buffer(), Some(sq.context.wq().dbr_addr())));
        let srqs = self.srqs.iter().find(|(_, srq)| has(srq.buffer(), None));
        let eqs = self.eqs.iter().find(|(_, eq)| has(eq.buffer(), None));
        let mkeys = self.mkeys.iter().find(|(_, mkey)| mkey.touches(range));
        None.or_else(|| qps.map(|(number, _)| named(Queue::Sq(number))))
            .or_else(|| cqs.map(|(number, _)| named(Queue::Cq(number))))
            .or_else(|| sqs.map(|(number, _)| named(Queue::Sq(number))))
            .or_else(|| srqs.map(|(number, _)| named(Queue::Srq(number))))
            .or_else(|| eqs.map(|(number, _)| named(Queue::Eq(number))))
            .or_else(|| mkeys.map(|(number, _)| (None, format!("memory key 0x{number:x}xx"))))
            .or_else(|| {
                self.pages.first_owned(range).map(|page| (None, format!("firmware: page 0x{page:x}")))
            })
    }
}
