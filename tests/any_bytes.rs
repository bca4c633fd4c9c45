//! Whatever bytes come from a device or a user: no panic, no allocation without bound, an answer in bounded time.

#[path = "support/any_bytes.rs"]
mod any_bytes;
mod fixture;
mod liar;

use any_bytes::{Measured, bytes, damage, for_seeds, text};
use fixture::{Cq, Recv, Send, SendOptions, requester_cqe};
use liar::Liar;
use mlx5_direct::{
    Access, Connection, Context, CqAttr, Error, QpAddress, QpInit,
    backend::prm::OpenOptions,
    cqe,
    device::DeviceName,
    host::PciAddress,
    mlx5::{self, ids::Qpn},
    queue::{CqeSize, Flags, Taken},
    wqe::{self, Peer, Placed, Segments},
};
use mlx5_model::{Model, ModelConfig, fault::FaultScript, wire::UplinkAddress};
use std::{fmt::Debug, str::FromStr, sync::Arc, time::Duration};

#[global_allocator]
static MEMORY: Measured = Measured::new();

/// No input here is longer than some KiB.
fn assert_bounded() {
    let largest = MEMORY.largest();
    assert!(largest <= 64 << 20, "an allocation of {largest} bytes");
}

#[test]
fn structures_are_explained() {
    let all: Vec<_> = [mlx5::layouts(), wqe::layouts(), cqe::layouts()].concat();
    for_seeds("structures_are_explained", 20_000, |rng| {
        let desc = all[rng.usize(..all.len())];
        let mut input = vec![0; desc.size_bytes];
        if rng.bool() {
            rng.fill(&mut input);
        } else {
            (0..rng.usize(..20)).for_each(|_| damage(rng, &mut input));
        }
        assert!(desc.explain(&input).to_string().contains(desc.fields[0].name));
        _ = desc.reserved_bit_set(&input);
    });
    assert_bounded();
}

