//! The structures of the fast path as the C compiler has them, where the headers are installed.

use crate::rival::ffi::*;
use std::{fs, mem::offset_of, process::Command};

macro_rules! places {
    ($($c:literal $ty:ty { $($field:ident).+ => $c_field:literal, $($rest:tt)* })*) => {{
        let mut all = vec![];
        $(places!(@ all $c $ty; $($field).+ => $c_field, $($rest)*);)*
        all
    }};
    (@ $all:ident $c:literal $ty:ty; $($($field:ident).+ => $c_field:literal,)*) => {
        $($all.push((format!("offsetof(struct {}, {})", $c, $c_field), offset_of!($ty, $($field).+)));)*
    };
}

#[test]
fn fast_path_structures_are_those_of_the_headers() {
    let mut all = places! {
        "ibv_send_wr" IbvSendWr {
            next => "next", sg_list => "sg_list", num_sge => "num_sge", opcode => "opcode",
            send_flags => "send_flags", imm_or_rkey => "imm_data", wr.remote_addr_or_ah => "wr.rdma.remote_addr",
            wr.remote_addr_or_ah => "wr.ud.ah", wr.rkey_or_compare_add => "wr.rdma.rkey",
            wr.rkey_or_compare_add => "wr.atomic.compare_add", wr.swap => "wr.atomic.swap",
            wr.atomic_rkey => "wr.atomic.rkey", remote_srqn => "qp_type.xrc.remote_srqn",
            rest => "bind_mw.mw",
        }
        "ibv_recv_wr" IbvRecvWr { next => "next", sg_list => "sg_list", num_sge => "num_sge", }
        "ibv_sge" IbvSge { addr => "addr", length => "length", lkey => "lkey", }
        "ibv_wc" IbvWc {
            status => "status", opcode => "opcode", vendor_err => "vendor_err", byte_len => "byte_len",
            imm_or_rkey => "imm_data", qp_num => "qp_num", src_qp => "src_qp", wc_flags => "wc_flags",
            pkey_index => "pkey_index", slid => "slid", sl => "sl", dlid_path_bits => "dlid_path_bits",
        }
        "ibv_qp_ex" IbvQpEx {
            comp_mask => "comp_mask", wr_id => "wr_id", wr_flags => "wr_flags",
            wr_atomic_cmp_swp => "wr_atomic_cmp_swp", wr_local_inv => "wr_local_inv", wr_bind_mw => "wr_bind_mw", wr_send => "wr_send",
            wr_send_inv => "wr_send_inv", wr_send_tso => "wr_send_tso", wr_set_ud_addr => "wr_set_ud_addr",
            wr_set_inline_data_list => "wr_set_inline_data_list", wr_set_sge_list => "wr_set_sge_list",
            wr_start => "wr_start", wr_complete => "wr_complete", wr_abort => "wr_abort",
        }
        "ibv_mw_bind_info" IbvMwBindInfo {
            mr => "mr", addr => "addr", length => "length", mw_access_flags => "mw_access_flags",
        }
        "ibv_data_buf" IbvDataBuf { addr => "addr", length => "length", }
        "ibv_cq_ex" IbvCqEx {
            comp_mask => "comp_mask", status => "status", wr_id => "wr_id", start_poll => "start_poll",
            end_poll => "end_poll", read_opcode => "read_opcode", read_imm_data => "read_imm_data",
            read_wc_flags => "read_wc_flags", read_dlid_path_bits => "read_dlid_path_bits",
        }
    };
    let mut also = |c: &str, ours: usize| all.push((c.to_owned(), ours));
    also("sizeof(struct ibv_send_wr)", size_of::<IbvSendWr>());
    also("sizeof(struct ibv_recv_wr)", size_of::<IbvRecvWr>());
    also("sizeof(struct ibv_wc)", size_of::<IbvWc>());
    also("offsetof(struct ibv_context, ops.poll_cq)", OPS_POLL_CQ);
    also("offsetof(struct ibv_context, ops.post_send)", OPS_POST_SEND);
    also("offsetof(struct ibv_context, ops.post_recv)", OPS_POST_RECV);
    also("IBV_QP_EX_WITH_LOCAL_INV", IBV_QP_EX_WITH_LOCAL_INV as usize);
    also("IBV_QP_EX_WITH_SEND_WITH_INV", 1 << 9);
    also("IBV_WR_SEND_WITH_INV", IBV_WR_SEND_WITH_INV as usize);
    also("offsetof(struct ibv_send_wr, bind_mw.rkey)", offset_of!(IbvSendWr, rest) + 8);
    also("offsetof(struct ibv_send_wr, bind_mw.bind_info)", offset_of!(IbvSendWr, rest) + 16);
    also("offsetof(struct ibv_send_wr, tso.hdr)", offset_of!(IbvSendWr, rest));
    also("offsetof(struct ibv_send_wr, tso.hdr_sz)", offset_of!(IbvSendWr, rest) + 8);
    also("offsetof(struct ibv_send_wr, tso.mss)", offset_of!(IbvSendWr, rest) + 10);
    also("IBV_WR_TSO", IBV_WR_TSO as usize);
    also("IBV_SEND_IP_CSUM", IBV_SEND_IP_CSUM as usize);
    also("IBV_QPT_RAW_PACKET", IBV_QPT_RAW_PACKET as usize);
    also("IBV_QP_INIT_ATTR_MAX_TSO_HEADER", IBV_QP_INIT_ATTR_MAX_TSO_HEADER as usize);
    also("IBV_QP_EX_WITH_TSO | IBV_QP_EX_WITH_SEND", RAW_PACKET_OPS as usize);
    also("IBV_QP_EX_WITH_BIND_MW", IBV_QP_EX_WITH_BIND_MW as usize);
    also("IBV_WR_BIND_MW", IBV_WR_BIND_MW as usize);
    also("IBV_ACCESS_ZERO_BASED", IBV_ACCESS_ZERO_BASED as usize);
    also("IBV_WR_LOCAL_INV", IBV_WR_LOCAL_INV as usize);
    also("IBV_SEND_INLINE", IBV_SEND_INLINE as usize);
    also("IBV_QPT_XRC_SEND", IBV_QPT_XRC_SEND as usize);

    let folder = std::env::temp_dir().join(format!("mlx5-fast-path-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (source, program) = (folder.join("places.c"), folder.join("places"));
    let lines: String = all.iter().map(|(c, _)| format!("printf(\"%zu\\n\", (size_t)({c}));\n")).collect();
    let head = "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n";
    fs::write(&source, format!("{head}int main(void) {{\n{lines}return 0;\n}}\n")).unwrap();
    match Command::new("cc").arg("-w").arg(&source).arg("-o").arg(&program).output() {
        Err(error) => return println!("skipped: no C compiler: {error}"),
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("verbs.h: No such file") => {
            return println!("skipped: no headers (apt install libibverbs-dev)");
        }
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
    }
    let theirs = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(theirs.lines().count(), all.len());
    for ((c, ours), theirs) in all.iter().zip(theirs.lines()) {
        assert_eq!(ours.to_string(), theirs, "{c}");
    }
}
