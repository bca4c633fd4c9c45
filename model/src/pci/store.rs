//! What an x86-64 store instruction stores, from the registers of the thread that faulted on it.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use std::arch::x86_64::__cpuid_count;

/// A store as the bus would see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Store {
    bytes: [u8; 64],
    len_bytes: usize,
    /// Length of the instruction.
    pub(crate) instruction_bytes: usize,
}

impl Store {
    /// The bytes stored.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len_bytes]
    }
}

/// Registers of a thread.
pub(crate) trait Registers {
    /// General-purpose register by its number: rax 0, rcx 1, rdx 2, rbx 3, rsp 4, … r15 15.
    fn general(&self, number: usize) -> u64;
    /// Vector register by its number, all 64 bytes.
    fn vector(&self, number: usize) -> [u8; 64];
}

/// Decodes the store at the start of `code`, which may be cut short at 15 bytes.
///
/// `None` if the instruction is not a plain store to memory.
pub(crate) fn decode(code: &[u8], rip: u64, registers: &dyn Registers) -> Option<Store> {
    let instruction = Decoder::with_ip(64, code, rip, DecoderOptions::NONE).decode();
    if instruction.code() == Code::INVALID
        || instruction.op0_kind() != OpKind::Memory
        || instruction.op_mask() != Register::None
    {
        return None;
    }
    let (len_bytes, skip_bytes, swap) = shape(&instruction)?;
    let mut bytes = source(&instruction, registers)?;
    bytes.copy_within(skip_bytes.., 0);
    if swap {
        bytes[..len_bytes].reverse();
    }
    Some(Store { bytes, len_bytes, instruction_bytes: instruction.len() })
}

/// Bytes stored, bytes of the source before them, and whether they are swapped.
fn shape(instruction: &Instruction) -> Option<(usize, usize, bool)> {
    use Mnemonic::*;
    let len_bytes = instruction.memory_size().size();
    let (skip_bytes, swap) = match instruction.mnemonic() {
        Mov | Movnti => (0, false),
        Movbe => (0, true),
        Movd | Movq | Movss | Movsd | Movlps | Movlpd | Vmovd | Vmovq | Vmovss | Vmovsd | Vmovlps
        | Vmovlpd => (0, false),
        Movhps | Movhpd | Vmovhps | Vmovhpd => (8, false),
        Movaps | Movapd | Movups | Movupd | Movdqa | Movdqu | Movntdq | Movntps | Movntpd => (0, false),
        Vmovaps | Vmovapd | Vmovups | Vmovupd | Vmovdqa | Vmovdqu | Vmovntdq | Vmovntps | Vmovntpd => {
            (0, false)
        }
        Vmovdqa32 | Vmovdqa64 | Vmovdqu8 | Vmovdqu16 | Vmovdqu32 | Vmovdqu64 => (0, false),
        _ => return None,
    };
    (1..=64).contains(&len_bytes).then_some((len_bytes, skip_bytes, swap))
}

fn source(instruction: &Instruction, registers: &dyn Registers) -> Option<[u8; 64]> {
    let mut bytes = [0; 64];
    if instruction.op1_kind() != OpKind::Register {
        let value = instruction.try_immediate(1).ok()?;
        bytes[..8].copy_from_slice(&value.to_le_bytes());
        return Some(bytes);
    }
    let register = instruction.op1_register();
    if register.is_gpr() {
        let mut value = registers.general(register.full_register().number());
        if matches!(register, Register::AH | Register::BH | Register::CH | Register::DH) {
            value >>= 8;
        }
        bytes[..8].copy_from_slice(&value.to_le_bytes());
        return Some(bytes);
    }
    register.is_vector_register().then(|| registers.vector(register.number()))
}

/// Registers as a signal handler gets them.
pub(crate) struct SignalRegisters<'a> {
    context: &'a libc::ucontext_t,
}

