//! Each operation of the data path once, on queues over ordinary memory: what one call executes, counted by
//! single-stepping; and where it is, to be disassembled.
//!
//! `objdump -d --no-show-raw-insn target/release/examples/hot_path | less +/hot_write_inline_8`

#[path = "../benches/hot/many.rs"]
mod many;
#[path = "../benches/hot/ops.rs"]
mod ops;
#[path = "../benches/hot/rig.rs"]
mod rig;
#[path = "../benches/hot/step.rs"]
mod step;

fn main() {
    let mut rig = rig::Rig::new();
    // There to be disassembled: the rig has no queue pair for datagrams.
    std::hint::black_box(ops::hot_send_datagram_64 as *const ());
    println!("operation, requests, instructions, sfence, lfence, locks");
    for op in rig::all() {
        (op.prepare)(&mut rig, 1);
        (op.run)(&mut rig, 1);
        (op.prepare)(&mut rig, 1);
        match step::count(op.entry, || (op.run)(&mut rig, 1)) {
            Some(c) => {
                let step::Count { instructions, sfences, load_fences, locks } = c;
                println!("{}: {} {instructions} {sfences} {load_fences} {locks}", op.name, op.n);
            }
            None => println!("{}: not counted, the system does not allow tracing", op.name),
        }
    }
    for (name, n) in [("poll 16 of 16 QPs", 16), ("poll 16 of 10000 QPs", 10_000)] {
        let mut many = many::Many::new(n);
        for _ in 0..2 {
            many.complete();
            assert_eq!(many.poll(), u64::from(many::BATCH));
        }
        many.complete();
        match step::count(many::hot_poll_many as *const () as usize, || {
            assert_eq!(many.poll(), u64::from(many::BATCH))
        }) {
            Some(c) => {
                let step::Count { instructions, sfences, load_fences, locks } = c;
                println!("{name}: {} {instructions} {sfences} {load_fences} {locks}", many::BATCH);
            }
            None => println!("{name}: not counted, the system does not allow tracing"),
        }
    }
}
