//! `tour`: how a request goes from host A to host B and back, told with the bytes of a run.

mod atomic;
mod dump;
mod error;
mod flow;
mod page;
mod read;
mod scene;
mod send;
mod write;

use crate::failure::Failure;
use clap::{Args, ValueEnum, value_parser};
use mlx5_direct::queue::Flags;
use page::Page;
use scene::MEMORY_BYTES;
use std::io::Write;

/// Arguments of `tour`.
#[derive(Debug, Args)]
#[command(
    after_help = "Hosts A and B are the two ports of a software ConnectX. All bytes are of a run, and the same each time."
)]
pub(crate) struct TourArgs {
    /// What to follow
    #[arg(value_enum)]
    what: What,
    /// Bytes of each message [default: 64; an atomic has 8]
    #[arg(long, default_value_t = 64, hide_default_value = true, value_name = "BYTES",
          value_parser = value_parser!(u32).range(1..=16 << 10))]
    size: u32,
    /// Carry the message in the WQE itself (SEND and WRITE)
    #[arg(long)]
    inline: bool,
    /// Requests that are posted together, with one doorbell
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = value_parser!(u32).range(1..=4))]
    posts: u32,
    /// Ask for a completion of each request: the default
    #[arg(long, conflicts_with = "unsignaled")]
    signaled: bool,
    /// Ask for a completion of the last of several requests only; of a single one for none
    #[arg(long)]
    unsignaled: bool,
    /// 32 bits beside the message, which the receiver's CQE has (SEND and WRITE)
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    imm: Option<u32>,
    /// Bytes of payload that a packet carries at most: 256, 512, 1024, 2048 or 4096
    #[arg(long, default_value_t = 1024, value_name = "BYTES")]
    mtu: u16,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The tours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// RDMA READ: A fetches bytes out of B's memory
    Read,
    /// RDMA WRITE: A puts bytes into B's memory
    Write,
    /// SEND: A sends a message, and B has said where messages go
    Send,
    /// Fetch-and-add: A adds to a number in B's memory
    Atomic,
    /// A WRITE with a wrong key: how it fails, and what becomes of the request behind it
    Error,
}

/// A number, decimal or in hexadecimal with 0x.
fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("`{text}` is no number of 32 bits: write 7 or 0x1234abcd"))
}

impl TourArgs {
    /// What is asked that the operation does not have.
    fn check(&self) -> Result<(), Failure> {
        let usage = |text: &str| Err(Failure::Usage(text.into()));
        let is_plain = matches!(self.what, What::Send | What::Write);
        if self.inline && !is_plain {
            return usage("--inline: a WQE can carry what is sent; what comes back needs memory to go to");
        }
        if self.imm.is_some() && !is_plain {
            return usage("--imm: only SEND and WRITE carry 32 bits beside the message");
        }
        if matches!(self.what, What::Atomic | What::Error)
            && (self.size != 64 || self.posts != 1 || self.unsignaled)
        {
            return usage("--size, --posts and --unsignaled are for read, write and send");
        }
        if self.posts as usize * self.size as usize > MEMORY_BYTES {
            return usage("--size times --posts is more than the 64 KiB that each host has registered");
        }
        Ok(())
    }

    /// How request `n` is posted.
    fn flags(&self, n: u32) -> Flags {
        let is_signaled = !self.unsignaled || (self.posts > 1 && n + 1 == self.posts);
        if is_signaled { Flags::SIGNALED } else { Flags::NONE }
    }
}

/// Carries out `tour`.
pub(crate) fn tour(args: &TourArgs, out: &mut impl Write) -> Result<(), Failure> {
    args.check()?;
    let page: Page = match args.what {
        What::Read => read::read(args)?,
        What::Write => write::write(args)?,
        What::Send => send::send(args)?,
        What::Atomic => atomic::atomic(args)?,
        What::Error => error::error(args)?,
    };
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &page.json()).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        page.print(out)?;
    }
    Ok(())
}
