//! What firmware and driver say to each other: bring-up in order, pages lent and given back, event queues that wrap.
//! Cases of group L that need no transport.

use crate::support::*;
use mlx5_direct::{
    Context, CqAttr, QpInit,
    backend::{
        AsyncEvent,
        prm::{OpenOptions, PrmControl},
    },
    mlx5::cmd::CmdOpcode,
};
use mlx5_model::trace::Kind;

/// Opcodes of the commands so far, repetitions of one in a row as one.
fn commands(card: &Card) -> Vec<CmdOpcode> {
    let records = card.model().trace().records();
    let inputs = records.iter().filter(|record| record.kind == Kind::CommandIn);
    let mut opcodes: Vec<_> =
        inputs.map(|record| CmdOpcode(u16::from_be_bytes([record.bytes[0], record.bytes[1]]))).collect();
    opcodes.dedup();
    opcodes
}

#[test]
fn l1_eq_owner_wrap_arm() {
    let card = card("ports=2");
    let ctx = open(&card, 0);
    // One at a time and in bursts, many times round the queue.
    let mut up = true;
    for round in 0..600 {
        let burst = [1, 1, 2, 7, 30][round % 5];
        let first = up;
        for _ in 0..burst {
            up = !up;
            card.model().set_port(0, up);
        }
        let mut expected = first;
        for i in 0..burst {
            expected = !expected;
            let event = ctx.next_async_event(DEADLINE).unwrap();
            assert_eq!(
                event,
                Some(AsyncEvent::PortChange { port: 1, up: expected }),
                "round {round}, event {i}"
            );
        }
    }
    assert_eq!(ctx.next_async_event(std::time::Duration::ZERO).unwrap(), None);
    card.assert_clean();
}

#[test]
fn l4_init_sequence_order() {
    // As Linux and rdma-core's VFIO provider bring a function up; firmware refuses another order. The two
    // SET_HCA_CAP are of the general group and of RoCE.
    use CmdOpcode as C;
    const UP: [CmdOpcode; 21] = [
        C::ENABLE_HCA,
        C::QUERY_ISSI,
        C::SET_ISSI,
        C::QUERY_PAGES,
        C::MANAGE_PAGES,
        C::ACCESS_REG,
        C::QUERY_HCA_CAP,
        C::SET_HCA_CAP,
        C::QUERY_HCA_CAP,
        C::SET_HCA_CAP,
        C::QUERY_HCA_CAP,
        C::QUERY_PAGES,
        C::MANAGE_PAGES,
        C::INIT_HCA,
        C::QUERY_HCA_CAP,
        C::SET_DRIVER_VERSION,
        C::MODIFY_NIC_VPORT_CONTEXT,
        C::QUERY_ADAPTER,
        C::QUERY_NIC_VPORT_CONTEXT,
        C::ALLOC_UAR,
        C::CREATE_EQ,
    ];
    const DOWN: [CmdOpcode; 5] =
        [C::DESTROY_EQ, C::DEALLOC_UAR, C::TEARDOWN_HCA, C::MANAGE_PAGES, C::DISABLE_HCA];
    for options in ["ports=1", "ports=1,drive=step"] {
        let card = card(options);
        card.model().trace().keep(10_000);
        let ctx = open(&card, 0);
        assert_eq!(commands(&card)[..UP.len()], UP);
        card.model().trace().keep(0);
        card.model().trace().keep(10_000);
        ctx.close().map_err(|(_, error)| error).unwrap();
        let mut down = commands(&card);
        // Pages that firmware gives back by itself may come in between, while the event queue stands.
        let torn_down = down.iter().position(|opcode| *opcode == C::TEARDOWN_HCA).unwrap_or(0);
        let mut place = 0..;
        down.retain(|opcode| place.next() > Some(torn_down) || *opcode != C::MANAGE_PAGES);
        down.dedup();
        assert_eq!(down, DOWN);
        card.assert_clean();
    }
}

#[test]
fn l5_page_requests_boot_init_runtime() {
    let card = card("ports=1");
    let function = card.model().function(0).unwrap();
    for round in 0..3 {
        let control = PrmControl::open(function.clone(), &OpenOptions::default()).unwrap();
        let at_boot = control.firmware_pages();
        assert!(at_boot > 0, "boot and init pages");
        let ctx = Context::on(control.clone());
        let pd = ctx.alloc_pd().unwrap();
        // Objects need pages: firmware asks for them while it runs, however they come and go.
        let (mut cqs, mut qps, mut mrs) = (Vec::new(), Vec::new(), Vec::new());
        let mut most = 0;
        for i in 0..1500usize {
            mrs.push(pd.alloc_mr(1 + i * 64, ALL).unwrap());
            if i % 3 == 0 {
                cqs.push(ctx.create_cq(&CqAttr { n_cqes: 4, ..CqAttr::default() }).unwrap());
                let init = QpInit { max_send_wr: 1, max_recv_wr: 1, ..QpInit::default() };
                qps.push(pd.create_qp(&init, &cqs[i % cqs.len()], &cqs[0]).unwrap());
            }
            if i % 400 == 399 {
                qps.drain(..qps.len() / 2);
                mrs.drain(..mrs.len() / 2);
            }
            most = most.max(control.firmware_pages());
        }
        assert!(most > at_boot, "round {round}: {most} pages at most, {at_boot} at boot");
        drop((qps, cqs, mrs, pd));
        ctx.close().map_err(|(_, error)| error).unwrap();
        assert_eq!((control.firmware_pages(), function.dma().n_mappings()), (0, 0), "round {round}");
    }
    card.assert_clean();
}
