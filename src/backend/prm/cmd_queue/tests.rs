use super::*;
use crate::{
    backend::pci::fake::{Answer, FakeFunction},
    doorbell::explore::{
        Barrier, Commander, DEVICE, DONE, DOORBELL, ENTRY, MAILBOX, OUTPUT, OWNERSHIP, RECORD_FIRST,
        Recorder, Step, UNCACHED, Watch, assert_held,
    },
    mlx5::cmd::ManagePagesIn,
};

mod waiting;

const NOP: CmdOpcode = CmdOpcode::NOP;
const SECOND: Duration = Duration::from_secs(1);

fn queue(timeout: Duration) -> (Arc<FakeFunction>, CommandQueue) {
    let fake = Arc::new(FakeFunction::new());
    let function: Arc<dyn PciFunction> = fake.clone();
    let dma = DmaSpace::new(Arc::clone(&function));
    let health = Arc::new(Health::new(Arc::clone(&function)));
    (fake, CommandQueue::new(function, dma, health, timeout).unwrap())
}

/// A NOP of `len` bytes that differs from others by `seed`.
fn input(len: usize, seed: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len.max(16)).map(|i| (i * 7 + i / 251 + seed) as u8).collect();
    bytes[..8].copy_from_slice(&MboxIn::new().with_opcode(NOP).to_bytes()[..8]);
    bytes.truncate(len.max(16));
    bytes
}

fn echo(queue: &CommandQueue, lane: Lane, in_len: usize, out_len: usize, seed: usize) -> Result<()> {
    let input = input(in_len, seed);
    let mut output = vec![0xa5; out_len];
    queue.exec_bytes(lane, &input, &mut output)?;
    let mut expected = vec![0; 8];
    expected.extend(&input[8..]);
    expected.resize(out_len.max(expected.len()), 0);
    assert_eq!(output, expected[..out_len], "{in_len} bytes in, {out_len} out");
    Ok(())
}

fn wait_for(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < 10 * SECOND);
        std::thread::yield_now();
    }
}

#[test]
fn l8_mailbox_chaining() {
    let lengths = [8, 15, 16, 17, 511, 512, 513, 527, 528, 529, 1040, 4096, 4097, 4112, 5000, 100 << 10];
    for signed in [false, true] {
        let (fake, queue) = queue(10 * SECOND);
        if signed {
            fake.sign();
            queue.use_signatures(true);
        }
        let mappings = fake.n_mappings();
        for in_len in lengths {
            for out_len in lengths {
                echo(&queue, Lane::Regular, in_len, out_len, in_len + out_len).unwrap();
            }
        }
        assert_eq!(fake.broken(), [""; 0]);
        assert_eq!(fake.n_mappings(), mappings, "large chains were not given back");
        queue.release();
        assert_eq!(fake.n_mappings(), 0);
    }
}

/// Case L6: 32 in flight complete in any order.
#[test]
fn command_parallel_timeout_cancel() {
    let (fake, queue) = queue(30 * SECOND);
    for round in 0..20 {
        fake.hold(true);
        std::thread::scope(|scope| {
            let queue = &queue;
            for n in 0..40 {
                scope.spawn(move || echo(queue, Lane::Regular, 64 + 100 * n, 600, n).unwrap());
            }
            scope.spawn(move || echo(queue, Lane::Pages, 700, 700, 99).unwrap());
            wait_for(|| fake.waiting().len() == 32);
            let mut slots = fake.waiting();
            slots.sort_unstable();
            assert_eq!(slots, (0..32).collect::<Vec<_>>());
            // An order of its own in each round; 13 has no factor in common with 32.
            for n in 0..32 {
                fake.complete((n * 13 + round) % 32);
            }
            // The nine that found no slot at first.
            wait_for(|| fake.waiting().len() == 9);
            fake.hold(false);
        });
    }
    assert_eq!(fake.broken(), [""; 0]);
}

#[test]
fn the_last_slot_is_for_pages() {
    let (fake, queue) = queue(10 * SECOND);
    fake.hold(true);
    std::thread::scope(|scope| {
        let queue = &queue;
        for n in 0..31 {
            scope.spawn(move || echo(queue, Lane::Regular, 16, 16, n).unwrap());
        }
        wait_for(|| fake.waiting().len() == 31);
        scope.spawn(move || echo(queue, Lane::Pages, 16, 16, 0).unwrap());
        wait_for(|| fake.waiting().len() == 32);
        assert_eq!(fake.waiting()[31], 31);
        fake.complete(31);
        fake.hold(false);
    });
}

