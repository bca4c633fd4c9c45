//! When a server is ready: it listens on a TCP port.

use std::{
    collections::HashSet,
    fs, io,
    process::Child,
    thread,
    time::{Duration, Instant},
};

/// Longest wait; then the client says itself what it misses.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);
/// `st` of a socket that listens, in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// Waits until a process listens, or has ended, or for as long as a client may be kept waiting.
pub(super) fn wait(child: &mut Child) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline && child.try_wait()?.is_none() && !listens(child.id()) {
        thread::sleep(PAUSE);
    }
    Ok(())
}

fn listens(pid: u32) -> bool {
    let read = |table: &str| fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
    let sockets: HashSet<String> = ["tcp", "tcp6"].iter().flat_map(|table| inodes(&read(table))).collect();
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let mut links = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.any(|link| {
        let link = link.to_string_lossy();
        link.strip_prefix("socket:[")
            .and_then(|rest| rest.strip_suffix(']'))
            .is_some_and(|n| sockets.contains(n))
    })
}

/// Inodes of the sockets of a table that listen.
fn inodes(table: &str) -> Vec<String> {
    let words = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words
        .filter(|words| words.get(3) == Some(&LISTEN))
        .filter_map(|words| Some((*words.get(9)?).into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpListener, process};

    #[test]
    fn this_program_listens_while_it_does() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(listens(process::id()));
        drop(listener);
        assert_eq!(inodes("  sl  local_address rem_address   st\n"), Vec::<String>::new());
    }
}
