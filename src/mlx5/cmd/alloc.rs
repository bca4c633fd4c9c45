//! Numbers that the device hands out: protection and transport domains, UARs, XRC domains.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::{
    ids::{Pdn, UarIndex},
    layout::layout,
};

layout! {
    /// Makes a protection domain.
    pub struct AllocPdIn, 16, "alloc_pd_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of ALLOC_PD.
    pub struct AllocPdOut, 16, "alloc_pd_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] pd: Pdn,
    }

    /// Ends a protection domain.
    pub struct DeallocPdIn, 16, "dealloc_pd_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] pd: Pdn,
    }

    /// Output of DEALLOC_PD.
    pub struct DeallocPdOut, 16, "dealloc_pd_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Makes a UAR page usable.
    pub struct AllocUarIn, 16, "alloc_uar_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of ALLOC_UAR.
    pub struct AllocUarOut, 16, "alloc_uar_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] uar: UarIndex,
    }

    /// Gives a UAR page back.
    pub struct DeallocUarIn, 16, "dealloc_uar_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] uar: UarIndex,
    }

    /// Output of DEALLOC_UAR.
    pub struct DeallocUarOut, 16, "dealloc_uar_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Makes a transport domain (raw Ethernet objects).
    pub struct AllocTransportDomainIn, 16, "alloc_transport_domain_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of ALLOC_TRANSPORT_DOMAIN.
    pub struct AllocTransportDomainOut, 16, "alloc_transport_domain_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] transport_domain: u32,
    }

    /// Ends a transport domain.
    pub struct DeallocTransportDomainIn, 16, "dealloc_transport_domain_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] transport_domain: u32,
    }

    /// Output of DEALLOC_TRANSPORT_DOMAIN.
    pub struct DeallocTransportDomainOut, 16, "dealloc_transport_domain_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Makes an XRC domain.
    pub struct AllocXrcdIn, 16, "alloc_xrcd_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of ALLOC_XRCD.
    pub struct AllocXrcdOut, 16, "alloc_xrcd_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] xrcd: u32,
    }

    /// Ends an XRC domain.
    pub struct DeallocXrcdIn, 16, "dealloc_xrcd_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] xrcd: u32,
    }

    /// Output of DEALLOC_XRCD.
    pub struct DeallocXrcdOut, 16, "dealloc_xrcd_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

command! { ALLOC_PD, AllocPdIn => AllocPdOut }
command! { DEALLOC_PD, DeallocPdIn => DeallocPdOut }
command! { ALLOC_UAR, AllocUarIn => AllocUarOut }
command! { DEALLOC_UAR, DeallocUarIn => DeallocUarOut }
command! { ALLOC_TRANSPORT_DOMAIN, AllocTransportDomainIn => AllocTransportDomainOut }
command! { DEALLOC_TRANSPORT_DOMAIN, DeallocTransportDomainIn => DeallocTransportDomainOut }
command! { ALLOC_XRCD, AllocXrcdIn => AllocXrcdOut }
command! { DEALLOC_XRCD, DeallocXrcdIn => DeallocXrcdOut }
