//! Each operation of the data path once, on queues over ordinary memory: to be disassembled.
//!
//! `objdump -d --no-show-raw-insn target/release/examples/hot_path | less +/hot_write_inline_8`

#[path = "../benches/hot/ops.rs"]
mod ops;
#[path = "../benches/hot/rig.rs"]
mod rig;

fn main() {
    let mut rig = rig::Rig::new();
    for op in rig::all() {
        (op.prepare)(&mut rig, 1);
        (op.run)(&mut rig, 1);
        println!("{:<26} at 0x{:x}", op.name, op.entry);
    }
}