/// Places of the general-purpose registers in `gregs`, by instruction encoding.
const GENERAL: [i32; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// In the FXSAVE area: register xmm0.
const XMM_OFFSET: usize = 160;
/// In the FXSAVE area: `sw_reserved.magic1`, set if an XSAVE area follows.
const MAGIC1_OFFSET: usize = 464;
const MAGIC1: u32 = 0x4650_5853;
/// In the XSAVE header: bit map of the components that are not in their initial state.
const XSTATE_BV_OFFSET: usize = 512;

impl<'a> SignalRegisters<'a> {
    /// # Safety
    /// `context` is what the kernel gave to a signal handler that has not returned yet.
    pub(crate) unsafe fn new(context: &'a libc::ucontext_t) -> Self {
        Self { context }
    }

    /// `N` bytes at `offset` of the floating-point state.
    ///
    /// # Safety
    /// The state reaches that far.
    unsafe fn state<const N: usize>(&self, offset: usize) -> [u8; N] {
        // SAFETY: the kernel wrote the state on this thread's signal frame; its length is the caller's.
        unsafe { self.context.uc_mcontext.fpregs.cast::<u8>().add(offset).cast::<[u8; N]>().read_unaligned() }
    }

    /// A part of a register from XSAVE component `component`; `None` if it is in its initial state.
    fn component<const N: usize>(&self, component: u32, index: usize) -> Option<[u8; N]> {
        // SAFETY: the FXSAVE area of 512 bytes is always there.
        let magic = u32::from_ne_bytes(unsafe { self.state(MAGIC1_OFFSET) });
        if magic != MAGIC1 {
            return None;
        }
        // SAFETY: the magic word says that the XSAVE header follows.
        let xstate_bv = u64::from_ne_bytes(unsafe { self.state(XSTATE_BV_OFFSET) });
        if xstate_bv >> component & 1 == 0 {
            return None;
        }
        let offset = __cpuid_count(0xd, component).ebx as usize;
        // SAFETY: the component is present, and the frame is in the standard, not the compacted form.
        Some(unsafe { self.state(offset + index * N) })
    }
}

impl Registers for SignalRegisters<'_> {
    fn general(&self, number: usize) -> u64 {
        self.context.uc_mcontext.gregs[GENERAL[number] as usize] as u64
    }

    fn vector(&self, number: usize) -> [u8; 64] {
        let mut bytes = [0; 64];
        if number >= 16 {
            return self.component(7, number - 16).unwrap_or(bytes);
        }
        // SAFETY: xmm0 to xmm15 are in the FXSAVE area, which is always there.
        bytes[..16].copy_from_slice(&unsafe { self.state::<16>(XMM_OFFSET + number * 16) });
        if let Some(high) = self.component::<16>(2, number) {
            bytes[16..32].copy_from_slice(&high);
        }
        if let Some(high) = self.component::<32>(6, number) {
            bytes[32..].copy_from_slice(&high);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting;
    impl Registers for Counting {
        fn general(&self, number: usize) -> u64 {
            0x8877_6655_4433_2200 + number as u64
        }
        fn vector(&self, number: usize) -> [u8; 64] {
            std::array::from_fn(|at| at as u8 + number as u8)
        }
    }

    fn stored(code: &[u8]) -> Option<Vec<u8>> {
        decode(code, 0x1000, &Counting).map(|store| store.bytes().to_vec())
    }

    #[test]
    fn general_and_immediate_stores() {
        // mov [rdi], rax / eax / ax / al / ah
        assert_eq!(stored(&[0x48, 0x89, 0x07]).unwrap(), [0, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
        assert_eq!(stored(&[0x89, 0x07]).unwrap(), [0, 0x22, 0x33, 0x44]);
        assert_eq!(stored(&[0x66, 0x89, 0x07]).unwrap(), [0, 0x22]);
        assert_eq!(stored(&[0x88, 0x07]).unwrap(), [0]);
        assert_eq!(stored(&[0x88, 0x27]).unwrap(), [0x22]);
        // mov [rdi+8], r9
        assert_eq!(stored(&[0x4c, 0x89, 0x4f, 0x08]).unwrap()[0], 9);
        // mov qword [rdi], -2 (sign-extended imm32); mov dword [rdi], 0x01020304
        assert_eq!(
            stored(&[0x48, 0xc7, 0x07, 0xfe, 0xff, 0xff, 0xff]).unwrap(),
            [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]
        );
        assert_eq!(stored(&[0xc7, 0x07, 4, 3, 2, 1]).unwrap(), [4, 3, 2, 1]);
        // movbe [rdi], rax; movnti [rdi], rcx
        assert_eq!(
            stored(&[0x48, 0x0f, 0x38, 0xf1, 0x07]).unwrap(),
            [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0]
        );
        assert_eq!(stored(&[0x48, 0x0f, 0xc3, 0x0f]).unwrap()[0], 1);
    }

    #[test]
    fn vector_stores() {
        let from = |first: u8, n: u8| (first..first + n).collect::<Vec<_>>();
        assert_eq!(stored(&[0x0f, 0x29, 0x17]).unwrap(), from(2, 16)); // movaps [rdi], xmm2
        assert_eq!(stored(&[0x66, 0x0f, 0xe7, 0x0f]).unwrap(), from(1, 16)); // movntdq [rdi], xmm1
        assert_eq!(stored(&[0xc5, 0xfe, 0x7f, 0x1f]).unwrap(), from(3, 32)); // vmovdqu [rdi], ymm3
        assert_eq!(stored(&[0x62, 0xf1, 0xfe, 0x48, 0x7f, 0x27]).unwrap(), from(4, 64)); // vmovdqu64 [rdi], zmm4
        assert_eq!(stored(&[0x66, 0x0f, 0xd6, 0x07]).unwrap(), from(0, 8)); // movq [rdi], xmm0
        assert_eq!(stored(&[0x0f, 0x17, 0x07]).unwrap(), from(8, 8)); // movhps [rdi], xmm0
    }

    #[test]
    fn what_is_not_a_plain_store() {
        assert_eq!(stored(&[0x48, 0x8b, 0x07]), None); // mov rax, [rdi]
        assert_eq!(stored(&[0x48, 0x09, 0x07]), None); // or [rdi], rax
        assert_eq!(stored(&[0xf3, 0xa4]), None); // rep movsb
        assert_eq!(stored(&[0x62, 0xf1, 0xfe, 0x49, 0x7f, 0x27]), None); // masked by k1
    }
}
