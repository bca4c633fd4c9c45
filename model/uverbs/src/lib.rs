//! A pretend kernel RDMA device for one process: loaded with `LD_PRELOAD`, it answers `/dev/infiniband/uverbs0`
//! as the kernel's mlx5_ib does, so that the installed libibverbs and libmlx5, unchanged, open a device, make
//! their objects, post and poll at full speed. No root, no kernel RDMA, no card.
//!
//! UCX runs on it too. There are two kinds:
//! - With `MLX5_MODEL`, the options of a card, a software ConnectX is behind it (`backed`), and any program of verbs works:
//!   `mlx5 model run --verbs -- ib_send_lat`. With `wire=` its peer is in another process. At the end the rules that were
//!   broken are printed, and `model: N violations`. `MLX5_MODEL_TRACE` and `MLX5_MODEL_PCAP` name files that get the
//!   card's trace and its packets.
//! - Without it nothing moves (`idle`): UAR pages are ordinary memory that nobody reads, and no CQE comes unless the
//!   program writes it. Its port is InfiniBand's, or Ethernet's with `MLX5_UVERBS_PORT=eth`, or `eth-l2`, where the heads of
//!   frames must be in requests. That is what a benchmark of post and poll needs, and a comparison of bytes: rings, records and
//!   registers are where `mlx5dv_init_obj` says.
//!
//! libibverbs looks for devices in sysfs: `SYSFS_PATH` names a pretend one, which whoever loads this library
//! makes (`mlx5_devices::sysfs`). A card's GID table is what that folder says.
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
