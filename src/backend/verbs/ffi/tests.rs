//! The structures here against those of the installed headers, by the C compiler.

use super::*;
use std::{fs, mem::offset_of, process::Command};

/// `sizeof`, and `offsetof` of fields: of the header's structure, and of ours.
macro_rules! layouts {
    ($($c:literal $(size $rust:ty)? { $($of:ty: $($field:ident).+ => $c_field:literal,)* })*) => {
        vec![$(
            $((format!("sizeof(struct {})", $c), size_of::<$rust>()),)?
            $((format!("offsetof(struct {}, {})", $c, $c_field), offset_of!($of, $($field).+)),)*
        )*]
    };
}

fn ours() -> Vec<(String, usize)> {
    let mut all: Vec<(String, usize)> = layouts! {
        "ibv_context" size IbvContext {
            IbvContext: device => "device", IbvContext: cmd_fd => "cmd_fd", IbvContext: async_fd => "async_fd",
            IbvContext: num_comp_vectors => "num_comp_vectors", IbvContext: abi_compat => "abi_compat",
            IbvContext: ops.alloc_mw => "ops.alloc_mw", IbvContext: ops.dealloc_mw => "ops.dealloc_mw",
        }
        "ibv_device_attr" size IbvDeviceAttr {
            IbvDeviceAttr: node_guid => "node_guid", IbvDeviceAttr: max_mr_size => "max_mr_size",
            IbvDeviceAttr: vendor_id => "vendor_id", IbvDeviceAttr: max_qp => "max_qp",
            IbvDeviceAttr: max_sge => "max_sge", IbvDeviceAttr: max_pd => "max_pd",
            IbvDeviceAttr: max_qp_rd_atom => "max_qp_rd_atom",
            IbvDeviceAttr: max_qp_init_rd_atom => "max_qp_init_rd_atom", IbvDeviceAttr: atomic_cap => "atomic_cap",
            IbvDeviceAttr: max_pkeys => "max_pkeys", IbvDeviceAttr: phys_port_cnt => "phys_port_cnt",
        }
        "ibv_device_attr_ex" {
            IbvDeviceAttrEx: comp_mask => "comp_mask",
            IbvDeviceAttrEx: completion_timestamp_mask => "completion_timestamp_mask",
            IbvDeviceAttrEx: hca_core_clock => "hca_core_clock",
        }
        "ibv_port_attr" size IbvPortAttr {
            IbvPortAttr: gid_tbl_len => "gid_tbl_len", IbvPortAttr: max_msg_sz => "max_msg_sz",
            IbvPortAttr: qkey_viol_cntr => "qkey_viol_cntr", IbvPortAttr: pkey_tbl_len => "pkey_tbl_len",
            IbvPortAttr: lid => "lid", IbvPortAttr: active_width => "active_width",
            IbvPortAttr: active_speed => "active_speed", IbvPortAttr: phys_state => "phys_state",
            IbvPortAttr: link_layer => "link_layer",
        }
        "ibv_gid_entry" size IbvGidEntry {
            IbvGidEntry: gid_type => "gid_type", IbvGidEntry: ndev_ifindex => "ndev_ifindex",
        }
        "ibv_values_ex" size IbvValuesEx { IbvValuesEx: raw_clock => "raw_clock", }
        "ibv_pd" size IbvPd { IbvPd: context => "context", }
        "ibv_td" size IbvTd { IbvTd: context => "context", }
        "ibv_td_init_attr" size IbvTdInitAttr { IbvTdInitAttr: comp_mask => "comp_mask", }
        "ibv_parent_domain_init_attr" size IbvParentDomainInitAttr {
            IbvParentDomainInitAttr: td => "td", IbvParentDomainInitAttr: comp_mask => "comp_mask",
        }
        "ibv_mr" size IbvMr {
            IbvMr: addr => "addr", IbvMr: length => "length", IbvMr: lkey => "lkey", IbvMr: rkey => "rkey",
        }
        "ibv_mw" size IbvMw { IbvMw: rkey => "rkey", IbvMw: kind => "type", }
        "ibv_comp_channel" size IbvCompChannel { IbvCompChannel: fd => "fd", }
        "ibv_cq" { IbvCq: cq_context => "cq_context", IbvCq: handle => "handle", IbvCq: cqe => "cqe", }
        "ibv_cq_ex" { IbvCq: cq_context => "cq_context", IbvCq: handle => "handle", IbvCq: cqe => "cqe", }
        "ibv_cq_init_attr_ex" size IbvCqInitAttrEx {
            IbvCqInitAttrEx: cq_context => "cq_context", IbvCqInitAttrEx: channel => "channel",
            IbvCqInitAttrEx: comp_vector => "comp_vector", IbvCqInitAttrEx: wc_flags => "wc_flags",
            IbvCqInitAttrEx: comp_mask => "comp_mask", IbvCqInitAttrEx: flags => "flags",
        }
        "ibv_async_event" size IbvAsyncEvent { IbvAsyncEvent: event_type => "event_type", }
        "ibv_qp" {
            IbvQp: qp_context => "qp_context", IbvQp: send_cq => "send_cq", IbvQp: recv_cq => "recv_cq",
            IbvQp: srq => "srq", IbvQp: qp_num => "qp_num", IbvQp: state => "state", IbvQp: qp_type => "qp_type",
        }
        "ibv_qp_init_attr" size IbvQpInitAttr {
            IbvQpInitAttr: cap => "cap", IbvQpInitAttr: cap.max_inline_data => "cap.max_inline_data",
            IbvQpInitAttr: qp_type => "qp_type", IbvQpInitAttr: sq_sig_all => "sq_sig_all",
        }
        "ibv_qp_init_attr_ex" size IbvQpInitAttrEx {
            IbvQpInitAttrEx: cap => "cap", IbvQpInitAttrEx: comp_mask => "comp_mask", IbvQpInitAttrEx: pd => "pd",
            IbvQpInitAttrEx: max_tso_header => "max_tso_header",
            IbvQpInitAttrEx: rx_hash_conf => "rx_hash_conf", IbvQpInitAttrEx: source_qpn => "source_qpn",
            IbvQpInitAttrEx: send_ops_flags => "send_ops_flags",
        }
        "ibv_ah_attr" size IbvAhAttr {
            IbvAhAttr: grh.sgid_index => "grh.sgid_index", IbvAhAttr: dlid => "dlid",
            IbvAhAttr: is_global => "is_global", IbvAhAttr: port_num => "port_num",
        }
        "ibv_qp_attr" size IbvQpAttr {
            IbvQpAttr: path_mtu => "path_mtu", IbvQpAttr: rq_psn => "rq_psn",
            IbvQpAttr: qp_access_flags => "qp_access_flags", IbvQpAttr: ah_attr => "ah_attr",
            IbvQpAttr: alt_ah_attr => "alt_ah_attr", IbvQpAttr: pkey_index => "pkey_index",
            IbvQpAttr: max_rd_atomic => "max_rd_atomic", IbvQpAttr: port_num => "port_num",
            IbvQpAttr: rnr_retry => "rnr_retry", IbvQpAttr: rate_limit => "rate_limit",
        }
        "mlx5dv_qp_init_attr" size Mlx5dvQpInitAttr {
            Mlx5dvQpInitAttr: create_flags => "create_flags", Mlx5dvQpInitAttr: dc_init_attr.dc_type => "dc_init_attr.dc_type",
            Mlx5dvQpInitAttr: dc_init_attr.dct_access_key => "dc_init_attr.dct_access_key",
            Mlx5dvQpInitAttr: send_ops_flags => "send_ops_flags",
        }
        "mlx5dv_cq_init_attr" size Mlx5dvCqInitAttr {
            Mlx5dvCqInitAttr: flags => "flags", Mlx5dvCqInitAttr: cqe_size => "cqe_size",
        }
        "mlx5dv_qp" size Mlx5dvQp {
            Mlx5dvQp: sq.buf => "sq.buf", Mlx5dvQp: sq.wqe_cnt => "sq.wqe_cnt", Mlx5dvQp: sq.stride => "sq.stride",
            Mlx5dvQp: rq.buf => "rq.buf", Mlx5dvQp: bf.reg => "bf.reg", Mlx5dvQp: bf.size => "bf.size",
            Mlx5dvQp: comp_mask => "comp_mask", Mlx5dvQp: uar_mmap_offset => "uar_mmap_offset",
            Mlx5dvQp: tir_icm_addr => "tir_icm_addr",
        }
        "mlx5dv_cq" size Mlx5dvCq {
            Mlx5dvCq: dbrec => "dbrec", Mlx5dvCq: cqe_cnt => "cqe_cnt", Mlx5dvCq: cqe_size => "cqe_size",
            Mlx5dvCq: cq_uar => "cq_uar", Mlx5dvCq: cqn => "cqn", Mlx5dvCq: comp_mask => "comp_mask",
        }
        "ibv_ah" size IbvAh { IbvAh: pd => "pd", IbvAh: handle => "handle", }
        "mlx5dv_ah" size Mlx5dvAh { Mlx5dvAh: av => "av", Mlx5dvAh: comp_mask => "comp_mask", }
        "mlx5dv_pd" size Mlx5dvPd { Mlx5dvPd: comp_mask => "comp_mask", }
        "mlx5dv_obj" { Mlx5dvObj: qp => "qp", Mlx5dvObj: cq => "cq", Mlx5dvObj: ah => "ah", Mlx5dvObj: pd => "pd", }
    };
    // Counted from the end, since the head grows.
    let from_end = |offset: usize| offset_of!(VerbsContext, context) - offset;
    for (field, offset) in [
        ("alloc_parent_domain", offset_of!(VerbsContext, ops.alloc_parent_domain)),
        ("dealloc_td", offset_of!(VerbsContext, ops.dealloc_td)),
        ("alloc_td", offset_of!(VerbsContext, ops.alloc_td)),
        ("query_rt_values", offset_of!(VerbsContext, ops.query_rt_values)),
        ("query_device_ex", offset_of!(VerbsContext, ops.query_device_ex)),
        ("sz", offset_of!(VerbsContext, sz)),
    ] {
        let c = format!("offsetof(struct verbs_context, context) - offsetof(struct verbs_context, {field})");
        all.push((c, from_end(offset)));
    }
    all
}

