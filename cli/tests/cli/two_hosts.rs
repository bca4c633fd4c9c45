//! Two processes, each with a software ConnectX of its own, joined by a wire and by TCP.

use crate::{Ended, command, mlx5, wait};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, ChildStdout},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Sockets of a wire, gone at the end.
pub(crate) struct Wire(PathBuf);

impl Wire {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mlx5-wire-{}-{n}", std::process::id()));
        fs::create_dir_all(&path).expect("directory");
        Self(path)
    }

    /// The device at one of its ends.
    pub(crate) fn device(&self, end: usize, options: &str) -> String {
        let [own, far] = if end == 0 { ["a", "b"] } else { ["b", "a"] };
        let dir = self.0.display();
        format!("--device model:wire=unix:{dir}/{own}:{dir}/{far}{options}")
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A command that listens, and where.
pub(crate) struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub(crate) at: String,
    args: String,
}

impl Server {
    pub(crate) fn start(args: &str) -> Self {
        let args = format!("{args} --listen 127.0.0.1:0");
        let mut child = command(&args).spawn().expect("spawn");
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line");
        let at = line
            .trim_end()
            .strip_prefix("listen  ")
            .unwrap_or_else(|| panic!("mlx5 {args}: {line}"))
            .to_string();
        Self { child, stdout, at, args }
    }

    pub(crate) fn end(mut self) -> Ended {
        let reader = thread::spawn(move || {
            let mut text = String::new();
            self.stdout.read_to_string(&mut text).expect("UTF-8");
            text
        });
        let ended = wait(self.child, &self.args);
        Ended { stdout: reader.join().expect("stdout"), ..ended }
    }
}

/// Runs a server and a client to their ends.
fn both(server: &str, client: &str) -> [Ended; 2] {
    let wire = Wire::new();
    let server = Server::start(&format!("{server} {}", wire.device(0, "")));
    let client = mlx5(&format!("{client} {} --connect {}", wire.device(1, ""), server.at));
    [server.end(), client]
}

/// Both ends run the same and are content.
#[track_caller]
fn clean(args: &str) -> [String; 2] {
    both(args, args).map(|Ended { code, stdout, stderr }| {
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "mlx5 {args}: {stdout}");
        assert!(stdout.ends_with("model: 0 violations\n"), "mlx5 {args}: {stdout}");
        stdout
    })
}

/// The rows of the table: lines of numbers.
fn rows(text: &str) -> Vec<&str> {
    let number = |word: &str| word.parse::<f64>().is_ok();
    text.lines()
        .filter(|line| line.split_whitespace().count() > 3 && line.split_whitespace().all(number))
        .collect()
}

#[test]
fn every_operation_between_two_processes() {
    for op in ["send", "write", "write-imm", "read", "cas", "faa"] {
        for kind in ["lat", "bw"] {
            let [server, client] = clean(&format!("{kind} --op {op} --iters 200"));
            assert_eq!(rows(&server), rows(&client), "the server tells the client's result");
            assert_eq!(rows(&client).len(), 1, "{client}");
        }
    }
}

#[test]
fn in_batches_on_many_queue_pairs() {
    for op in ["send", "write", "write-imm", "read", "cas", "faa"] {
        clean(&format!("lat --op {op} --iters 101 --qps 3 --batch 4 --signal-every 4 --depth 8"));
        clean(&format!("bw --op {op} --iters 501 --qps 3 --batch 7 --signal-every 10 --depth 20"));
    }
    // As many queue pairs as exchanges, or more.
    clean("lat --op write --iters 2 --qps 3");
    clean("bw --op send --iters 2 --qps 3");
}

#[test]
fn queues_that_a_batch_fills_and_messages_that_repeat_their_last_byte() {
    for op in ["send", "write", "write-imm", "read", "faa"] {
        clean(&format!("lat --op {op} --iters 20 --batch 255 --depth 255"));
        clean(&format!("bw --op {op} --iters 2000 --batch 4 --depth 4"));
    }
}

#[test]
fn inline_asleep_and_in_sweeps() {
    let [_, client] = clean("lat --op write-imm --inline --size 0,1,60,972 --iters 20 --seed 9");
    assert_eq!(rows(&client).len(), 4, "{client}");
    for op in ["send", "write-imm", "read"] {
        clean(&format!("lat --op {op} --events --iters 100"));
        clean(&format!("bw --op {op} --events --iters 300"));
    }
    clean("bw --op send --size 0,1,4095,4097,1m --iters 20");
    clean("lat --op read --size 1..64k --iters 5");
}

/// What is local to an end may differ.
#[test]
fn ends_differ_in_what_is_their_own() {
    let both =
        both("lat --op send --iters 100 --events", "lat --op send --iters 100 --inline --signal-every 3");
    assert!(both.iter().all(|ended| ended.code == Some(0)), "{both:?}");
}

