//! A pretend kernel RDMA device for one process: loaded with `LD_PRELOAD`, it answers `/dev/infiniband/uverbs0`
//! as the kernel's mlx5_ib does, so that the installed libibverbs and libmlx5, unchanged, open a device, make
//! their objects, post and poll at full speed. No root, no kernel RDMA, no card.
//!
//! UCX runs on it too. Nothing moves: UAR pages are ordinary memory that nobody reads, and no CQE comes unless the
//! program writes it. That is what a benchmark of post and poll needs, and a comparison of bytes: rings, records and registers are
//! where `mlx5dv_init_obj` says.
//!
//! libibverbs looks for devices in sysfs: `SYSFS_PATH` names a pretend one, which whoever loads this library
//! makes (the package `mlx5-versus` does).
//!
//! | room | what is in it |
//! |---|---|
//! | `libc_calls` | the calls that are interposed |
//! | `real` | libc's own |
//! | `command` | commands as a program writes them, and where it wants the answer |
//! | `idle` | the answers of a device that does nothing |
//! | `backed` | those of one with a software card behind it |
//! | `eyes` | where queues are, for benchmarks |
//! | `uapi` | the structures of both, as `rdma/ib_user_verbs.h` and `rdma/mlx5-abi.h` have them |
//!
//! Only the `write` interface is spoken: without an answer to `ioctl`, libibverbs falls back to it.

mod backed;
mod command;
mod eyes;
mod idle;
mod libc_calls;
#[path = "../../standin/src/real.rs"]
mod real;
mod uapi;
