//! Whatever the text is: no panic, no line that is taken twice, no memory without bound. What must hold of it is said once for
//! inputs from seeds, for fuzzers (`fuzz`) and for what these have found.
//!
//! Inputs from seeds are made of what dumps and error lines are made of, cut, doubled, mixed and damaged. `MLX5_FUZZ_RUNS` for
//! more of them, `MLX5_SEED` for another first seed.

mod comparing;
mod decoding;
mod encoding;
#[path = "../../../tests/support/any_bytes/mod.rs"]
mod support;

use mlx5_study::text::{Finder, Options};
use support::{Choices, for_corpus, for_seeds};

/// What inputs are made of.
const PIECES: &[&str] = &[
    "mlx5: host01: got completion with error:\n",
    "00000000 00000000 00000000 00000000\n",
    "00000000 00008813 08006214 0000f6d2",
    "[  408.380181] infiniband mlx5_0: dump_cqe:272:(pid 0): dump error cqe\n",
    "[  408.372201] infiniband mlx5_0: mlx5_handle_error_cqe:332:(pid 0): WC error: 4, Message: local protection error\n",
    "00000030: 00 00 00 00 a9 00 56 04 00 00 01 e9 00 54 e8 e2\n",
    "00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n",
    "   cqe_dump: 00000010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n",
    "mlx5_core 0000:08:00.0 eth2: Error cqe on cqn 0x548, ci 0x2022, qn 0x8f4,\n",
    "  opcode 0xd, syndrome 0x2, vendor syndrome 0x68\n",
    "WQE DUMP: WQ size 16384 WQ cur size 0, WQE index 0x1e14, len: 64\n",
    "WQE DUMP: WQ size 0 WQ cur size 0, WQE index 0x1e14, len: 4294967295\n",
    "MLX5 Error CQE: at [0x7f6a7d20c000], len=64\n",
    "MLX5 Error SQ: at [0x7f6a7d20c000], len=99999999\n",
    "0000000 0000 0001 0203 0405\n",
    "\\x00\\x01\\x02, 0x0a000001, 0x00000003\n",
    "{\"cqe\":\"00\",\"cqes\":[\"",
    "0x08, 0x00, 0x12, 0x34, 0x00, 0x01, 0x17, 0x03\n",
    "mlx5_core 0000:04:00.0: mlx5_cmd_check:795:(pid 9993): RTR2RTS_QP(0x504) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x4bb88f)\n",
    "NET/IB : Got completion from peer 10.0.0.1<36315> with status=12 opcode=32698 len=32696 vendor err 129 (Send)\n",
    "ib_mlx5_log.c:139  Remote QP on mlx5_0:1/IB (synd 0x14 vend 0x89 hw_synd 0/0)\n",
    "RC QP 0x169 wqe[3]: SEND s-- [inl len 10] [va 0x7f1c3c800000 len 1 lkey 0xb5d2]\n",
    "assert_var[0] 0x00000001\nsynd 0x7: irisc not responding\n",
    "cmd[0]: dump command data CREATE_CQ(0x400) INPUT\ncmd[0]: 000: 04000000 00000000 00000000 00000000\n",
    "> > ",
    "[1,3]<stderr>:",
    "\r\n\0",
    "é\u{202e}\u{0}",
    "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a",
];

fn text(choices: &mut Choices) -> Vec<u8> {
    let mut text = Vec::new();
    for _ in 0..choices.below(24) {
        let piece = choices.one_of(PIECES).as_bytes();
        match choices.below(8) {
            0 => text.extend_from_slice(&piece[..choices.below(piece.len())]),
            1 => text.extend((0..choices.below(40)).map(|_| choices.u8())),
            2 => {
                let digits = (0..choices.below(300)).map(|_| *choices.one_of(b"0123456789abcdef"));
                text.extend(digits);
            }
            _ => text.extend_from_slice(piece),
        }
    }
    for _ in 0..choices.below(4) {
        if !text.is_empty() {
            let at = choices.below(text.len());
            text[at] = choices.u8();
        }
    }
    text
}

#[test]
fn any_text_is_read_to_its_end() {
    for_seeds("-p mlx5-study --test any_text any_text_is_read_to_its_end", 500, |mut choices| {
        let mut input = vec![choices.u8(), choices.u8()];
        input.extend(text(&mut choices));
        decoding::check(&input);
    });
    for_corpus("decode", decoding::check);
}

#[test]
fn any_bytes_are_compared() {
    let vectors = include_str!("../../../tests/data/wqe-vectors.jsonl");
    let good: Vec<_> = vectors.lines().step_by(5).map(wqe_of).collect();
    for_seeds("-p mlx5-study --test any_text any_bytes", 10_000, |mut choices| {
        let mut bytes = match choices.below(3) {
            0 => text(&mut choices),
            1 => support::bytes(&mut choices, 300),
            _ => choices.one_of(&good).clone(),
        };
        support::damage(&mut choices, &mut bytes);
        let mut input = [0; 4].to_vec();
        choices.fill(&mut input);
        comparing::check(&[input, bytes].concat());
    });
    for_corpus("compare", comparing::check);
}

fn wqe_of(line: &str) -> Vec<u8> {
    let line: serde_json::Value = serde_json::from_str(line).expect("a vector");
    let hex = line["wqe"].as_str().expect("a WQE in hex");
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex")).collect()
}

#[test]
fn any_request_is_encoded_or_refused() {
    let vectors = include_str!("../../../tests/data/wqe-vectors.jsonl");
    let good: Vec<_> = vectors.lines().step_by(5).collect();
    for_seeds("-p mlx5-study --test any_text any_request", 3000, |mut choices| {
        let example = choices.one_of(&good);
        encoding::check(support::text(&mut choices, example).as_bytes());
    });
    for_corpus("encode", encoding::check);
}

#[test]
fn a_long_log_of_one_line_takes_no_more_than_a_line() {
    let mut n = 0;
    let mut finder = Finder::new(Options::default());
    for _ in 0..2000 {
        finder.feed(&[b'0'; 1000], &mut |_| n += 1);
    }
    finder.end(&mut |_| n += 1);
    assert!(n < 2000);
}
