//! `mlx5 model serve`, and a client on its socket.

use crate::{command, wait};
use std::{
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::Child,
};
use vfio_user::Client;

fn socket(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("mlx5-cli-{name}-{}", std::process::id()))
}

/// Starts a server: it, and its output after the first line, which says that it listens.
fn start(args: &str) -> (Child, BufReader<impl Read + use<>>) {
    let mut server = command(args).spawn().expect("mlx5");
    let mut stdout = BufReader::new(server.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("UTF-8");
    assert!(line.contains("on vfio-user socket"), "{line}");
    (server, stdout)
}

fn device_id(client: &mut Client) -> u16 {
    let mut bytes = [0; 2];
    // Region 7 is config space.
    client.region_read(7, 2, &mut bytes).expect("config space");
    u16::from_le_bytes(bytes)
}

#[test]
fn one_client() {
    let path = socket("once");
    let args = format!(
        "model serve --once --device model:part=cx6dx,ports=2 --function 1 --socket {}",
        path.display()
    );
    let (server, mut stdout) = start(&args);
    let mut client = Client::new(&path).expect("connect");
    assert_eq!(device_id(&mut client), 0x101d);
    drop(client);
    let ended = wait(server, &args);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("UTF-8");
    assert_eq!(rest, "the client closed the connection\nmodel: 0 violations\n");
    assert!(!path.exists(), "the socket is left behind");
}

#[test]
fn clients_in_turn_and_a_server_that_was_killed() {
    let path = socket("killed");
    let args = format!("model serve --socket {}", path.display());
    for _ in 0..2 {
        let (mut server, _stdout) = start(&args);
        for _ in 0..3 {
            assert_eq!(device_id(&mut Client::new(&path).expect("connect")), 0x1017);
        }
        server.kill().expect("kill");
        server.wait().expect("wait");
        assert!(path.exists(), "a killed server cannot remove its socket");
    }
    std::fs::remove_file(&path).expect("remove");
}
