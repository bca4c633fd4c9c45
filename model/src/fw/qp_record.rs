//! What the doorbell record of a queue pair must say when it begins and when it ends.
#![forbid(unsafe_code)]

use super::Function;
use crate::strict::{Queue, Rule};

impl Function {
    /// The queue pair's queues end: what its record counts must have been rung for.
    pub(super) fn check_rung(&mut self, number: u32) {
        let Some(qp) = self.qps.get(number).filter(|qp| qp.has_send_queue() && qp.sends()) else { return };
        if qp.may_keep_its_record() && qp.producer == 0 {
            return;
        }
        let known = qp.producer;
        if let Ok(word) = self.dma.load_be32(qp.send_record())
            && word as u16 != known
        {
            let detail = format!("the record holds {}, and the last doorbell gave {known}", word as u16);
            self.violate_on(Queue::Sq(number), Rule::DoorbellFollowsRecord, detail);
        }
    }

    /// The queue pair leaves RST: nothing is posted yet.
    pub(super) fn check_record_is_zero(&mut self, number: u32) {
        let Some(qp) = self.qps.get(number) else { return };
        let records = [
            (Queue::Sq(number), (qp.has_send_queue() && !qp.may_keep_its_record()).then(|| qp.send_record())),
            (Queue::Rq(number), qp.receive_record()),
        ];
        for (queue, record) in records {
            if let Some(Ok(word)) = record.map(|record| self.dma.load_be32(record))
                && word != 0
            {
                let detail = format!("the doorbell record holds 0x{word:x} in RST");
                self.violate_on(queue, Rule::RecordZeroAtStart, detail);
            }
        }
    }
}