#[test]
fn a_late_completion_is_harmless() {
    let (fake, queue) = queue(SECOND);
    fake.hold(true);
    std::thread::scope(|scope| {
        for n in 0..31 {
            let queue = &queue;
            scope.spawn(move || {
                let late = echo(queue, Lane::Regular, 700, 700, n).unwrap_err();
                assert!(late.to_string().contains("NOP (0x80d) in slot"), "{late}");
            });
        }
    });
    // Nothing is reused while the device has it.
    let full = echo(&queue, Lane::Regular, 16, 16, 0).unwrap_err().to_string();
    assert!(full.contains("31 of 31 are stuck"), "{full}");
    assert_eq!(fake.waiting().len(), 31);
    // The pages lane does not suffer.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for(|| fake.waiting().contains(&31));
            fake.complete(31);
        });
        echo(&queue, Lane::Pages, 16, 16, 0).unwrap();
    });
    fake.complete(5);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for(|| fake.waiting().last() == Some(&5));
            fake.complete(5);
        });
        echo(&queue, Lane::Regular, 700, 700, 1).unwrap();
    });
    fake.hold(false);
    for n in 0..100 {
        echo(&queue, Lane::Regular, 5000, 5000, n).unwrap();
    }
    let pool = lock(&queue.pool);
    assert_eq!((pool.stuck, pool.free), (0, u32::MAX), "all slots are back");
    assert_eq!(fake.broken(), [""; 0]);
}

/// Case L7.
#[test]
fn command_delivery_and_status_errors() {
    let (fake, queue) = queue(10 * SECOND);
    for &(name, bits) in DeliveryStatus::TABLE.1.iter().filter(|(_, bits)| *bits != 0) {
        let status = DeliveryStatus(bits as u8);
        fake.answer_next(Answer::Delivery(status));
        let error = echo(&queue, Lane::Regular, 16, 16, 0).unwrap_err();
        assert!(matches!(error, Error::Delivery { opcode: NOP, status: at } if at == status));
        assert!(
            error.to_string().contains(name) && !error.to_string().contains("does not define"),
            "{error}"
        );
    }
    for &(name, bits) in CmdStatus::TABLE.1.iter().filter(|(_, bits)| *bits != 0) {
        let status = CmdStatus(bits as u8);
        fake.answer_next(Answer::Status(status, 0xdead_0000 + bits as u32));
        let error = echo(&queue, Lane::Regular, 16, 16, 0).unwrap_err();
        assert!(matches!(error, Error::Command { opcode: NOP, op_mod: 0, status: at, syndrome }
            if at == status && syndrome == 0xdead_0000 + bits as u32));
        assert!(
            error.to_string().contains(name) && !error.to_string().contains("does not define"),
            "{error}"
        );
    }
    fake.answer_next(Answer::Status(CmdStatus(0x77), 0));
    let unknown = echo(&queue, Lane::Regular, 16, 16, 0).unwrap_err().to_string();
    assert!(unknown.contains("0x77") && unknown.contains("does not define"), "{unknown}");
    echo(&queue, Lane::Regular, 16, 16, 0).unwrap();
}

/// What follows input and output goes and comes with them.
#[test]
fn commands_have_their_own_structures() {
    let (fake, queue) = queue(10 * SECOND);
    // The fake answers what it was given: where the input has its number of entries, the output has that of the function.
    let input = ManagePagesIn::request().with_function_id(7);
    assert_eq!(queue.call(&input).unwrap().output_num_entries(), 7);
    let tail: Vec<u8> = (0..999).map(|i| i as u8 | 1).collect();
    let input = input.with_input_num_entries(0x0102_0304);
    let (out, out_tail) = queue.exec(Lane::Pages, &input, &tail, 1010).unwrap();
    assert_eq!(out.output_num_entries(), 7);
    assert_eq!(out_tail, [&tail[..], &[0; 11]].concat());
    assert_eq!(fake.broken(), [""; 0]);
}

/// Tokens are 1 to 255 in turn; 0 would be none.
#[test]
fn tokens_differ_and_are_never_0() {
    let (fake, queue) = queue(10 * SECOND);
    let memory = lock(&queue.memory).clone().unwrap();
    for n in 0..600 {
        echo(&queue, Lane::Regular, 16, 16, n).unwrap();
        let mut entry = CmdEntry::new().to_bytes();
        memory.entries.memory().read(0, &mut entry);
        // The counter has 256 values: once around, the first token comes twice.
        assert_eq!(usize::from(CmdEntry::from_bytes(entry).token()), 1 + n % 256 % 255);
    }
    assert_eq!(fake.broken(), [""; 0]);
}

/// A queue of one slot has nothing to reserve for pages.
#[test]
fn a_queue_of_one_slot_serves_both_lanes() {
    let fake = Arc::new(FakeFunction::new());
    fake.set_register(regs::CMDQ_ADDR_L_SZ, 0x06);
    let function: Arc<dyn PciFunction> = fake.clone();
    let (dma, health) = (DmaSpace::new(Arc::clone(&function)), Arc::new(Health::new(Arc::clone(&function))));
    let queue = CommandQueue::new(function, dma, health, 10 * SECOND).unwrap();
    for lane in [Lane::Regular, Lane::Pages, Lane::Regular] {
        echo(&queue, lane, 600, 600, 1).unwrap();
    }
    assert_eq!(fake.broken(), [""; 0]);
}