/// Numbers of the headers.
fn numbers() -> Vec<(String, usize)> {
    let numbers: [(&str, usize); 27] = [
        ("IBV_MW_TYPE_2", IBV_MW_TYPE_2 as usize),
        ("IBV_QP_STATE", IBV_QP_STATE as usize),
        ("IBV_QP_ACCESS_FLAGS", IBV_QP_ACCESS_FLAGS as usize),
        ("IBV_QP_PKEY_INDEX", IBV_QP_PKEY_INDEX as usize),
        ("IBV_QP_PORT", IBV_QP_PORT as usize),
        ("IBV_QP_AV", IBV_QP_AV as usize),
        ("IBV_QP_PATH_MTU", IBV_QP_PATH_MTU as usize),
        ("IBV_QP_TIMEOUT", IBV_QP_TIMEOUT as usize),
        ("IBV_QP_RETRY_CNT", IBV_QP_RETRY_CNT as usize),
        ("IBV_QP_RNR_RETRY", IBV_QP_RNR_RETRY as usize),
        ("IBV_QP_RQ_PSN", IBV_QP_RQ_PSN as usize),
        ("IBV_QP_MAX_QP_RD_ATOMIC", IBV_QP_MAX_QP_RD_ATOMIC as usize),
        ("IBV_QP_MIN_RNR_TIMER", IBV_QP_MIN_RNR_TIMER as usize),
        ("IBV_QP_SQ_PSN", IBV_QP_SQ_PSN as usize),
        ("IBV_QP_MAX_DEST_RD_ATOMIC", IBV_QP_MAX_DEST_RD_ATOMIC as usize),
        ("IBV_QP_DEST_QPN", IBV_QP_DEST_QPN as usize),
        ("IBV_QPS_SQE", IBV_QPS_SQE as usize),
        ("IBV_EVENT_GID_CHANGE", IBV_EVENT_GID_CHANGE as usize),
        ("MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE", MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE as usize),
        ("MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE", MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE as usize),
        ("IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN", IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN as usize),
        ("MLX5DV_OBJ_PD", MLX5DV_OBJ_PD as usize),
        ("IBV_QPT_RC", IBV_QPT_RC as usize),
        ("IBV_QPT_UC", IBV_QPT_UC as usize),
        ("IBV_QPT_UD", IBV_QPT_UD as usize),
        ("IBV_QP_QKEY", IBV_QP_QKEY as usize),
        ("MLX5DV_OBJ_AH", MLX5DV_OBJ_AH as usize),
    ];
    numbers.map(|(name, value)| (name.to_owned(), value)).into()
}

