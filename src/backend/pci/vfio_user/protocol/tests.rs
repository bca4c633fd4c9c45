//! Servers that answer late, wrong, or with questions of their own.

use super::*;
use std::{os::unix::net::UnixListener, path::PathBuf, thread};

/// A header as a server writes it.
fn header(message_id: u16, command: Command, body_bytes: usize, flags: u32, error: u32) -> Vec<u8> {
    let message_size = (HEADER_BYTES + body_bytes) as u32;
    Header { message_id, command: command as u16, message_size, flags, error }.as_bytes().to_vec()
}

fn version_reply(major: u16) -> Vec<u8> {
    [header(0, Command::Version, 4, REPLY, 0), Version { major, minor: 1 }.as_bytes().to_vec()].concat()
}

/// A server of one client: takes a message and sends the next of `answers` for each, then stays silent until
/// the client is gone. Gives what the client sent.
fn server(name: &str, answers: Vec<Vec<u8>>) -> (PathBuf, thread::JoinHandle<Vec<Vec<u8>>>) {
    let path = std::env::temp_dir().join(format!("mlx5-protocol-{name}-{}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let thread = thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut answers = answers.into_iter();
        let mut sent = Vec::new();
        let mut head = Header::new_zeroed();
        while client.read_exact(head.as_mut_bytes()).is_ok() {
            let mut body = vec![0; head.message_size as usize - HEADER_BYTES];
            client.read_exact(&mut body).unwrap();
            sent.push([head.as_bytes(), &body].concat());
            if let Some(answer) = answers.next() {
                client.write_all(&answer).unwrap();
            }
        }
        sent
    });
    (path, thread)
}

/// The error of a call after a good start, and of the call after it.
fn fails(name: &str, answers: Vec<Vec<u8>>) -> [io::Error; 2] {
    let answers = [vec![version_reply(0)], answers].concat();
    let (path, thread) = server(name, answers);
    let mut connection = Connection::open(&path, Duration::from_millis(200)).unwrap();
    let errors = [(); 2].map(|()| connection.call(Command::DeviceReset, &[], None).unwrap_err());
    drop(connection);
    thread.join().unwrap();
    std::fs::remove_file(path).unwrap();
    errors
}

#[test]
fn another_version_is_refused() {
    let (path, thread) = server("version", vec![version_reply(1)]);
    let refused = Connection::open(&path, Duration::from_secs(5)).unwrap_err().to_string();
    assert!(refused.contains("version 1.1, not 0.1"), "{refused}");
    let sent = thread.join().unwrap();
    // Version 0.1, and JSON with a zero at its end.
    assert_eq!(sent[0][..20], [0, 0, 1, 0, 82, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(sent[0].last(), Some(&0));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_silent_server_is_given_up() {
    let [first, second] = fails("silent", vec![]);
    assert_eq!(first.kind(), io::ErrorKind::TimedOut);
    assert!(first.to_string().contains("within 200ms"), "{first}");
    assert_eq!(second.kind(), io::ErrorKind::NotConnected);
}

#[test]
fn an_answer_in_pieces_is_waited_for() {
    let reply = header(1, Command::DeviceReset, 0, REPLY, 0);
    let [_, timed_out] = {
        // The first half only: the deadline holds inside a message too.
        let [first, second] = fails("half", vec![reply[..7].to_vec()]);
        [second, first]
    };
    assert_eq!(timed_out.kind(), io::ErrorKind::TimedOut);
}

#[test]
fn answers_to_other_messages_break_the_connection() {
    for (name, answer, reason) in [
        ("number", header(7, Command::DeviceReset, 0, REPLY, 0), "an answer to message 7"),
        ("command", header(1, Command::DmaMap, 0, REPLY, 0), "of command 2"),
        ("long", header(1, Command::DeviceReset, 1 << 20, REPLY, 0), "a message of 1048592 bytes"),
    ] {
        let [first, second] = fails(name, vec![answer]);
        assert!(first.to_string().contains(reason), "{name}: {first}");
        assert_eq!(second.kind(), io::ErrorKind::NotConnected, "{name}");
    }
}

#[test]
fn refusals_leave_the_connection_whole() {
    let refused = |id, error| header(id, Command::DeviceReset, 0, REPLY | ERROR, error);
    let answers = vec![refused(1, libc::ENOSPC as u32), refused(2, 0)];
    let [with_reason, without] = fails("refused", answers);
    assert!(with_reason.to_string().contains("refused DeviceReset: No space left"), "{with_reason}");
    assert!(without.to_string().contains("gives no reason"), "{without}");
}

#[test]
fn questions_of_the_server_are_answered_with_no() {
    let question = header(9, Command::RegionRead, 0, 0, 0);
    let answer = [question, header(1, Command::DeviceReset, 0, REPLY, 0)].concat();
    let (path, thread) = server("question", vec![version_reply(0), answer]);
    let mut connection = Connection::open(&path, Duration::from_secs(5)).unwrap();
    connection.call(Command::DeviceReset, &[], None).unwrap();
    drop(connection);
    let sent = thread.join().unwrap();
    assert_eq!(sent[2], header(9, Command::RegionRead, 0, REPLY | ERROR, libc::EOPNOTSUPP as u32));
    std::fs::remove_file(path).unwrap();
}
