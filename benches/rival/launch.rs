//! Runs this program once more with the pretend device under it.

use mlx5_devices::sysfs::Tree;
use std::{
    env,
    ffi::OsStr,
    path::PathBuf,
    process::{Command, Output},
};

/// Set in the process that has the device.
const INSIDE: &str = "MLX5_UVERBS_INSIDE";

/// Whether this process is the one with the device.
pub fn is_inside() -> bool {
    env::var_os(INSIDE).is_some()
}

fn library() -> PathBuf {
    let own = env::current_exe().expect("path of this program");
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join("libmlx5_uverbs.so"));
    found.into_iter().find(|path| path.is_file()).expect("libmlx5_uverbs.so beside this program")
}

/// The folder of sysfs in which libibverbs finds the pretend device: an InfiniBand port, of a ConnectX-6.
fn tree() -> Tree {
    let config = "part=cx6,link=ib".parse().expect("options of a card");
    Tree::new(&config).expect("a temporary folder")
}

fn command(tree: &Tree, arguments: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(env::current_exe().expect("path of this program"));
    command.args(arguments).env(INSIDE, "1").env("LD_PRELOAD", library()).env("SYSFS_PATH", tree.root());
    // UCX: no hooks of memory calls, no flow control, which would need answers of a peer's.
    for name in [
        "UCX_MEM_MMAP_HOOK_MODE=none",
        "UCX_IB_FORK_INIT=n",
        "UCX_RC_MLX5_FC_ENABLE=n",
        "UCX_LOG_LEVEL=error",
    ] {
        let (name, value) = name.split_once('=').expect("a setting");
        command.env(name, value);
    }
    // The device that does nothing.
    command.env_remove("MLX5_MODEL");
    // Settings of the user's must not change what is compared.
    for name in ["MLX5_SINGLE_THREADED", "MLX5_POST_SEND_PREFER_BF", "MLX5_SHUT_UP_BF", "MLX5_CQE_SIZE"] {
        command.env_remove(name);
    }
    command
}

/// The program with its own arguments; gives its exit code.
pub fn again() -> i32 {
    let tree = tree();
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let status = command(&tree, &arguments).status().expect("this program runs");
    status.code().unwrap_or(1)
}

/// One test of a test program; gives what it said. `None` in the process that has the device: there the test
/// goes on.
pub fn test(name: &str) -> Option<Output> {
    test_with(name, &[])
}

/// The same, with settings of the device.
pub fn test_with(name: &str, settings: &[(&str, &str)]) -> Option<Output> {
    if is_inside() {
        return None;
    }
    let tree = tree();
    let mut command = command(&tree, &["--exact", name, "--nocapture", "--test-threads=1"]);
    let output = command.envs(settings.iter().copied()).output();
    let output = output.expect("this program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{:?}\n{stdout}\n{stderr}", output.status);
    assert!(stdout.contains("test result: ok. 1 passed"), "no test of this name ran: {name}\n{stdout}");
    print!(
        "{}",
        stdout
            .lines()
            .filter(|l| l.starts_with("skipped: ") || l.starts_with("- "))
            .fold(String::new(), |all, l| all + l + "\n")
    );
    Some(output)
}
