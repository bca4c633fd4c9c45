//! Bytes as the structures that they are, to be compared.

use super::{Parts, trace::Event};
use crate::{
    structure::{self, As, ReceiveHead, Transport},
    wire::Packet,
};
use mlx5_direct::{
    cqe::CQE_BYTES,
    mlx5::{
        self,
        cmd::{CmdEntry, CmdOpcode, MboxIn},
        eqe::Eqe,
        layout::{Desc, Layout},
    },
    wqe::SEGMENT_BYTES,
};

impl Parts {
    /// Takes bytes apart as `kind`, a WQE as one of `transport`.
    ///
    /// # Errors
    /// They are nothing that is known, and why.
    pub fn parse(bytes: &[u8], kind: As, transport: Option<Transport>) -> Result<Self, String> {
        let n = bytes.len();
        match kind {
            As::Auto => match structure::guess(bytes) {
                Some(guess) => Self::parse(bytes, guess.kind, transport),
                None => Err(format!(
                    "{n} bytes that look like no WQE, CQE, EQE or command; --as says what they are"
                )),
            },
            As::Wqe => Self::wqe(bytes, transport)
                .ok_or_else(|| format!("a WQE has {SEGMENT_BYTES} bytes at least, and {n} are there")),
            As::Receive(head) => match structure::receive(bytes, head) {
                Some(receive) => Ok(Self::new(bytes, receive.structures)),
                None => Err(format!("a receive WQE has {SEGMENT_BYTES} bytes at least, and {n} are there")),
            },
            As::Cqe => match structure::cqe(bytes, transport == Some(Transport::Raw)) {
                Some(cqe) => Ok(Self::new(bytes, vec![cqe.structure])),
                None => Err(format!("a CQE has {CQE_BYTES} or 128 bytes, and {n} are there")),
            },
            As::Eqe if n == Eqe::DESC.size_bytes => Ok(Self::of("EQE", Eqe::DESC, bytes)),
            As::Eqe => Err(format!("an EQE has {} bytes, and {n} are there", Eqe::DESC.size_bytes)),
            As::Cmd => Self::command(bytes).ok_or_else(|| {
                format!(
                    "{n} bytes that are neither a slot of the command queue nor the input of a known command"
                )
            }),
        }
    }

    /// A send WQE, as much of it as is there. Without a transport the one is taken that it is most like.
    pub fn wqe(bytes: &[u8], transport: Option<Transport>) -> Option<Self> {
        structure::wqe(bytes, transport).map(|wqe| Self::new(bytes, wqe.structures))
    }

    /// A slot of the command queue, or a command's input, which says its opcode.
    fn command(bytes: &[u8]) -> Option<Self> {
        if bytes.len() == CmdEntry::DESC.size_bytes && bytes[0] == 7 {
            return Some(Self::of("command entry", CmdEntry::DESC, bytes));
        }
        let opcode = MboxIn::from_bytes(*bytes.first_chunk()?).opcode();
        Some(Self::of("input", Self::of_command(opcode)?.0, bytes))
    }

    /// Layouts of a command's input and output.
    fn of_command(opcode: CmdOpcode) -> Option<(&'static Desc, &'static Desc)> {
        let command = mlx5::commands().iter().find(|command| command.opcode == opcode)?;
        Some((command.input, command.output))
    }
}

impl Parts {
    /// What an event's bytes are, by what the trace says of it.
    pub fn of_event(event: &Event) -> Self {
        let bytes = event.bytes.as_slice();
        let parsed = match event.kind.as_str() {
            "SendWqe" => Self::wqe(bytes, None),
            "RecvWqe" => Self::parse(bytes, As::Receive(ReceiveHead::None), None).ok(),
            "Cqe" => Self::parse(bytes, As::Cqe, None).ok(),
            "Eqe" => Self::parse(bytes, As::Eqe, None).ok(),
            "CommandIn" => Self::command_of(&event.text).map(|(input, _)| Self::of("input", input, bytes)),
            "CommandOut" => {
                Self::command_of(&event.text).map(|(_, output)| Self::of("output", output, bytes))
            }
            "Packet" => Packet::parse(bytes).ok().map(|packet| Self::new(bytes, packet.headers)),
            _ => None,
        };
        parsed.unwrap_or_else(|| Self::new(bytes, Vec::new()))
    }

    /// The layouts of the command that a line of a trace names: `slot 0: CREATE_QP (0x500)`.
    fn command_of(text: &str) -> Option<(&'static Desc, &'static Desc)> {
        let (_, number) = text.rsplit_once("(0x")?;
        let number = u16::from_str_radix(number.strip_suffix(')')?, 16).ok()?;
        Self::of_command(CmdOpcode(number))
    }
}
