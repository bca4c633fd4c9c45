//! The built `mlx5` binary, as a user runs it.

mod bad_input;
mod decode;
mod diff;
mod encode;
mod faults;
mod flows;
mod notes;
mod output;
mod recording;
mod serve;
mod strict;
mod tour;
mod traffic;
mod two_hosts;

use std::{
    io::Read,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Nothing in these tests takes longer, on a busy machine too.
const DEADLINE: Duration = Duration::from_secs(120);

/// How a command ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// The command, with arguments split at spaces.
fn command(args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlx5"));
    command.args(args.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for its end, and kills it at the deadline.
fn wait(mut child: Child, args: &str) -> Ended {
    fn reader(from: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
        thread::spawn(move || {
            let mut text = String::new();
            if let Some(mut from) = from {
                from.read_to_string(&mut text).expect("UTF-8");
            }
            text
        })
    }
    let (stdout, stderr) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait") {
            break status;
        }
        if start.elapsed() > DEADLINE {
            child.kill().expect("kill");
            panic!("mlx5 {args} did not end within {DEADLINE:?}");
        }
        thread::sleep(Duration::from_millis(5));
    };
    let stderr = stderr.join().expect("stderr");
    assert!(!stderr.contains("panicked"), "mlx5 {args}: {stderr}");
    Ended { code: status.code(), stdout: stdout.join().expect("stdout"), stderr }
}

/// Runs it to its end.
fn mlx5(args: &str) -> Ended {
    wait(command(args).spawn().expect("spawn"), args)
}

/// Runs it, and it must succeed and say nothing on standard error.
fn ok(args: &str) -> String {
    let Ended { code, stdout, stderr } = mlx5(args);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "mlx5 {args}: {stdout}");
    stdout
}
