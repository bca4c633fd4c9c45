//! The rules, each with its words and where it can be read.
//!
//! Sources: PRM terms, and places in public drivers: **rc** = rdma-core `providers/mlx5`, **lx** = Linux
//! `drivers/net/ethernet/mellanox/mlx5/core`, **ib** = Linux `drivers/infiniband/hw/mlx5`.
#![forbid(unsafe_code)]

use std::fmt;

macro_rules! rules {
    ($( $name:ident: $text:literal, $source:literal; )*) => {
        /// A rule of the device interface.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Rule {
            $( #[doc = $text] $name, )*
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &[Self] = &[$( Self::$name ),*];

            /// The rule's name.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$name => stringify!($name), )* }
            }

            /// The rule in words.
            pub const fn text(self) -> &'static str {
                match self { $( Self::$name => $text, )* }
            }

            /// Where it can be read: a PRM term, or a place in a public driver.
            pub const fn source(self) -> &'static str {
                match self { $( Self::$name => $source, )* }
            }
        }
    };
}

rules! {
    RecordBeforeDoorbell: "the doorbell record holds the new counter before the doorbell is rung",
        "rc qp.c:post_send_db, cq.c:mlx5_arm_cq; lx en/txrx.h:mlx5e_notify_hw";
    DoorbellNamesLastWqe: "the doorbell is the first 8 bytes of the last WQE posted",
        "rc qp.c:post_send_db; lx include/linux/mlx5/doorbell.h:mlx5_write64";
    DoorbellAddsWork: "a doorbell publishes one WQE more at least",
        "rc qp.c:post_send_db (nreq); ib wr.c:mlx5r_finish_wqe";
    DoorbellFollowsRecord: "a send counter in a doorbell record is followed by its doorbell: a record alone starts nothing",
        "rc qp.c:post_send_db; ib wr.c:mlx5r_ring_db";
    DoorbellQueueExists: "a doorbell names a queue that exists",
        "PRM qpn_ds, cqn, eqn of doorbells";
    DoorbellRightPage: "a queue is rung through the UAR page that its context names",
        "PRM qpc.uar_page, cqc.uar_page, eqc.uar_page";
    DoorbellRegister: "a store to a UAR page hits a register with the register's width",
        "PRM uar_page; rc mlx5.h:mlx5_bf; lx lib/eq.h:eq_update_ci";
    DoorbellAllocatedPage: "only UAR pages that ALLOC_UAR returned are written",
        "PRM ALLOC_UAR; lx uar.c:alloc_uars_page";
    BlueFlameWholeLines: "BlueFlame copies whole 64-byte lines, in order, from the start of a buffer",
        "rc qp.c:mlx5_bf_copy; PRM log_bf_reg_size";
    BlueFlameMatchesRing: "the bytes copied by BlueFlame are those of the WQE in the ring",
        "rc qp.c:post_send_db";
    WqeIndexMatchesPosition: "ctrl.wqe_index is the free-running counter of the WQE's first WQEBB",
        "PRM ctrl.wqe_index; rc qp.c:_mlx5_post_send (cur_post)";
    WqeQpnMatchesQueue: "ctrl.qpn is the number of the queue that holds the WQE",
        "PRM ctrl.qpn; ib wr.c:mlx5r_finish_wqe";
    DsCoversSegments: "ctrl.ds covers exactly the segments of the operation",
        "PRM ctrl.ds; rc qp.c:_mlx5_post_send (size)";
    OpcodeKnown: "opcode and opmod are such as the queue's transport has",
        "PRM ctrl.opcode, ctrl.opmod; rc mlx5.h:mlx5_ib_opcode";
    FlagsKnown: "the fence mode is one that is defined",
        "PRM ctrl.fm; rc wqe.h MLX5_WQE_CTRL_FENCE";
    ReservedBits: "reserved bits of a WQE are zero",
        "PRM segments: reserved fields";
    InlineWhereAllowed: "an operation that brings data names memory for it: its WQE has no inline data",
        "rc qp.c:_mlx5_post_send (IBV_SEND_INLINE of WRITE and SEND)";
    MinInline: "as much of a frame's head is inline as min_wqe_inline_mode asks for",
        "PRM nic_vport_context.min_wqe_inline_mode; lx en_tx.c:mlx5e_calc_min_inline";
    LsoSegments: "LSO has an mss and an inline header that ends with TCP's or UDP's; SEND has neither",
        "PRM eth.mss; rc qp.c:set_tso_eth_seg; lx en_tx.c";
    SlotReusedEarly: "a WQEBB or receive WQE is not written again before its WQE is completed",
        "rc qp.c:mlx5_wq_overflow; ib wr.c:mlx5r_wq_overflow";
    ProducerWithinRing: "a producer counter runs at most one ring ahead of the consumer",
        "rc qp.c:mlx5_wq_overflow; ib wr.c:mlx5r_wq_overflow";
    SharedListSound: "the list of a shared receive queue stays in the queue and comes to each WQE only after it was posted again",
        "rc srq.c:mlx5_post_srq_recv, mlx5_free_srq_wqe";
    TagListSound: "an operation on a list of tags is one that is defined, and names entries of the list; those to fill are free",
        "rc qp.c:set_tm_seg, mlx5_post_srq_ops; ucx rc_mlx5.inl";
    TagCountWithin: "sw_cnt of a list of tags counts unexpected messages that came",
        "rc Documentation/tag_matching.md; rc qp.c:set_tm_seg";
    ProducerForward: "a producer counter never runs backwards",
        "PRM dbrec; rc qp.c:post_send_db";
    RecordZeroAtStart: "a queue pair leaves RST with a doorbell record of zero; a DC initiator's send record may stay",
        "ib qp.c:__mlx5_ib_modify_qp (IB_QPS_RESET: db.db[MLX5_SND_DBR] = 0); rc verbs.c:mlx5_modify_qp";
    PostInRightState: "WQEs are posted in a state that takes them",
        "IBTA 10.3.1; ib qp.c:mlx5_ib_modify_qp";
    AtomicLength: "the local buffer of an atomic is as long as its word: 8 bytes, or under masks what ctrl.opmod says",
        "IBTA 9.4.5; rc qp.c:_mlx5_post_send (atomic); ucx rc_mlx5.inl";
    ReadWithinLimit: "the WQE of an RDMA READ is at most 512 bytes long: 30 pieces of memory",
        "lx include/linux/mlx5/device.h MLX5_MAX_SGE_RD";
    UmrMask: "a UMR's mkey_mask names fields that exist, and mkc.pd only on the queue pair that registers",
        "PRM umr_ctrl.mkey_mask; ib umr.c:umr_check_mkey_mask";
    UmrListFits: "a UMR's list has klm_octowords entries, comes in fours and fits the key's translation; its BSF fits too",
        "PRM klm_octowords; ib umr.c:mlx5r_umr_get_xlt_octo";
    MessageWithinLimit: "a message is at most 2^log_msg_max bytes, and a datagram what one packet carries",
        "PRM qpc.log_msg_max, log_max_msg";
    ReadsAllowed: "READs and atomics are posted only where log_sra_max allows one",
        "PRM qpc.log_sra_max; IBTA max_rd_atomic";
    AddressVector: "the address vector of a datagram has all of its 48 bytes, or on InfiniBand without a GRH 16, and on Ethernet the peer's MAC",
        "PRM av.dqpn_dct (ext), rmac; rc verbs.c:mlx5_create_ah";
    SourceAddressSet: "a QP's src_addr_index names a RoCE address that was set",
        "PRM ads.src_addr_index, SET_ROCE_ADDRESS";
    CqOverrun: "a CQ has room for every completion",
        "PRM CQ error, cqc.oi; rc cq.c:update_cons_index";
    CqConsumerForward: "a CQ's consumer index never runs backwards or ahead of the producer",
        "rc cq.c:update_cons_index; lx wq.h:mlx5_cqwq_update_db_record";
    CqArmSequence: "an arm's cmd_sn counts the completion events of the CQ: none that was not made",
        "rc cq.c:mlx5_arm_cq, mlx5_cq_event; lx eq.c:mlx5_eq_comp_int";
    EqOverrun: "an EQ has room for every event",
        "lx eq.c (NUM_SPARE_EQE)";
    EqConsumerForward: "an EQ's consumer index never runs backwards or ahead of the producer",
        "lx lib/eq.h:eq_update_ci";
    RingInitialised: "CQ memory is filled with the hardware-owned pattern before creation, EQ memory before its first doorbell or event",
        "ib cq.c:init_cq_frag_buf; lx eq.c:init_eq_buf";
    CommandOrder: "commands come in the order of bring-up and teardown",
        "lx main.c:mlx5_function_setup; rc mlx5_vfio.c:mlx5_vfio_setup_function";
    CommandEntry: "a rung command entry is owned by hardware and well formed, and so are its mailboxes",
        "PRM command queue entry; lx cmd.c:cmd_work_handler, mlx5_copy_to_msg";
    CommandToken: "the token of an entry is that of all its mailboxes",
        "lx cmd.c:alloc_token";
    CommandLength: "input and output are as long as the command's structures and lists",
        "PRM delivery status IN_LENGTH_ERR, OUT_LENGTH_ERR; status BAD_INP_LEN_ERR";
    CommandReserved: "reserved bits of a command's input are zero",
        "PRM command inputs: reserved fields";
    ObjectExists: "a command names objects that exist",
        "PRM status BAD_RES_ERR";
    ObjectInUse: "an object is destroyed after the objects that use it",
        "PRM status BAD_RES_STATE_ERR";
    WithinCapabilities: "sizes, numbers and limits are within the capabilities",
        "PRM cmd_hca_cap, QUERY_HCA_CAP";
    PageList: "a page list is as long as its memory, of aligned addresses that are mapped",
        "PRM log_page_size, page_offset, pas; lx alloc.c:mlx5_fill_page_frag_array";
    RecordAligned: "a doorbell record is 8 mapped bytes, aligned to 8",
        "PRM dbr_addr; rc dbrec.c";
    KeyTranslation: "the translation list of a memory key covers its range, which does not wrap",
        "PRM mkc.translations_octword_size, start_addr, len; ib mr.c:reg_create";
    QpTransition: "a QP moves along the arrows of its state machine",
        "PRM status BAD_QP_STATE_ERR; ib qp.c:__mlx5_ib_modify_qp (optab)";
    QpOptParam: "opt_param_mask has bits only that the transition takes",
        "PRM opt_param_mask; ib qp.c:opt_mask";
    PageGivenOnce: "a page that firmware owns is not given again",
        "PRM MANAGE_PAGES; lx pagealloc.c:give_pages";
    LeakAtClose: "every object is destroyed before TEARDOWN_HCA",
        "lx main.c:mlx5_unload; rc mlx5_vfio.c:mlx5_vfio_clean_function";
    PagesAtClose: "firmware pages are reclaimed before DISABLE_HCA",
        "lx pagealloc.c:mlx5_reclaim_startup_pages";
    DmaMapped: "every address given to the device is mapped for DMA",
        "PCIe: completion of a request to an address that is not there";
    DmaWritable: "memory that the device writes is mapped for writing",
        "PCIe, IOMMU: write permission";
    DmaUnmapInUse: "memory is unmapped after the objects that name it are destroyed",
        "rc verbs.c:mlx5_destroy_qp; ib qp.c:destroy_qp; lx pagealloc.c:reclaim_pages";
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_rule_has_words_and_a_source() {
        let mut names: Vec<_> = Rule::ALL.iter().map(|rule| rule.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Rule::ALL.len());
        for rule in Rule::ALL {
            assert!(rule.text().len() > 10 && rule.source().len() > 5, "{rule}");
        }
    }

    #[test]
    fn the_document_has_every_rule() {
        let rows: Vec<_> = include_str!("../../../docs/rules.md")
            .lines()
            .filter(|line| line.starts_with("| `") && line.matches(" | ").count() == 2)
            .collect();
        let expected: Vec<_> = Rule::ALL
            .iter()
            .map(|rule| format!("| `{rule}` | {} | {} |", rule.text(), rule.source()))
            .collect();
        assert_eq!(rows, expected, "docs/rules.md: one row a rule, in this order");
    }
}
