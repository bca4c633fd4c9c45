//! The function is taken away while it is in use: pulled out, wanted back by the host, or both.

use crate::{
    driver::{DEADLINE, End, FIRST, clean, open, traffic},
    rig::{is_inside, on_host, traced},
};
use mlx5_direct::{Context, Error, Gone, backend::AsyncEvent, queue::Flags};
use std::{
    thread,
    time::{Duration, Instant},
};

/// The longest that taking everything down may last: no command is waited for, and no lock that somebody else keeps.
const SOON: Duration = Duration::from_secs(2);

/// Messages from one end to the other, until the device is gone; how that is told. The last is under way then.
fn traffic_until_gone(context: &Context, ends: &mut [End; 2]) -> Error {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let [a, b] = &mut *ends;
        b.qp.post_recv(0, &[b.lease.slice(0..64)]).expect("post_recv");
        let mut list = a.qp.post_list();
        list.send(0, Flags::SIGNALED).expect("room").local(a.lease, 0..64).expect("range").finish();
        list.ring();
        for end in [a, b] {
            loop {
                let mut poll = end.cq.poll();
                if let Some(wc) = poll.next() {
                    end.qp.retire(&wc).expect("ours");
                    break;
                }
                drop(poll);
                if let Err(error) = context.health() {
                    return error;
                }
                assert!(Instant::now() < deadline, "the device should be gone");
            }
        }
    }
}

/// All lets go, and soon.
fn drop_soon<T>(all: T) {
    let start = Instant::now();
    drop(all);
    assert!(start.elapsed() < SOON, "it took {:?}", start.elapsed());
}

/// Registers read all ones, and everything that waits ends.
#[test]
fn unplugged_in_traffic() {
    let said = on_host("taken_away::unplugged_in_traffic", "", "unplug=300", || {
        let context = open(FIRST).expect("open");
        let mut ends = End::pair([&context, &context], false);
        let error = traffic_until_gone(&context, &mut ends);
        assert!(matches!(error, Error::DeviceGone(Gone::Pci)), "{error:?}");
        assert!(error.to_string().contains("read all ones"), "{error}");
        // And so does every call from then on, at once.
        assert!(matches!(context.alloc_pd().map(|_| ()), Err(Error::DeviceGone(Gone::Pci))));
        drop_soon((ends, context));
    });
    assert!(clean(&said) && !said.contains("a minute"), "{said}");
}

/// Somebody unbinds the function in traffic: every call says that the kernel wants it back, and it is given back in
/// order. Whoever unbinds holds the lock that a reset needs. The next driver to let it write finds it at rest, and once
/// closed it can be opened again.
#[test]
fn wanted_back_in_traffic() {
    let (said, trace) = traced("taken_away::wanted_back_in_traffic", "reclaim=200", || {
        let context = open(FIRST).expect("open");
        let mut ends = End::pair([&context, &context], false);
        let error = traffic_until_gone(&context, &mut ends);
        assert!(matches!(error, Error::DeviceGone(Gone::Released)), "{error:?}");
        assert!(error.to_string().contains("the kernel wants the function back"), "{error}");
        let event = context.next_async_event(DEADLINE).expect("events");
        assert!(matches!(event, Some(AsyncEvent::DeviceFatal(Gone::Released))), "{event:?}");
        assert!(matches!(context.alloc_pd().map(|_| ()), Err(Error::DeviceGone(Gone::Released))));
        drop_soon((ends, context));
        let again = open(FIRST).expect("open again");
        traffic([&again, &again], true);
    });
    assert!(clean(&said), "{said}");
    if is_inside() {
        return;
    }
    let commands: Vec<_> = trace.lines().filter_map(|line| line.split_once("CommandIn: slot ")).collect();
    let names: Vec<_> =
        commands.iter().filter_map(|(_, what)| what.split_once(": ")).map(|(_, name)| name).collect();
    let of = |name: &str| names.iter().position(|found| found.starts_with(name)).expect(name);
    let (torn_down, disabled) = (of("TEARDOWN_HCA"), of("DISABLE_HCA"));
    for (made, ended) in [
        ("CREATE_QP", "DESTROY_QP"),
        ("CREATE_CQ", "DESTROY_CQ"),
        ("CREATE_EQ", "DESTROY_EQ"),
        ("CREATE_MKEY", "DESTROY_MKEY"),
        ("ALLOC_PD", "DEALLOC_PD"),
        ("ALLOC_UAR", "DEALLOC_UAR"),
    ] {
        let n = |name: &str| names[..torn_down].iter().filter(|found| found.starts_with(name)).count();
        assert_eq!(n(made), n(ended), "{made} and {ended} before TEARDOWN_HCA: {names:?}");
        assert_ne!(n(made), 0, "{made}: {names:?}");
    }
    assert!(names[torn_down..disabled].iter().any(|name| name.starts_with("MANAGE_PAGES")), "{names:?}");
    assert!(names[disabled + 1].starts_with("ENABLE_HCA"), "after DISABLE_HCA: {names:?}");
}

/// The function that is asked for is out before it is given back: what it is told to do then is not waited for.
#[test]
fn wanted_back_and_unplugged() {
    let said = on_host("taken_away::wanted_back_and_unplugged", "", "reclaim=200,unplug=500", || {
        let context = open(FIRST).expect("open");
        let mut ends = End::pair([&context, &context], false);
        let error = traffic_until_gone(&context, &mut ends);
        assert!(matches!(error, Error::DeviceGone(Gone::Released)), "{error:?}");
        thread::sleep(Duration::from_secs(1));
        drop_soon((ends, context));
        // It was given back, although nothing could stop it: what is found in the slot now is nothing.
        let again = open(FIRST).expect_err("an empty slot").to_string();
        assert!(again.contains("0xffff"), "{again}");
    });
    assert!(clean(&said) && !said.contains("a minute"), "{said}");
}
