//! Event queues: rings that the device writes.
#![forbid(unsafe_code)]

use super::{Core, cmd_queue::Lane};
use crate::{
    Result,
    backend::{
        dma::{DmaRegion, PAGE_BYTES},
        pci::PciFunction,
    },
    doorbell::before_consumer_index,
    mistake::mistake,
    mlx5::{
        cmd::{Command, CreateEqIn, DestroyEqIn},
        context::Eqc,
        eqe::{Eqe, EventType},
        ids::{Eqn, UarIndex},
        uar::{EQ_DOORBELL_ARM, EQ_DOORBELL_NOARM, EqDoorbell},
    },
};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Events that may be consumed before the device is told; a queue has as many to spare.
const SPARE_EQES: u32 = 128;

/// Bytes of an EQE.
const EQE_BYTES: usize = size_of::<Eqe>();

/// One event queue.
#[derive(Debug)]
pub(super) struct EventQueue {
    function: Arc<dyn PciFunction>,
    eqn: Eqn,
    ring: DmaRegion,
    log_size: u8,
    doorbells: u64,
    /// Free-running.
    ci: u32,
    /// Consumed since the device was last told.
    untold: u32,
}

impl EventQueue {
    /// Makes and arms a queue that holds `n_events`, and interrupts through `vector`.
    pub(super) fn create(
        core: &Core,
        uar: UarIndex,
        vector: u16,
        n_events: u32,
        events: &[EventType],
    ) -> Result<Self> {
        let n_eqes = (n_events + SPARE_EQES).next_power_of_two();
        let log_size = n_eqes.trailing_zeros() as u8;
        let ring = core.dma.alloc(n_eqes as usize * EQE_BYTES, PAGE_BYTES)?;
        for slot in 0..n_eqes as usize {
            // Owner 1 is the device in the first lap.
            let owner = !mistake!(EqNotFilled);
            ring.memory().write(slot * EQE_BYTES, Eqe::new().with_owner(owner).as_bytes());
        }
        let vector = if mistake!(EqVectorUnknown) { vector + 0x80 } else { vector };
        let context = Eqc::new().with_log_eq_size(log_size).with_uar_page(uar).with_intr(vector);
        let input = CreateEqIn::request().with_eq_context_entry(context);
        let input = events.iter().fold(input, |input, event| input.with_event(*event));
        let pages: Vec<u8> =
            ring.pages(ring.memory().len_bytes(), PAGE_BYTES).flat_map(u64::to_be_bytes).collect();
        let out = match core.cmd.exec(Lane::Regular, &input, &pages, 0) {
            Ok((out, _)) => out,
            Err(error) => return Err(core.failed(error, [ring])),
        };
        let mut queue = Self {
            function: Arc::clone(&core.function),
            eqn: out.eq_number(),
            ring,
            log_size,
            doorbells: u64::from(uar.get()) * PAGE_BYTES as u64,
            ci: 0,
            untold: 0,
        };
        queue.arm();
        Ok(queue)
    }

    pub(super) fn eqn(&self) -> Eqn {
        self.eqn
    }

    /// Events it holds without overflow.
    pub(super) fn capacity(&self) -> u32 {
        (1 << self.log_size) - SPARE_EQES
    }

    /// The next event, if the device has written one.
    pub(super) fn next(&mut self) -> Option<Eqe> {
        let slot = self.ci & ((1 << self.log_size) - 1);
        let at = slot as usize * EQE_BYTES;
        let owner = self.ring.memory().read_be32_acquire(at + EQE_BYTES - 4) & 1;
        if owner != self.ci >> self.log_size & 1 {
            return None;
        }
        let mut eqe = Eqe::new().to_bytes();
        self.ring.memory().read(at, &mut eqe);
        self.ci = self.ci.wrapping_add(1);
        self.untold += 1;
        if self.untold >= SPARE_EQES {
            self.tell(EQ_DOORBELL_NOARM);
        }
        Some(Eqe::from_bytes(eqe))
    }

    /// Tells the device how far events are consumed, and asks for an interrupt on the next one. If one
    /// has come already, the interrupt comes at once: none is lost.
    pub(super) fn arm(&mut self) {
        self.tell(EQ_DOORBELL_ARM);
    }

    fn tell(&mut self, register: usize) {
        self.untold = 0;
        if mistake!(EqNeverTold) {
            return;
        }
        // The device may write the slots again once it knows the index: all reading is done.
        before_consumer_index();
        let ci = self.ci.wrapping_add(u32::from(mistake!(EqIndexAhead)));
        let doorbell = EqDoorbell::new().with_eqn(self.eqn).with_consumer_index(ci);
        let word = u32::from_be_bytes(doorbell.to_bytes());
        self.function.bar_write32(self.doorbells + register as u64, word);
    }

    /// Ends the queue in the device. If it does not agree, it keeps the memory until the function is down.
    pub(super) fn destroy(self, core: &Core) -> Result<()> {
        let result = core.cmd.call(&DestroyEqIn::request().with_eq_number(self.eqn));
        if result.is_err() {
            core.bury(self.ring);
        }
        result.map(|_| ())
    }

    /// Its memory, when the device cannot be asked any more.
    pub(super) fn into_memory(self) -> DmaRegion {
        self.ring
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backend::{dma::DmaSpace, pci::fake::FakeFunction},
        doorbell::explore::{
            Barrier, FIELDS, Machine, OWNER, Recorder, Step, UNCACHED, Writer, assert_held, loaded,
        },
    };

    /// Two events in a ring of one, each told before the next comes.
    fn steps_of_two_events() -> Vec<Step> {
        let function: Arc<dyn PciFunction> = Arc::new(FakeFunction::new());
        let ring = DmaSpace::new(Arc::clone(&function)).alloc(PAGE_BYTES, PAGE_BYTES).unwrap();
        let (eqn, doorbells) = (Eqn::new(3), PAGE_BYTES as u64);
        let mut queue = EventQueue { function, eqn, ring, log_size: 0, doorbells, ci: 0, untold: 0 };
        let recorder = Recorder::start(vec![], &[(OWNER, 1), (OWNER, 2)]);
        for lap in 0..2 {
            queue.ring.memory().write(0, Eqe::new().with_owner(lap == 1).as_bytes());
            queue.next().expect("just written");
            loaded(FIELDS);
            queue.arm();
        }
        recorder.end()
    }

    #[test]
    fn events_are_read_once_they_are_new_and_before_they_are_given_back() {
        assert_held(
            "events",
            &UNCACHED,
            |_| steps_of_two_events(),
            &Writer::new(2, None),
            |machine| {
                match machine {
                    // A barrier to the compiler is enough, and the doorbell's is one.
                    Machine::X86(_) => vec![Barrier::AfterOwnerTest],
                    Machine::Aarch64(_) => vec![Barrier::AfterOwnerTest, Barrier::BeforeConsumerIndex],
                }
            },
        );
    }
}