/// Commands of up to 16 mailboxes use those that their slot has; a larger one has its own while it runs.
#[test]
fn only_large_commands_have_mailboxes_of_their_own() {
    let (fake, queue) = queue(10 * SECOND);
    let kept = fake.n_mappings();
    fake.hold(true);
    // Eight each way, and one more.
    for (in_len, own) in [(16, 0), (16 + 8 * 512, 0), (17 + 8 * 512, 1)] {
        std::thread::scope(|scope| {
            let running = scope.spawn(|| echo(&queue, Lane::Regular, in_len, 16 + 8 * 512, 1));
            wait_for(|| fake.waiting() == [0]);
            assert_eq!(fake.n_mappings(), kept + own, "{in_len} bytes");
            fake.complete(0);
            running.join().unwrap().unwrap();
        });
        assert_eq!(fake.n_mappings(), kept);
    }
}

/// An entry that changed on its way is noticed if it is signed, and only then.
#[test]
fn an_altered_answer_is_refused_where_answers_are_signed() {
    let (fake, queue) = queue(10 * SECOND);
    fake.answer_next(Answer::Altered);
    echo(&queue, Lane::Regular, 16, 16, 3).unwrap();
    queue.use_signatures(true);
    fake.answer_next(Answer::Altered);
    let altered = echo(&queue, Lane::Regular, 16, 16, 3).unwrap_err();
    assert!(altered.to_string().contains("XOR 0xfe, not 0xff"), "{altered}");
    echo(&queue, Lane::Regular, 16, 16, 3).unwrap();
}

#[test]
fn an_unsigned_answer_is_refused() {
    let (fake, queue) = queue(10 * SECOND);
    queue.use_signatures(true);
    // The fake signs entries only.
    let unsigned = echo(&queue, Lane::Regular, 1001, 1001, 3).unwrap_err();
    assert!(matches!(unsigned, Error::Protocol(_)), "{unsigned}");
    fake.sign();
    echo(&queue, Lane::Regular, 1001, 1001, 3).unwrap();
}

#[test]
fn a_dead_device_ends_all_waits() {
    let (fake, queue) = queue(60 * SECOND);
    fake.hold(true);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let queue = &queue;
        for n in 0..40 {
            scope.spawn(move || {
                let gone = echo(queue, Lane::Regular, 16, 16, n).unwrap_err();
                assert!(matches!(gone, Error::DeviceGone(Gone::Pci)), "{gone}");
            });
        }
        wait_for(|| fake.waiting().len() == 31);
        fake.set_register(regs::HEALTH_FW_VER, regs::ALL_ONES);
    });
    assert!(start.elapsed() < 10 * SECOND);
}

/// An answer to a command without content.
fn exec(queue: &CommandQueue, opcode: CmdOpcode) -> Result<()> {
    let mut input = [0; 16];
    input[..8].copy_from_slice(&MboxIn::new().with_opcode(opcode).to_bytes()[..8]);
    queue.exec_bytes(Lane::Regular, &input, &mut [0; 16])
}

/// A function that is wanted back answers: what is under way ends as ever, nothing new is made, and all can be ended.
#[test]
fn a_function_that_is_wanted_back_is_taken_down() {
    let (fake, queue) = queue(60 * SECOND);
    let ends = [
        CmdOpcode::QP_2RST,
        CmdOpcode::DESTROY_QP,
        CmdOpcode::DEALLOC_UAR,
        CmdOpcode::DETACH_FROM_MCG,
        CmdOpcode::DELETE_FLOW_TABLE_ENTRY,
        CmdOpcode::TEARDOWN_HCA,
        CmdOpcode::MANAGE_PAGES,
        CmdOpcode::DISABLE_HCA,
    ];
    fake.hold(true);
    std::thread::scope(|scope| {
        let queue = &queue;
        scope.spawn(move || echo(queue, Lane::Regular, 700, 700, 0).unwrap());
        wait_for(|| fake.waiting() == [0]);
        fake.want_back();
        // Found out by the command that waits.
        wait_for(|| queue.health.gone() == Some(Gone::Released));
        let refused = exec(queue, CmdOpcode::ALLOC_PD).unwrap_err();
        assert!(matches!(refused, Error::DeviceGone(Gone::Released)), "{refused}");
        assert_eq!(fake.waiting(), [0]);
        fake.hold(false);
    });
    for opcode in ends {
        exec(&queue, opcode).unwrap_or_else(|error| panic!("{error}"));
    }
    // It dies before all is ended: then nothing is asked any more, and all callers still get the first verdict.
    fake.hold(true);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| exec(&queue, CmdOpcode::DESTROY_QP).unwrap_err());
        wait_for(|| fake.waiting().len() == 1);
        fake.set_register(regs::HEALTH_FW_VER, regs::ALL_ONES);
        let gone = waiting.join().unwrap();
        assert!(matches!(gone, Error::DeviceGone(Gone::Released)), "{gone}");
    });
    for opcode in ends {
        let gone = exec(&queue, opcode).unwrap_err();
        assert!(matches!(gone, Error::DeviceGone(Gone::Released)), "{opcode}: {gone}");
    }
    assert!(start.elapsed() < 10 * SECOND);
    assert_eq!(fake.waiting().len(), 1, "a dead device was asked");
}

