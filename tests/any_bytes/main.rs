//! Whatever bytes come from a device or a user: no panic, no allocation without bound, an answer in bounded time. What must
//! hold of them is said once for inputs from seeds, for fuzzers (`fuzz`) and for what these have found.

#[path = "../support/any_bytes/mod.rs"]
mod any_bytes;
mod cqe;
#[path = "../fixture/mod.rs"]
mod fixture;
mod opening;
mod structures;
mod words;
mod wqe;

use any_bytes::{Choices, bytes, damage, for_corpus, for_seeds, text};

#[test]
fn structures_are_explained() {
    let all = structures::all();
    for_seeds("structures_are_explained", 20_000, |mut choices| {
        let which = choices.below(all.len());
        let mut input = vec![0; structures::HEAD_BYTES + all[which].size_bytes];
        let (head, bytes) = input.split_at_mut(structures::HEAD_BYTES);
        head.copy_from_slice(&(which as u16).to_be_bytes());
        if choices.bool() {
            choices.fill(bytes);
        } else {
            (0..choices.below(20)).for_each(|_| damage(&mut choices, bytes));
        }
        structures::check(&input);
    });
    for_corpus("structures", structures::check);
}

#[test]
fn wqes_are_taken_apart() {
    let good: Vec<Vec<u8>> =
        include_str!("../data/wqe-vectors.jsonl").lines().step_by(7).map(wqe_of).collect();
    for_seeds("wqes_are_taken_apart", 50_000, |mut choices| {
        let mut input = match choices.below(4) {
            0 => bytes(&mut choices, 1100),
            _ => choices.one_of(&good).clone(),
        };
        (0..choices.below(6)).for_each(|_| damage(&mut choices, &mut input));
        input.truncate(choices.below(input.len() + 1).max(input.len() / 2));
        wqe::check(&input);
    });
    for_corpus("wqe", wqe::check);
}

fn wqe_of(line: &str) -> Vec<u8> {
    let line: serde_json::Value = serde_json::from_str(line).expect("a vector");
    let hex = line["wqe"].as_str().expect("a WQE in hex");
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex")).collect()
}

#[test]
fn cqes_are_read_and_retired() {
    for_seeds("cqes_are_read_and_retired", 5_000, cqe::check);
    for_corpus("cqe", |input| cqe::check(Choices::given(input)));
}

#[test]
fn what_users_write_is_read_or_refused() {
    let good = [
        "model:ports=2,bar=sparse,strict=stop",
        "ports=2,link=ib,part=cx5,drive=step",
        "vfio:0000:01:00.0",
        "verbs:mlx5_0",
        "vfio-user:/run/a socket",
        "0000:c1:00.1",
        "udp:127.0.0.1:4791/127.0.0.2:4791",
        "unix:/tmp/a:/tmp/b",
        "roce:fe80::1%eth0",
        "qpn=0x000111 psn=0x1 gid=fe80::1 lid=3",
        "seed 7\n@0 packet 3..9 delay 50us\npacket 5% corrupt 3\ncommand CREATE_QP 2 stuck # for ever\ncommand * fail 0x4 0x1234",
        "completion 7 fail 0x15 0x81\nevent * owner\ntime 5ms link down\nreceive 3 missing\npages -7\nhealth 0x1 0x8000",
    ];
    for_seeds("what_users_write_is_read_or_refused", 50_000, |mut choices| {
        let example = choices.one_of(&good);
        words::check(&text(&mut choices, example));
    });
    for_corpus("words", |input| words::check(&String::from_utf8_lossy(input)));
}

#[test]
fn answers_of_commands_are_believed_or_not() {
    let (mut n_opened, mut n_lies) = (0, 0);
    for_seeds("answers_of_commands_are_believed_or_not", 150, |choices| {
        let done = opening::check(choices);
        n_opened += u32::from(done.opened);
        n_lies += done.n_lies;
    });
    println!("{n_opened} opened, {n_lies} lies");
    assert!(n_lies > 0);
}