#[test]
fn pingpong_over_ip_addresses_with_a_given_mtu() {
    for ips in [["192.0.2.1", "192.0.2.2"], ["2001:db8::1", "2001:db8::2"]] {
        let args = |at: usize| format!("pingpong --iters 100 --size 5000 --mtu 1024 --ip {}", ips[at]);
        let [server, client] = both(&args(0), &args(1));
        for (ended, peer) in [(&server, ips[1]), (&client, ips[0])] {
            assert_eq!(ended.code, Some(0), "{ended:?}");
            assert!(
                ended.stdout.contains("path MTU 1024") && ended.stdout.contains(peer),
                "{}",
                ended.stdout
            );
        }
        assert!(client.stdout.contains(" |####"), "the histogram: {}", client.stdout);
    }
}

#[test]
fn json_at_the_client() {
    let [server, client] = both("bw --op read --iters 50", "bw --op read --iters 50 --json");
    assert_eq!((server.code, client.code), (Some(0), Some(0)), "{client:?}");
    let json: serde_json::Value = serde_json::from_str(&client.stdout).expect("JSON");
    assert_eq!((&json["op"], &json["rows"][0]["messages"]), (&"read".into(), &50.into()));
}

#[test]
fn what_the_ends_were_asked_to_do_otherwise_is_named_at_both() {
    for (server, client, told) in [
        ("lat --op send", "lat --op read", ["--op is \"send\" here and \"read\"", "--op is \"read\" here"]),
        ("bw --size 64", "bw --size 64,65", ["--size is [64] here", "--size is [64,65] here"]),
        ("lat --iters 5", "lat --iters 6", ["--iters is [5] here and [6]", "--iters is [6] here"]),
        ("lat --seed 5", "lat --seed 6", ["--seed is 5 here", "--seed is 6 here"]),
        ("lat", "bw --size 64 --iters 10000", ["the command is \"lat\"", "the command is \"bw\""]),
    ] {
        let ended = both(server, client);
        for (ended, told) in ended.iter().zip(told) {
            assert_eq!(ended.code, Some(2), "{ended:?}");
            assert!(
                ended.stderr.contains(told) && ended.stderr.contains("give both ends the same"),
                "{ended:?}"
            );
        }
    }
}

/// A client that is killed in mid-run.
#[test]
fn the_death_of_the_peer_is_told_at_once() {
    for op in ["send", "write", "read"] {
        let wire = Wire::new();
        let args = format!("lat --op {op} --iters 100000000 --timeout 5");
        let server = Server::start(&format!("{args} {}", wire.device(0, "")));
        let packets = wire.0.join("packets");
        let client =
            format!("{args} {} --connect {} --pcap {}", wire.device(1, ""), server.at, packets.display());
        let mut client = command(&client).spawn().unwrap();
        // Until traffic is under way.
        while fs::metadata(&packets).map_or(0, |file| file.len()) < 100_000 {
            assert_eq!(client.try_wait().unwrap(), None, "the client runs");
            thread::sleep(Duration::from_millis(5));
        }
        client.kill().unwrap();
        client.wait().unwrap();
        let start = Instant::now();
        let ended = server.end();
        assert_eq!(ended.code, Some(1), "{ended:?}");
        // Whichever is seen first: the socket, or the transport that gives up.
        let told = ended.stderr.contains("has closed the connection before the run was over")
            || ended.stderr.contains("TRANSPORT_RETRY_EXC_ERR");
        assert!(told, "{op}: {ended:?}");
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }
}

#[test]
fn a_wire_to_nowhere_ends_both() {
    let [a, b] = [Wire::new(), Wire::new()];
    let args = "lat --op send --iters 100 --timeout 1";
    let server = Server::start(&format!("{args} {}", a.device(0, "")));
    let client = mlx5(&format!("{args} {} --connect {}", b.device(1, ""), server.at));
    for ended in [server.end(), client] {
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let told = [
            "did not happen within 1",
            "TRANSPORT_RETRY_EXC_ERR",
            "the peer gave up",
            "closed the connection",
        ];
        assert!(told.iter().any(|told| ended.stderr.contains(told)), "{ended:?}");
    }
}

#[test]
fn strangers_are_told_apart() {
    // One that speaks another protocol.
    let wire = Wire::new();
    let server = Server::start(&format!("lat --iters 5 {}", wire.device(0, "")));
    let mut stranger = TcpStream::connect(&server.at).unwrap();
    stranger.write_all(b"GET / HTTP/1.0\n").unwrap();
    let ended = server.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("GET / HTTP/1.0") && ended.stderr.contains("--exchange"), "{ended:?}");
    // One that says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap();
    let ended = mlx5(&format!("lat --iters 5 --timeout 1 {} --connect {at}", wire.device(1, "")));
    assert!(ended.stderr.contains("no greeting within 1s (--timeout)"), "{ended:?}");
}

