//! Hexdumps as they stand in mails, logs and issues: every shape, with what happens to them on the way.

use mlx5_study::{
    record::Record,
    structure::As,
    text::{Finder, Options},
};
use std::fmt::Write;

fn decode_as(read_as: As, text: &str) -> Vec<Record> {
    let mut found = Vec::new();
    let mut finder = Finder::new(Options { read_as, transport: None });
    finder.feed(text.as_bytes(), &mut |record| found.push(record));
    finder.end(&mut |record| found.push(record));
    found
}

fn decode(text: &str) -> Vec<Record> {
    decode_as(As::Auto, text)
}

/// QP number, WQE counter and vendor syndrome of each CQE found.
fn cqes(text: &str) -> Vec<(String, u64, String)> {
    let records = decode(text);
    let cqes =
        records.iter().flat_map(|record| record.parts.get("cqe").and_then(|cqes| cqes.as_array()).unwrap());
    cqes.map(|cqe| {
        let text = |name: &str| cqe[name].as_str().unwrap().to_owned();
        (text("qpn"), cqe["wqe_counter_dec"].as_u64().unwrap(), text("vendor_err_synd"))
    })
    .collect()
}

/// An error CQE.
fn bytes(qpn: u32, counter: u16) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0x36..0x38].copy_from_slice(&[0x88, 0x13]);
    bytes[0x38..0x3c].copy_from_slice(&(0x0800_0000 | qpn).to_be_bytes());
    bytes[0x3c..0x3e].copy_from_slice(&counter.to_be_bytes());
    bytes[0x3e..].copy_from_slice(&[0xf6, 0xd2]);
    bytes
}

/// Its rows: `prefix` in front of each, `offset` before the bytes, words of `word` bytes.
fn rows(bytes: &[u8], prefix: &str, offset: fn(usize) -> String, word: usize) -> Vec<String> {
    let row = |(n, row): (usize, &[u8])| {
        let words: Vec<_> = row
            .chunks(word)
            .map(|word| {
                word.iter().fold(String::new(), |mut text, byte| {
                    write!(text, "{byte:02x}").unwrap();
                    text
                })
            })
            .collect();
        format!("{prefix}{}{}", offset(n * 16), words.join(" "))
    };
    bytes.chunks(16).enumerate().map(row).collect()
}

fn none(_: usize) -> String {
    String::new()
}

fn kernel(at: usize) -> String {
    format!("{at:08x}: ")
}

fn expected(qpn: u32, counter: u16) -> (String, u64, String) {
    (format!("{qpn:#x}"), u64::from(counter), "0x88".into())
}

#[test]
fn every_grouping() {
    let cqe = bytes(0x6214, 7);
    let whole: String = cqe.iter().map(|byte| format!("{byte:02x}")).collect();
    let array: Vec<_> = cqe.iter().map(|byte| format!("0x{byte:02X}")).collect();
    let mut shapes = vec![
        rows(&cqe, "", none, 4).join("\n"),
        rows(&cqe, "", none, 4).join("\n").to_uppercase(),
        rows(&cqe, "", none, 1).join("\n"),
        rows(&cqe, "", none, 8).join("\n"),
        rows(&cqe, "", kernel, 1).join("\n"),
        rows(&cqe, "", kernel, 2).join("\n"),
        rows(&cqe, "", kernel, 4).join("\r\n"),
        rows(&cqe, "", |at| format!("{at:08x}  "), 1).join("\n"),
        rows(&cqe, "", |at| format!("{at:06x} "), 1).join("\n"),
        rows(&cqe, "", |at| format!("{at:07o} "), 1).join("\n"),
        rows(&cqe, "", |at| format!("0x{at:04x}: "), 1).join("\n"),
        rows(&cqe, "", |at| format!("0x{:012x}: ", 0x7f6a_7d20_c000 + at), 1).join("\n"),
        rows(&cqe, "  cqe_dump: ", kernel, 1).join("\n"),
        whole.clone(),
        format!("0x{whole}"),
        format!("cqe={whole};"),
        array.join(", "),
        array.chunks(8).map(|row| row.join(", ") + ",").collect::<Vec<_>>().join("\n"),
        cqe.iter().map(|byte| format!("\\x{byte:02x}")).collect(),
        cqe.chunks(4)
            .map(|word| format!("0x{:08x}", u32::from_be_bytes(word.try_into().unwrap())))
            .collect::<Vec<_>>()
            .join(" "),
        cqe.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"),
    ];
    // Words of a little-endian machine, as `hexdump` and `od -x` print them.
    let little = cqe.chunks(16).enumerate().map(|(n, row)| {
        let words: Vec<_> = row.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[1], pair[0])).collect();
        format!("{:07x} {}", n * 16, words.join(" "))
    });
    shapes.push(little.collect::<Vec<_>>().join("\n"));
    for shape in shapes {
        assert_eq!(cqes(&shape), [expected(0x6214, 7)], "{shape}");
    }
}

