//! libmlx5's way to do each operation: by `ibv_post_send` and the like, and by `ibv_wr_*` and `ibv_start_poll`.

use crate::{
    measure::Contender,
    rival::{
        ffi::*,
        ops::{self, MESSAGE, Message, Theirs},
    },
};
use std::{cell::RefCell, hint::black_box, rc::Rc};

/// A queue pair of libmlx5 and how it is called in the table.
pub struct Rival {
    /// With the functions of the old interface, and of the new one.
    pub names: [&'static str; 2],
    pub theirs: Rc<RefCell<Theirs>>,
}

/// How libmlx5 without its locks (`MLX5_SINGLE_THREADED`), and with them, is called.
pub const NO_LOCKS: [&str; 2] = ["libmlx5 ibv_post/poll, no locks", "libmlx5 ibv_wr/start_poll, no locks"];
pub const LOCKS: [&str; 2] = ["libmlx5 ibv_post/poll", "libmlx5 ibv_wr/start_poll"];

macro_rules! rival {
    ($rival:expr, $api:literal, $function:path, |$p:ident, $calls:pat_param| $prepare:expr, |$t:ident| $call:expr) => {{
        let (a, b) = (Rc::clone(&$rival.theirs), Rc::clone(&$rival.theirs));
        Contender {
            who: $rival.names[$api],
            entry: $function as *const () as usize,
            prepare: Box::new(move |$calls| {
                let $p = &mut *a.borrow_mut();
                $prepare
            }),
            run: Box::new(move |calls| {
                let $t = &mut *b.borrow_mut();
                for _ in 0..calls {
                    $call
                }
            }),
        }
    }};
}

/// A message of inline data.
fn inline(data: &[u8]) -> Message {
    let sge = IbvSge { addr: data.as_ptr().addr() as u64, length: data.len() as u32, lkey: 0 };
    Message { sge, ..MESSAGE }
}

static DATA: [u8; 128] = [7; 128];
static SGES: [IbvSge; 64] = [MESSAGE.sge; 64];

/// What this rival does for the operation of this name.
pub fn of(name: &str, rival: &Rival) -> Vec<Contender> {
    let inline_flags = IBV_SEND_INLINE;
    match name {
        "post 8 B inline write" => vec![
            rival!(rival, 0, ops::post_send, |t, _| t.prepare(1, IBV_WR_RDMA_WRITE, inline_flags, 1), |t| {
                ops::post_send(t, inline(black_box(&DATA[..8])));
            }),
            rival!(rival, 1, ops::wr_write_inline, |t, _| t.prepare(1, IBV_WR_RDMA_WRITE, 0, 1), |t| {
                ops::wr_write_inline(t, MESSAGE, black_box(&DATA[..8]));
            }),
        ],
        "post 64 B inline send" => vec![
            rival!(rival, 0, ops::post_send, |t, _| t.prepare(1, IBV_WR_SEND, inline_flags, 2), |t| {
                ops::post_send(t, inline(black_box(&DATA[..64])));
            }),
            rival!(rival, 1, ops::wr_send_inline, |t, _| t.prepare(1, IBV_WR_SEND, 0, 2), |t| {
                ops::wr_send_inline(t, MESSAGE, black_box(&DATA[..64]));
            }),
        ],
        "post 17 B message" => vec![
            rival!(rival, 0, ops::post_send, |t, _| t.prepare(1, IBV_WR_SEND, inline_flags, 1), |t| {
                ops::post_send(t, inline(black_box(&DATA[..17])));
            }),
            rival!(rival, 1, ops::wr_send_inline, |t, _| t.prepare(1, IBV_WR_SEND, 0, 1), |t| {
                ops::wr_send_inline(t, MESSAGE, black_box(&DATA[..17]));
            }),
        ],
        "post SEND" => vec![
            rival!(rival, 0, ops::post_send, |t, _| t.prepare(1, IBV_WR_SEND, 0, 1), |t| {
                ops::post_send(t, MESSAGE);
            }),
            rival!(rival, 1, ops::wr_send, |t, _| t.prepare(1, IBV_WR_SEND, 0, 1), |t| ops::wr_send(
                t, MESSAGE
            )),
        ],
        "post READ" => vec![
            rival!(rival, 0, ops::post_send, |t, _| t.prepare(1, IBV_WR_RDMA_READ, 0, 1), |t| {
                ops::post_send(t, MESSAGE);
            }),
            rival!(rival, 1, ops::wr_read, |t, _| t.prepare(1, IBV_WR_RDMA_READ, 0, 1), |t| {
                ops::wr_read(t, MESSAGE);
            }),
        ],
        "post FAA" => vec![
            rival!(
                rival,
                0,
                ops::post_fetch_add,
                |t, _| t.prepare(1, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 1),
                |t| {
                    ops::post_fetch_add(t, ATOMIC);
                }
            ),
            rival!(
                rival,
                1,
                ops::wr_fetch_add,
                |t, _| t.prepare(1, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 1),
                |t| {
                    ops::wr_fetch_add(t, ATOMIC);
                }
            ),
        ],
        "post 8 B inline write x16" => write_batch(rival, 16),
        "post 8 B inline write x64" => write_batch(rival, 64),
        "post SEND x16" => batch(rival, 16),
        "post SEND x64" => batch(rival, 64),
        "post_recv" => vec![rival!(
            rival,
            0,
            ops::post_recv,
            |t, _| {
                t.retire_recvs();
                t.prepare(1, IBV_WR_SEND, 0, 1);
            },
            |t| ops::post_recv(t, MESSAGE)
        )],
        "post_recv x16" => vec![rival!(
            rival,
            0,
            ops::post_recv_batch,
            |t, _| {
                t.retire_recvs();
                t.prepare(16, IBV_WR_SEND, 0, 1);
            },
            |t| ops::post_recv_batch(t, 1, black_box(&SGES[..16]))
        )],
        "poll 1" | "poll 1 in a list" => vec![
            rival!(rival, 0, ops::poll_cq, |t, calls| t.complete_sends(calls), |t| assert_eq!(
                t.poll_sends(1),
                1
            )),
            rival!(rival, 1, ops::start_poll, |t, calls| t.complete_sends(calls), |t| {
                assert_eq!(ops::start_poll(&t.send_cq, 1), 1);
            }),
        ],
        "poll 16" => vec![
            rival!(rival, 0, ops::poll_cq, |t, calls| t.complete_sends(16 * calls), |t| {
                assert_eq!(t.poll_sends(16), 16);
            }),
            rival!(rival, 1, ops::start_poll, |t, calls| t.complete_sends(16 * calls), |t| {
                assert_eq!(ops::start_poll(&t.send_cq, 16), 16);
            }),
        ],
        "poll 16, demoted" => vec![
            rival!(
                rival,
                0,
                ops::poll_cq,
                |t, calls| {
                    t.complete_sends(16 * calls);
                    crate::cases::demote(t.send_cq.newest(16 * calls));
                },
                |t| assert_eq!(t.poll_sends(16), 16)
            ),
            rival!(
                rival,
                1,
                ops::start_poll,
                |t, calls| {
                    t.complete_sends(16 * calls);
                    crate::cases::demote(t.send_cq.newest(16 * calls));
                },
                |t| assert_eq!(ops::start_poll(&t.send_cq, 16), 16)
            ),
        ],
        "poll 16 receives" => {
            vec![rival!(rival, 0, ops::poll_cq_recvs, |t, calls| t.complete_recvs(16 * calls), |t| {
                assert_eq!(t.poll_recvs(16), 16 * 65);
            })]
        }
        "poll 1 receive" => {
            vec![rival!(rival, 0, ops::poll_cq_recvs, |t, calls| t.complete_recvs(calls), |t| {
                assert_eq!(t.poll_recvs(1), 65);
            })]
        }
        "poll empty" => vec![
            rival!(rival, 0, ops::poll_cq, |t, _| t.prepare(1, IBV_WR_SEND, 0, 1), |t| assert_eq!(
                t.poll_sends(1),
                0
            )),
            rival!(rival, 1, ops::start_poll, |t, _| t.prepare(1, IBV_WR_SEND, 0, 1), |t| {
                assert_eq!(ops::start_poll(&t.send_cq, 1), 0);
            }),
        ],
        "post 128 B and poll, ring of 8" => {
            rival.theirs.borrow_mut().prepare(1, IBV_WR_SEND, inline_flags, 3);
            vec![
                rival!(rival, 0, ops::post_and_poll, |t, calls| t.complete_ahead(calls), |t| {
                    assert_eq!(ops::post_and_poll(t, inline(black_box(&DATA))), 1);
                }),
                rival!(rival, 1, ops::wr_and_poll, |t, calls| t.complete_ahead(calls), |t| {
                    assert_eq!(ops::wr_and_poll(t, black_box(&DATA)), 1);
                }),
            ]
        }
        _ => vec![],
    }
}

/// An atomic's 8 bytes.
const ATOMIC: Message = Message { sge: IbvSge { length: 8, ..MESSAGE.sge }, ..MESSAGE };

fn batch(rival: &Rival, n: usize) -> Vec<Contender> {
    vec![
        rival!(rival, 0, ops::post_send_batch, |t, _| t.prepare(n, IBV_WR_SEND, 0, 1), |t| {
            ops::post_send_batch(t, 1, black_box(&SGES[..n]));
        }),
        rival!(rival, 1, ops::wr_send_batch, |t, _| t.prepare(n, IBV_WR_SEND, 0, 1), |t| {
            ops::wr_send_batch(t, 1, black_box(&SGES[..n]));
        }),
    ]
}

fn write_batch(rival: &Rival, n: usize) -> Vec<Contender> {
    static DATA: [[u8; 8]; 64] = [[7; 8]; 64];
    vec![
        rival!(
            rival,
            0,
            ops::post_write_batch,
            |t, _| t.prepare(n, IBV_WR_RDMA_WRITE, IBV_SEND_INLINE, 1),
            |t| ops::post_write_batch(t, MESSAGE, black_box(&DATA[..n]))
        ),
        rival!(rival, 1, ops::wr_write_batch, |t, _| t.prepare(n, IBV_WR_RDMA_WRITE, 0, 1), |t| {
            ops::wr_write_batch(t, MESSAGE, black_box(&DATA[..n]));
        }),
    ]
}