#[test]
fn nobody_comes() {
    let wire = Wire::new();
    for (args, told) in
        [("--listen 127.0.0.1:0", "nobody connected"), ("--connect 127.0.0.1:1", "nobody listens")]
    {
        let ended = mlx5(&format!("lat --wait 1 {args} {}", wire.device(0, "")));
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains(told) && ended.stderr.contains("--wait"), "{ended:?}");
    }
}

#[test]
fn the_exchange_of_ibv_rc_pingpong() {
    for (size, iters) in [(0, 3), (4096, 1), (10_000, 100)] {
        let [server, client] =
            clean(&format!("pingpong --exchange ibv_rc_pingpong --size {size} --iters {iters}"));
        assert_eq!((rows(&server).len(), rows(&client).len()), (usize::from(iters > 1), 1), "{server}");
        assert!(client.contains("path MTU 1024"), "its default: {client}");
    }
    clean("pingpong --exchange ibv_rc_pingpong --size 100 --iters 50 --events --inline");
    // Sizes are not told: a message of another length is.
    let [server, _] = both(
        "pingpong --exchange ibv_rc_pingpong --size 64 --iters 5 --timeout 1",
        "pingpong --exchange ibv_rc_pingpong --size 32 --iters 5 --timeout 1",
    );
    assert_eq!(server.code, Some(1), "{server:?}");
    assert!(server.stderr.contains("32 bytes") && server.stderr.contains("64 bytes"), "{server:?}");
}

/// Messages of UC are complete before they are on the wire, and who answers cannot count WRITEs: it stays until all have come.
#[test]
fn writes_over_uc_meet_somebody_to_the_last() {
    for _ in 0..20 {
        clean("bw --transport uc --op write --iters 500 --size 1000");
    }
}

#[test]
fn unreliable_transports_between_two_processes() {
    for args in [
        "pingpong --transport uc --iters 200",
        "pingpong --transport ud --iters 200",
        "lat --transport ud --iters 100 --size 1..1024 --events",
        "lat --transport uc --op write --iters 100 --size 10000",
        "bw --transport uc --op write --iters 500 --size 1000",
        "pingpong --exchange ibv_uc_pingpong --size 10000 --iters 100",
        "pingpong --exchange ibv_ud_pingpong --size 1000 --iters 100",
    ] {
        clean(args);
    }
    let [server, client] = both("lat --transport uc --iters 5", "lat --transport ud --iters 5");
    for ended in [server, client] {
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(
            ended.stderr.contains("--transport is \"u") && ended.stderr.contains("give both ends"),
            "{ended:?}"
        );
    }
}

#[test]
fn the_exchange_of_perftest() {
    for op in ["send", "write", "read", "cas", "faa"] {
        let [server, client] = clean(&format!("lat --exchange perftest --op {op} --iters 300"));
        let measures = usize::from(matches!(op, "send" | "write"));
        assert_eq!((rows(&server).len(), rows(&client).len()), (measures, 1), "{server}{client}");
        let [_, client] = clean(&format!("bw --exchange perftest --op {op} --iters 1000"));
        assert_eq!(rows(&client).len(), 1, "{client}");
    }
    clean("lat --exchange perftest --op write --size 100000 --iters 20 --mtu 2048");
    clean("bw --exchange perftest --op send --size 1 --iters 2000 --batch 16 --signal-every 16 --events");
}

/// A run that is longer than the server was told is as good as one that never ends.
#[test]
fn a_peer_whose_run_does_not_end_is_not_waited_for_for_ever() {
    for (kind, op) in [("bw", "write"), ("bw", "read"), ("bw", "faa"), ("lat", "read")] {
        let wire = Wire::new();
        let args = format!("{kind} --exchange perftest --op {op}");
        let server = Server::start(&format!("{args} --iters 5 --timeout 1 {}", wire.device(0, "")));
        let client = format!("{args} --iters 100000000 {} --connect {}", wire.device(1, ""), server.at);
        let mut client = command(&client).spawn().unwrap();
        let ended = server.end();
        client.kill().unwrap();
        client.wait().unwrap();
        let told = "the end of the peer's run was not told within 1.1";
        assert!(ended.code == Some(1) && ended.stderr.contains(told), "{kind} {op}: {ended:?}");
    }
}

#[test]
fn a_peer_without_link_local_gid_needs_its_mac() {
    let args = "lat --exchange perftest --op send --iters 10 --ip";
    let ended = both(&format!("{args} 192.0.2.1"), &format!("{args} 192.0.2.2"));
    assert!(ended.iter().any(|ended| ended.stderr.contains("--peer-mac: GID ::ffff:192.0.2.")), "{ended:?}");
    let [a, b] = ["02:00:00:00:00:10", "02:00:00:00:00:20"];
    let wire = Wire::new();
    let server =
        Server::start(&format!("{args} 192.0.2.1 --peer-mac {b} {}", wire.device(0, &format!(",mac={a}"))));
    let device = wire.device(1, &format!(",mac={b}"));
    let client = mlx5(&format!("{args} 192.0.2.2 --peer-mac {a} {device} --connect {}", server.at));
    for ended in [server.end(), client] {
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    }
}
