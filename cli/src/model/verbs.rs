//! `mlx5 model run --verbs`: a program of libibverbs on the software ConnectX; with `--pair` its server and its client, on two.

mod listening;

use super::{VERBS, command, not_started};
use crate::{args::ModelRun, failure::Failure};
use mlx5_devices::sysfs::Tree;
use mlx5_model::{ModelConfig, config::LinkType};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs::File,
    io,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, ExitStatus},
};

/// Exit code of a program that a signal has ended, less the signal's number, as shells have it.
const BY_SIGNAL: i32 = 128;
/// What a client is told to connect to.
const SERVER: &str = "127.0.0.1";

/// Runs the program, with a pretend `/sys` for as long as it runs.
pub(super) fn run(args: &ModelRun, config: &ModelConfig, options: &str) -> Result<(), Failure> {
    if args.pair {
        return pair(args, config, options);
    }
    let tree = tree(config)?;
    let mut child = start(&mut in_tree(args, options, &tree)?)?;
    pass_signals_on(&[&child])?;
    verdict(child.wait()?)
}

/// Runs the program twice, with a wire between the two cards: as it is written, which is the server, and with the server's
/// address after it.
fn pair(args: &ModelRun, config: &ModelConfig, options: &str) -> Result<(), Failure> {
    let refused = |text: &str| Err(Failure::Usage(text.into()));
    if config.wire.is_some() {
        return refused("--pair makes the wire between its two cards: leave out wire=");
    }
    if config.mac.is_some() {
        return refused("--pair makes two cards, which cannot both have one MAC: leave out mac=");
    }
    if args.recording.trace.is_some() || args.recording.pcap.is_some() {
        return refused(
            "--pair makes two cards, and a file takes what one sees: start server and client by themselves",
        );
    }
    // The wire is in a folder that goes at the end.
    let folder = tree(config)?;
    let [server_options, client_options] = ends(config, options, folder.root());
    let (server_tree, client_tree) = (tree(&parse(&server_options)?)?, tree(&parse(&client_options)?)?);
    let log = folder.root().join("server");
    let output = File::create(&log)?;
    let mut server = in_tree(args, &server_options, &server_tree)?;
    server.stderr(output.try_clone()?).stdout(output);
    let mut server = start(&mut server)?;
    listening::wait(&mut server)?;
    let mut client = in_tree(args, &client_options, &client_tree)?;
    let client = client.arg(SERVER).spawn().map_err(|error| not_started(&client, &error));
    let mut client = client.inspect_err(|_| end(&server))?;
    pass_signals_on(&[&server, &client])?;
    let client = client.wait()?;
    if !client.success() {
        // It may wait for ever.
        end(&server);
    }
    let server = server.wait()?;
    println!("server:");
    io::copy(&mut File::open(log)?, &mut io::stdout())?;
    verdict(client).and(verdict(server))
}

/// The options of two cards with a wire between them, in this folder.
fn ends(config: &ModelConfig, options: &str, folder: &Path) -> [String; 2] {
    [("a", "b", 0), ("b", "a", config.ports)].map(|(own, peer, n_lids)| {
        let (own, peer) = (folder.join(own), folder.join(peer));
        let kept = options.split(',').filter(|pair| !pair.is_empty() && !pair.trim().starts_with("lid="));
        let mut options: Vec<String> = kept.map(Into::into).collect();
        options.push(format!("wire=unix:{}:{}", own.display(), peer.display()));
        if config.link == LinkType::InfiniBand {
            options.push(format!("lid={}", config.lid + u16::from(n_lids)));
        }
        options.join(",")
    })
}

fn parse(options: &str) -> Result<ModelConfig, Failure> {
    options.parse().map_err(|error| Failure::Usage(format!("{error}")))
}

fn tree(config: &ModelConfig) -> Result<Tree, Failure> {
    Tree::new(config).map_err(|error| Failure::Run(format!("a pretend /sys: {error}")))
}

fn in_tree(args: &ModelRun, options: &str, tree: &Tree) -> Result<Command, Failure> {
    let mut command = command(args, &VERBS, options)?;
    command.env("SYSFS_PATH", tree.root());
    Ok(command)
}

fn start(command: &mut Command) -> Result<Child, Failure> {
    command.spawn().map_err(|error| not_started(command, &error))
}

fn end(child: &Child) {
    // Gone already, perhaps.
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
}

/// A signal that is to end this program is to end the others: then this one ends too.
fn pass_signals_on(children: &[&Child]) -> Result<(), Failure> {
    let pids: Vec<_> = children.iter().map(|child| Pid::from_child(child)).collect();
    let handler = ctrlc::set_handler(move || {
        // A terminal's own signals come to all of them: they may be gone already.
        for pid in &pids {
            let _ = kill_process(*pid, Signal::TERM);
        }
    });
    handler.map_err(|error| Failure::Run(format!("a signal handler: {error}")))
}

/// A program's exit code is ours.
fn verdict(status: ExitStatus) -> Result<(), Failure> {
    match status.code().unwrap_or(BY_SIGNAL + status.signal().unwrap_or(0)) {
        0 => Ok(()),
        code => Err(Failure::Told(code as u8)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cards_of_a_pair_differ() {
        let of = |options: &str| ends(&options.parse().unwrap(), options, Path::new("/tmp/x"));
        assert_eq!(of("mtu=1024")[1], "mtu=1024,wire=unix:/tmp/x/b:/tmp/x/a");
        let [a, b] = of("").map(|options| options.parse::<ModelConfig>().unwrap());
        assert_ne!(a.port_mac(0), b.port_mac(0));
        let [a, b] = of("link=ib,lid=7,ports=2").map(|options| options.parse::<ModelConfig>().unwrap());
        assert_eq!((a.lid, b.lid), (7, 9));
    }
}