#[test]
fn whatever_loggers_and_mails_put_around_them() {
    let cqe = bytes(0x6214, 7);
    for prefix in [
        "> ",
        "> > ",
        ">>| ",
        "\t",
        "[  +0.000001] ",
        "[166755.332944] ",
        "Nov  3 14:00:01 host01 kernel: ",
        "Nov  3 14:00:01 host01 kernel: [   12.500000] ",
        "2026-10-03T05:56:38-0400 host01 kernel: ",
        "2026-10-03T05:56:38.123456+00:00 host01 kernel: [1.5] ",
        "[1,3]<stderr>:",
        "[1,3]<stderr>: ",
        "3: ",
        "node-07: ",
        "\x1b[32m[   12.5] \x1b[0m",
        "[Mon Sep  2 06:28:01 2019] ",
        "<4>[12.5] ",
        "* ",
        "    ",
    ] {
        let dwords = format!(
            "{prefix}mlx5: host01: got completion with error:\n{}\n",
            rows(&cqe, prefix, none, 4).join("\n")
        );
        assert_eq!(cqes(&dwords), [expected(0x6214, 7)], "{dwords}");
        let with_offset = format!(
            "{prefix}infiniband mlx5_0: dump_cqe:272:(pid 0): dump error cqe\n{}\n",
            rows(&cqe, prefix, kernel, 1).join("\n")
        );
        assert_eq!(cqes(&with_offset), [expected(0x6214, 7)], "{with_offset}");
        // Without the line that announces it, and with an ASCII column behind.
        let alone = rows(&cqe, prefix, kernel, 1).join(" | ......S....4.Z..\n");
        assert_eq!(cqes(&alone), [expected(0x6214, 7)], "{alone}");
    }
}

#[test]
fn rows_damaged_on_the_way() {
    let cqe = bytes(0x6214, 7);
    let wanted = [expected(0x6214, 7)];
    let dwords = rows(&cqe, "", none, 4);
    let kernel = rows(&cqe, "", kernel, 1);
    // Blank lines between, a 17th byte, rows wrapped after 13 bytes, two dwords a line.
    assert_eq!(cqes(&dwords.join("\n\n")), wanted);
    assert_eq!(cqes(&(kernel.join(" 00\n") + " 00")), wanted);
    let wrapped: Vec<_> = kernel.iter().map(|row| format!("{}\n{}", &row[..48], &row[49..])).collect();
    assert_eq!(cqes(&wrapped.join("\n")), wanted, "{}", wrapped.join("\n"));
    let halves: Vec<_> = dwords.iter().map(|row| format!("{}\n{}", &row[..17], &row[18..])).collect();
    assert_eq!(cqes(&halves.join("\n")), wanted);
    // The next line stuck to the last dword: it begins the next dump.
    for next in [
        "mlx5: host02: got completion with error:\n",
        "[1496344648.5] mlx5: host01: got completion with error:\n",
    ] {
        let text = format!(
            "mlx5: host01: got completion with error:\n{}{next}{}\n",
            dwords.join("\n"),
            rows(&bytes(0x77, 1), "", none, 4).join("\n")
        );
        assert_eq!(cqes(&text), [expected(0x6214, 7), expected(0x77, 1)], "{text}");
    }
}

#[test]
fn dumps_of_several_writers_line_by_line() {
    let dump = |qpn, prefix: &str, offset| {
        let mut lines = vec![format!("{prefix}mlx5: host01: got completion with error:")];
        lines.extend(rows(&bytes(qpn, 1), prefix, offset, if offset(0).is_empty() { 4 } else { 1 }));
        lines
    };
    let mixed = |a: Vec<String>, b: Vec<String>| {
        a.into_iter().zip(b).flat_map(|(a, b)| [a, b]).collect::<Vec<_>>().join("\n")
    };
    let wanted = [expected(1, 1), expected(2, 1)];
    assert_eq!(cqes(&mixed(dump(1, "[1,0]<stderr>:", none), dump(2, "[1,1]<stderr>:", none))), wanted);
    assert_eq!(cqes(&mixed(dump(1, "[host01:77:0] ", none), dump(2, "[host02:78:0] ", none))), wanted);
    // Nothing but offsets tells them apart, and they do.
    assert_eq!(cqes(&mixed(dump(1, "", kernel), dump(2, "", kernel))), wanted);
    // One that was cut off takes nothing of the next.
    let cut = [&dump(1, "", kernel)[..3], &dump(2, "", kernel)[..]].concat().join("\n");
    assert_eq!(cqes(&cut), [expected(2, 1)]);
}

#[test]
fn cqes_of_128_bytes_and_two_in_a_row() {
    let mut wide = [0x5a; 128];
    wide[64..].copy_from_slice(&bytes(9, 3));
    assert_eq!(cqes(&rows(&wide, "", kernel, 1).join("\n")), [expected(9, 3)]);
    let two = [bytes(1, 1), bytes(2, 2)].concat();
    assert_eq!(cqes(&rows(&two, "", none, 4).join("\n")), [expected(1, 1), expected(2, 2)]);
}