#[test]
fn structures_are_those_of_the_headers() {
    let all: Vec<_> = ours().into_iter().chain(numbers()).collect();
    let folder = std::env::temp_dir().join(format!("mlx5-ffi-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (source, program) = (folder.join("layouts.c"), folder.join("layouts"));
    let lines: String = all.iter().map(|(c, _)| format!("printf(\"%zu\\n\", (size_t)({c}));\n")).collect();
    let head = "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/mlx5dv.h>\n";
    fs::write(&source, format!("{head}int main(void) {{\n{lines}return 0;\n}}\n")).unwrap();
    let built = Command::new("cc").arg("-w").arg(&source).arg("-o").arg(&program).output();
    match built {
        Err(error) => return println!("skipped: no C compiler: {error}"),
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("mlx5dv.h: No such file") => {
            return println!("skipped: no headers (apt install libibverbs-dev)");
        }
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
    }
    let output = Command::new(&program).output().unwrap();
    let theirs = String::from_utf8(output.stdout).unwrap();
    assert_eq!(theirs.lines().count(), all.len());
    let wrong: Vec<_> = all
        .iter()
        .zip(theirs.lines())
        .filter(|((_, ours), theirs)| ours.to_string() != **theirs)
        .map(|((c, ours), theirs)| format!("{c} is {theirs} in C and {ours} here"))
        .collect();
    fs::remove_dir_all(&folder).unwrap();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
