//! Where a declaration departs from the tables, and why. The test fails on an exception that is not needed.

const TRAILING_GROUP: &str = "the capability group follows the declared head, which is the fixed part";
const BASE_FORM: &str =
    "the tables' size is with an extended context, which is optional and follows the declared part";
const SINGLE_FIELD: &str = "the tables name the whole dword; only the 24 bits of the number are used";
const QP_AND_SQ: &str = "the tables call it qpn_sqn, for QPs and SQ objects alike";
const SAME_BITS: &str = "another name for bits that are declared";
const CQE_DATA: &str = "payload, not a field: read as bytes when the format says that it is there";
const STRIDING: &str = "of striding receive queues, which RC does not use";
const ETHERNET: &str = "of raw Ethernet and IPoIB, which RC does not use";
const NO_MESSAGE: &str = "of a message: an operation on the list of tags has none";
const WORD_NAMED: &str = "the tables name the word, and in it the part; here is both in one name";
const INPUT_WORDS: &str = "the tables have the words of an input here, where every output has its status";
const OTHER_FAULT: &str = "belongs to the other kind of page fault, which has a structure of its own";

/// Structures of another size than in the tables: (table name, reason).
pub(crate) const SIZES: &[(&str, &str)] = &[
    ("query_hca_cap_out", TRAILING_GROUP),
    ("set_hca_cap_in", TRAILING_GROUP),
    ("create_qp_in", BASE_FORM),
    ("init2init_qp_in", BASE_FORM),
    ("rts2rts_qp_in", BASE_FORM),
    ("ppcnt_reg", "the counter group follows the declared head, by the group asked for"),
    ("mpcnt_reg", "the counter group follows the declared head, by the group asked for"),
];

/// Fields that the tables do not have, or have elsewhere: (table name, field, reason).
pub(crate) const FIELDS: &[(&str, &str, &str)] = &[
    ("eqe_comp", "cqn", SINGLE_FIELD),
    ("eqe_cq_err", "cqn", SINGLE_FIELD),
    ("eqe_qp_srq", "qp_srq_n", SINGLE_FIELD),
    ("eqe_dct", "dctn", SINGLE_FIELD),
    ("wqe_wait_cq_seg", "cqn", SINGLE_FIELD),
    ("wqe_send_en_seg", "qpn", SINGLE_FIELD),
    ("bsf_crypto", "dek_pointer", SINGLE_FIELD),
    ("bsf_basic", "w_bfs", WORD_NAMED),
    ("bsf_basic", "w_psv", WORD_NAMED),
    ("bsf_basic", "m_bfs", WORD_NAMED),
    ("bsf_basic", "m_psv", WORD_NAMED),
    ("wqe_ctrl_seg", "qpn", QP_AND_SQ),
    ("wqe_ctrl_seg", "imm", "the tables call it imm_general_id, for its other uses"),
    ("rvh", "len_bytes", "the tables call it len, without the unit"),
    ("cqe64_requester", "qpn", QP_AND_SQ),
    ("query_scheduling_element_out", "status", INPUT_WORDS),
    ("query_scheduling_element_out", "syndrome", INPUT_WORDS),
    ("mtt_entry", "ptag", "the tables name the whole qword; its two lowest bits are permissions"),
    ("cqe64_eth_rx", "lro_tcppsh", WORD_NAMED),
    ("cqe64_eth_rx", "rss_hash_l4", WORD_NAMED),
    ("cqe64_eth_rx", "rss_hash_ip", WORD_NAMED),
    ("cqe64_eth_rx", "vlan_prio", WORD_NAMED),
    ("cqe64_eth_rx", "vlan_cfi", WORD_NAMED),
    ("cqe64_eth_rx", "vlan_vid", WORD_NAMED),
    ("cqe64_eth_rx", "signature", "the tables have both uses of the byte in one name"),
    ("cqe64_error", "hw_synd_type", "the tables name the byte; of it the upper four bits are the type"),
];

/// Fields of the tables that are not declared: (table name, field, reason).
pub(crate) const OMITTED: &[(&str, &str, &str)] = &[
    ("cqc", "c_eqn_or_apu_element", SAME_BITS),
    ("query_scheduling_element_out", "opcode", INPUT_WORDS),
    ("eqe_page_fault", "rdma_r_key", OTHER_FAULT),
    ("eqe_page_fault", "rdma_va", OTHER_FAULT),
    ("av_ext_seg", "dc_key", "of the DC transport, where UD has its Q_Key"),
    ("av_base_seg", "dc_key", "of the DC transport, where UD has its Q_Key"),
    ("wqe_wait_cq_seg", "cqn", SINGLE_FIELD),
    ("wqe_send_en_seg", "qpn", SINGLE_FIELD),
    ("bsf_crypto", "dek_pointer", SINGLE_FIELD),
    ("cqe64_requester", "inline_scatter32", CQE_DATA),
    ("cqe64_responder_rdma", "inline_scatter32", CQE_DATA),
    ("cqe64_responder_rdma", "ib_stride_index", STRIDING),
    ("cqe64_responder_rdma", "hds_ip_ext.l4_ok", ETHERNET),
    ("cqe64_responder_rdma", "hds_ip_ext.l3_ok", ETHERNET),
    ("cqe64_responder_rdma", "hds_ip_ext.l2_ok", ETHERNET),
    ("cqe64_responder_rdma", "l4_l3_hdr_type.l3_hdr_type", ETHERNET),
    ("cqe64_responder_rdma", "l4_l3_hdr_type.vlan", ETHERNET),
    ("cqe64_responder_rdma", "vlan_info.prio", ETHERNET),
    ("cqe64_responder_rdma", "vlan_info.vid", ETHERNET),
    ("cqe64_responder_rdma", "sop_drop_qpn.send_wqe_opcode", "of the requester's CQE only"),
    ("cqe64_tm", "tmh", NO_MESSAGE),
    ("cqe64_tm", "imm_inval_pkey", NO_MESSAGE),
    ("cqe64_tm", "app_info", NO_MESSAGE),
    ("cqe64_tm", "byte_cnt", NO_MESSAGE),
    ("cqe64_eth_rx", "shampo_flags.flush", "of another form of large receive, in the same bits"),
    ("cqe64_eth_rx", "shampo_flags.match", "of another form of large receive, in the same bits"),
    ("cqe64_error", "wqe_id", STRIDING),
    ("cqe64_error", "ib_stride_index", STRIDING),
    ("cqe64_error", "byte_cnt", "only DPDK reads it, of a striding RQ's flushed WQE"),
];

/// Values that have another name in the tables: (enumeration, our name, theirs, reason).
pub(crate) const ENUM_NAMES: &[(&str, &str, &str, &str)] = &[
    ("qp_mtu", "MTU_256", "256_BYTES", "a name cannot begin with a digit"),
    ("qp_mtu", "MTU_512", "512_BYTES", "a name cannot begin with a digit"),
    ("qp_mtu", "MTU_1024", "1K_BYTES", "a name cannot begin with a digit"),
    ("qp_mtu", "MTU_2048", "2K_BYTES", "a name cannot begin with a digit"),
    ("qp_mtu", "MTU_4096", "4K_BYTES", "a name cannot begin with a digit"),
];