#[test]
fn dpdk_marks_what_it_has_reported() {
    let mut cqe = bytes(0x1542, 25);
    cqe[1..5].copy_from_slice(b"seen");
    let text =
        format!("MLX5 Error CQE: at [0x7f6a7d20c000], len=64\n{}", rows(&cqe, "", kernel, 1).join("\n"));
    let record = decode(&text).remove(0);
    assert_eq!((record.form, record.lines), ("DPDK dump", 1..=5));
    assert_eq!(record.parts["cqe"][0]["other_nonzero_bytes"], 4);
    assert!(record.corrections.iter().any(|text| text.contains("`seen`")), "{:?}", record.corrections);
}

#[test]
fn the_kernels_own_words_are_checked() {
    let rows = rows(&bytes(5, 1), "", kernel, 1).join("\n");
    let text = |status| {
        format!(
            "infiniband mlx5_0: mlx5_handle_error_cqe:332:(pid 0): WC error: {status}, Message: x\ninfiniband mlx5_0: dump_cqe:272:(pid 0): dump error cqe\n{rows}"
        )
    };
    let notes = |status| decode(&text(status)).remove(0).corrections.join("\n");
    assert!(!notes(10).contains("WC error"));
    assert!(notes(4).contains("WC error 4, which is not what the CQE says"));
    assert_eq!(decode(&text(10)).len(), 1);
}

#[test]
fn events_and_commands() {
    let mut eqe = [0; 64];
    (eqe[1], eqe[0x22], eqe[0x23], eqe[0x2b]) = (4, 4, 0x87, 1);
    let record = decode_as(As::Eqe, &rows(&eqe, "", none, 4).join("\n")).remove(0);
    assert!(record.says.contains("CQ 0x487 is dead: it overflowed"), "{}", record.says);
    assert_eq!(record.parts["eqe"][0]["event_type"], "0x04 CQ_ERROR");
    assert_eq!(
        decode(&rows(&eqe, "", none, 4).join("\n")).remove(0).parts["eqe"][0]["event_data"]["cqn"],
        0x487
    );

    let mut entry = [0; 64];
    (entry[0], entry[7], entry[0x11], entry[0x10], entry[0x3b]) = (7, 16, 2, 8, 16);
    (entry[0x20], entry[0x25], entry[0x26], entry[0x27]) = (8, 0x5a, 0x79, 0x39);
    for read_as in [As::Auto, As::Cmd] {
        let record = decode_as(read_as, &rows(&entry, "", kernel, 1).join("\n")).remove(0);
        assert!(
            record.says.contains("ALLOC_UAR was answered: limits exceeded, syndrome 0x5a7939"),
            "{}",
            record.says
        );
        assert_eq!(record.parts["cmd"][0]["status"], "0x8");
    }
    let text = "\
mlx5_core 0000:08:00.0: dump_command:900:(pid 1): cmd[0]: dump command data ALLOC_UAR(0x802) INPUT
cmd[0]: 000: 08020000 00000000 00000000 00000000
mlx5_core 0000:08:00.0: dump_command:930:(pid 1): cmd[0]: end dump
mlx5_core 0000:08:00.0: dump_command:900:(pid 1): cmd[0]: dump command data ALLOC_UAR(0x802) OUTPUT
cmd[0]: 000: 00000000 00000000 00000007 00000000
";
    let records = decode(text);
    assert_eq!(records.len(), 2, "{records:?}");
    assert_eq!(records[0].parts["cmd"][0]["command"], "ALLOC_UAR");
    assert_eq!(records[1].parts["cmd"][0]["output"]["uar"], 7);
}

#[test]
fn what_is_no_dump() {
    for text in [
        "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e  x",
        "00000000 00000000 00000000 00000000\n00000000 00000000 00000000 00000000\n00000000 00000000 00000000 00000000\n00000000 00000000 00000000 00000000\n",
        "link/infiniband 80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0e:0c:d1 brd 00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff",
        "GUID: 0002:c903:000e:0cd1",
    ] {
        assert!(decode(text).is_empty(), "{text}: {:?}", decode(text));
    }
}

/// A request of one or two segments is shorter than what is looked at otherwise; it says its own length.
#[test]
fn a_short_request_that_nothing_announces() {
    let wqe = "0000000a000111020000000a00000000000012b36b7d438f00006f42219630a2";
    let words: Vec<_> = wqe.as_bytes().chunks(8).map(|word| std::str::from_utf8(word).unwrap()).collect();
    for text in [
        wqe.to_owned(),
        words.join(" "),
        format!("0x{}", words.join(" 0x")),
        words.chunks(4).map(|row| row.join(" ")).collect::<Vec<_>>().join("\n"),
    ] {
        let records = decode(&text);
        assert_eq!(records.len(), 1, "{text}");
        assert!(records[0].says.contains("SEND of 4,787 bytes"), "{text}: {}", records[0].says);
    }
    // Not what a hash of the same length is.
    for other in [
        wqe.replace("00011102", "00011103"),
        wqe.replace("0000000a0001", "000000fa0001"),
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".to_owned(),
    ] {
        assert_eq!(decode(&other).len(), 0, "{other}");
    }
}
