//! The floor of each operation.

use crate::{
    floor::{self, Floor},
    measure::Contender,
};
use std::{cell::RefCell, hint::black_box, rc::Rc};

macro_rules! floor {
    ($floor:expr, $function:path, |$p:ident, $calls:pat_param| $prepare:expr, |$f:ident| $call:expr) => {{
        let (a, b) = (Rc::clone($floor), Rc::clone($floor));
        Contender {
            who: "floor",
            entry: $function as *const () as usize,
            prepare: Box::new(move |$calls| {
                let $p = &mut *a.borrow_mut();
                $prepare
            }),
            run: Box::new(move |calls| {
                let $f = &mut *b.borrow_mut();
                for _ in 0..calls {
                    $call
                }
            }),
        }
    }};
}

/// The floor of the operation of this name, if it has one.
pub fn of(name: &str, floor: &Rc<RefCell<Floor>>) -> Option<Contender> {
    Some(match name {
        "post 8 B inline write" => {
            floor!(floor, floor::write_inline_8, |_f, _| (), |f| floor::write_inline_8(f, black_box(&[7; 8])))
        }
        "post 64 B inline send" => {
            floor!(floor, floor::send_inline_64, |_f, _| (), |f| floor::send_inline_64(
                f,
                black_box(&[7; 64])
            ))
        }
        "post SEND" => floor!(floor, floor::send_sge, |_f, _| (), |f| floor::send_sge(f)),
        "post READ" => floor!(floor, floor::read, |_f, _| (), |f| floor::read(f)),
        "post FAA" => floor!(floor, floor::fetch_add, |_f, _| (), |f| floor::fetch_add(f)),
        "post 8 B inline write x16" => floor!(floor, floor::write_batch::<16>, |_f, _| (), |f| {
            floor::write_batch::<16>(f, black_box(&[[7; 8]; 64]))
        }),
        "post 8 B inline write x64" => floor!(floor, floor::write_batch::<64>, |_f, _| (), |f| {
            floor::write_batch::<64>(f, black_box(&[[7; 8]; 64]))
        }),
        "post SEND x16" => floor!(floor, floor::send_batch::<16>, |_f, _| (), |f| floor::send_batch::<16>(f)),
        "post SEND x64" => floor!(floor, floor::send_batch::<64>, |_f, _| (), |f| floor::send_batch::<64>(f)),
        "post_recv" => floor!(floor, floor::recv, |_f, _| (), |f| floor::recv(f)),
        "post_recv x16" => floor!(floor, floor::recv_batch_16, |_f, _| (), |f| floor::recv_batch_16(f)),
        "poll 1" | "poll 1 receive" | "poll 1 in a list" => {
            floor!(floor, floor::poll, |f, n| f.complete(n), |f| _ = black_box(floor::poll(f, black_box(1))))
        }
        "poll empty" => {
            floor!(floor, floor::poll, |f, _| f.complete_none(), |f| _ =
                black_box(floor::poll(f, black_box(1))))
        }
        "poll 16" | "poll 16 receives" => {
            floor!(floor, floor::poll, |f, n| f.complete(16 * n), |f| {
                _ = black_box(floor::poll(f, black_box(16)))
            })
        }
        "poll 16, demoted" => floor!(
            floor,
            floor::poll,
            |f, n| {
                f.complete(16 * n);
                crate::cases::demote(f.newest(16 * n));
            },
            |f| _ = black_box(floor::poll(f, black_box(16)))
        ),
        _ => return None,
    })
}