#[test]
fn wqes_are_taken_apart() {
    let good: Vec<Vec<u8>> = include_str!("data/wqe-vectors.jsonl").lines().step_by(7).map(wqe_of).collect();
    for_seeds("wqes_are_taken_apart", 50_000, |rng| {
        let mut input = match rng.u8(..4) {
            0 => bytes(rng, 1100),
            _ => good[rng.usize(..good.len())].clone(),
        };
        (0..rng.usize(..6)).for_each(|_| damage(rng, &mut input));
        input.truncate(rng.usize(..=input.len()).max(input.len() / 2));
        for peer in [Peer::None, Peer::Av, Peer::DcAv, Peer::Xrc, Peer::Eth, Peer::Ipoib] {
            // What there is of a broken one: bytes in order, each once, and the rule last.
            let (mut end, mut broken) = (0, false);
            for placed in Segments::new(&input, peer) {
                assert!(!broken);
                let Ok(Placed { at_bytes, segment }) = placed else {
                    broken = true;
                    continue;
                };
                assert!(at_bytes >= end, "{segment:?}");
                end = at_bytes + segment.desc().map_or(segment.payload().len(), |desc| desc.size_bytes);
                assert!(end <= input.len());
            }
            match wqe::decode_as(&input, peer) {
                Ok(wqe) => assert!(wqe.segments().count() <= 64 && !format!("{wqe:?}{wqe}").is_empty()),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    });
    assert_bounded();
}

fn wqe_of(line: &str) -> Vec<u8> {
    let line: serde_json::Value = serde_json::from_str(line).expect("a vector");
    let hex = line["wqe"].as_str().expect("a WQE in hex");
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex")).collect()
}

#[test]
fn cqes_are_read_and_retired() {
    for_seeds("cqes_are_read_and_retired", 5_000, |rng| {
        let qpn = Qpn::new(0x111);
        let mut send = Send::new(SendOptions::default());
        let mut recv = Recv::new(0x111, 4, 4, 1);
        for wr_id in 0..8 {
            let mut list = send.queue.post_list();
            list.nop(wr_id, Flags::SIGNALED).unwrap().finish();
            list.ring();
            recv.queue.post(wr_id, &[]).unwrap();
        }
        let size = if rng.bool() { CqeSize::B64 } else { CqeSize::B128 };
        let mut cq = Cq::new(rng.u8(0..=3), size);
        for _ in 0..rng.usize(1..20) {
            let mut cqe = requester_cqe(qpn, rng.u16(..10));
            match rng.u8(..4) {
                0 => rng.fill(&mut cqe),
                // One of the opcodes, for this queue pair.
                1 => cqe[63] = rng.u8(..),
                _ => (0..rng.usize(..4)).for_each(|_| damage(rng, &mut cqe)),
            }
            if rng.bool() {
                cq.complete(&cqe);
            } else {
                cq.complete_raw(&cqe);
            }
            let outstanding = (send.queue.n_outstanding(), recv.queue.n_outstanding());
            if rng.bool()
                && !matches!(send.queue.take_one(&mut cq.queue, |_, wc| wc.byte_len()), Taken::Other)
            {
                continue;
            }
            let mut poll = cq.queue.poll();
            while let Some(wc) = poll.next() {
                let said = format!("{wc:?} {:?} {:?} {:?}", wc.source(), wc.imm(), wc.invalidated_rkey());
                assert!(!said.is_empty());
                let retired = [send.queue.retire(&wc), recv.queue.retire(&wc)];
                assert!(retired.iter().filter(|retired| retired.is_ok()).count() <= 1, "{said}");
                for refused in retired.iter().filter_map(|retired| retired.err()) {
                    assert!(!refused.to_string().is_empty());
                }
                if let Some(error) = wc.error() {
                    assert!(error.to_string().contains(&error.qpn.to_string()));
                }
            }
            assert!(
                send.queue.n_outstanding() <= outstanding.0 && recv.queue.n_outstanding() <= outstanding.1
            );
        }
    });
    assert_bounded();
}

/// Parses `input`; what is understood is understood again as it is printed.
fn parse<T: FromStr<Err: ToString> + Debug>(input: &str, print: Option<fn(&T) -> String>) {
    match input.parse::<T>() {
        Ok(value) => {
            if let Some(print) = print {
                let printed = print(&value);
                let again = printed.parse::<T>().unwrap_or_else(|error| {
                    panic!("{input:?} is printed as {printed:?}: {}", error.to_string())
                });
                assert_eq!(format!("{again:?}"), format!("{value:?}"), "{input:?}, printed as {printed:?}");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
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
        "udp:127.0.0.1:4791,127.0.0.2:4791",
        "roce:fe80::1%eth0",
        "qpn=0x000111 psn=0x1 gid=fe80::1 lid=3",
        "seed 7\n@0 packet 3..9 delay 50us\npacket 5% corrupt 3\ncommand CREATE_QP 2 stuck # for ever\ncommand * fail 0x4 0x1234",
        "completion 7 fail 0x15 0x81\nevent * owner\ntime 5ms link down\nreceive 3 missing\npages -7\nhealth 0x1 0x8000",
    ];
    for_seeds("what_users_write_is_read_or_refused", 50_000, |rng| {
        let example = good[rng.usize(..good.len())];
        let input = text(rng, example);
        parse::<DeviceName>(&input, None);
        parse::<PciAddress>(&input, Some(ToString::to_string));
        parse::<QpAddress>(&input, Some(ToString::to_string));
        parse::<ModelConfig>(&input, None);
        _ = input.parse::<UplinkAddress>();
        parse::<FaultScript>(&input, Some(ToString::to_string));
    });
    assert_bounded();
}

/// Opens the card, moves a message between two queue pairs of it, and closes it.
fn use_card(ctx: &Context, liar: &Liar) -> Result<(), Box<dyn std::error::Error>> {
    let pd = ctx.alloc_pd()?;
    let mut cq = ctx.create_cq(&CqAttr::default())?;
    let mut qp = pd.create_qp(&QpInit::default(), &cq, &cq)?;
    let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let how = Connection::default();
    let own = qp.address(how.port, how.gid_index)?;
    qp.connect(&own, &how)?;
    let memory = qp.lease(&mr)?;
    qp.post_recv(1, &[memory.slice(0..64)])?;
    let mut list = qp.post_list();
    list.send(2, Flags::SIGNALED)?.inline(b"to myself")?.finish();
    list.ring();
    for _ in 0..50 {
        liar.step();
        let mut done = cq.poll();
        while let Some(wc) = done.next() {
            qp.retire(&wc)?;
            wc.status()?;
        }
    }
    Ok(())
}

#[test]
fn answers_of_commands_are_believed_or_not() {
    let (mut n_opened, mut n_lies) = (0, 0);
    for_seeds("answers_of_commands_are_believed_or_not", 150, |rng| {
        let model = Model::new("ports=1,drive=step".parse().unwrap()).unwrap();
        let function = model.function(0).unwrap();
        let liar = Arc::new(Liar::new(Arc::clone(&function), rng.fork(), rng.u32(1..60)));
        let options = OpenOptions {
            command_timeout: Duration::from_millis(200),
            fw_init_timeout: Duration::from_millis(200),
            command_signatures: rng.bool(),
            ..OpenOptions::default()
        };
        match Context::open(liar.clone(), options) {
            Ok(ctx) => {
                n_opened += 1;
                if let Err(error) = use_card(&ctx, &liar) {
                    assert!(!error.to_string().is_empty());
                }
            }
            // Firmware that wants more than the caller allows.
            Err(Error::InvalidArgument(what)) => assert!(what.contains("max_firmware_pages"), "{what}"),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        n_lies += liar.n_lies();
        drop(liar);
        assert_eq!(function.dma().n_mappings(), 0, "memory is left mapped");
    });
    println!("{n_opened} opened, {n_lies} lies");
    assert!(n_lies > 0);
    assert_bounded();
}