/// What ends each thing that can be made: told by the names that the interface gives.
#[test]
fn every_maker_has_an_end() {
    let opcode_of = |name: &str| {
        let found = CmdOpcode::TABLE.1.iter().find(|(found, _)| *found == name);
        CmdOpcode(found.unwrap_or_else(|| panic!("{name}")).1 as u16)
    };
    let makers = [("CREATE_", "DESTROY_"), ("ALLOC_", "DEALLOC_"), ("ATTACH_TO_", "DETACH_FROM_")];
    let mut n_makers = 0;
    for (maker, end) in makers {
        let made = CmdOpcode::TABLE.1.iter().filter_map(|(name, _)| name.strip_prefix(maker));
        for what in made {
            n_makers += 1;
            assert!(!takes_down(opcode_of(&format!("{maker}{what}"))), "{maker}{what}");
            assert!(takes_down(opcode_of(&format!("{end}{what}"))), "{end}{what}");
        }
    }
    assert!(n_makers > 30, "{n_makers}");
    assert!(!takes_down(CmdOpcode(0xfff)));
}

#[test]
fn a_foreign_interface_is_refused() {
    for (offset, value, rule) in [
        (regs::CMDIF_REV_FW_SUB, 4 << 16, "revision 4"),
        (regs::CMDQ_ADDR_L_SZ, 0x66, "2^6 entries"),
        (regs::CMDQ_ADDR_L_SZ, 0x55, "2^5 bytes"),
    ] {
        let fake = Arc::new(FakeFunction::new());
        fake.set_register(offset, value);
        let function: Arc<dyn PciFunction> = fake;
        let dma = DmaSpace::new(Arc::clone(&function));
        let health = Arc::new(Health::new(Arc::clone(&function)));
        let text = CommandQueue::new(function, dma, health, SECOND).unwrap_err().to_string();
        assert!(text.contains(rule), "{text}");
    }
}

/// What a command does to memory and to the register, and what it looks at.
fn steps_of_a_command() -> Vec<Step> {
    let (fake, queue) = queue(10 * SECOND);
    // The mailboxes are made by the first.
    echo(&queue, Lane::Regular, 64, 64, 1).unwrap();
    let memory = lock(&queue.memory).clone().unwrap();
    let mut entry = CmdEntry::new().to_bytes();
    memory.entries.memory().read(0, &mut entry);
    let at = fake.memory_at(memory.entries.address_of(0));
    let mailbox = fake.memory_at(CmdEntry::from_bytes(entry).input_mailbox_ptr());
    let watch = |cell, at, len_bytes, value| Watch { cell, at, len_bytes, value, is_register: false };
    let ownership = fake.memory_at(memory.entries.address_of(STATUS_OFFSET));
    let watches = vec![
        // Inputs by their 9th and 17th byte, which tell the second command from the first.
        watch(ENTRY, at, 32, |entry| (entry[16 + 8] == 8 * 7 + 2).into()),
        watch(MAILBOX, mailbox, 16, |data| (data[0] == 16 * 7 + 2).into()),
        watch(OWNERSHIP, ownership, 4, |word| if word[3] & 1 != 0 { DEVICE } else { DONE }),
    ];
    let recorder = Recorder::start(watches, &[(OWNERSHIP, DONE)]);
    echo(&queue, Lane::Regular, 64, 64, 2).unwrap();
    let mut steps = recorder.end();
    // That is the device's: it answers on this thread.
    steps.retain(|step| *step != Step::Store { cell: OWNERSHIP, value: DONE });
    let test = steps.iter().position(|step| *step == Step::Barrier(Barrier::AfterOwnerTest)).unwrap();
    steps.insert(test + 1, Step::Load { cell: OUTPUT, only_if: None });
    steps
}

#[test]
fn commands_are_whole_before_they_are_rung_and_answers_before_they_are_read() {
    assert_held(
        "commands",
        &UNCACHED,
        |_| steps_of_a_command(),
        &Commander::new(),
        |_| vec![RECORD_FIRST, DOORBELL, Barrier::AfterOwnerTest],
    );
}
