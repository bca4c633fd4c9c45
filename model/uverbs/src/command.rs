//! A command as a program writes it to the device's descriptor, and where it wants the answer.

use crate::uapi::{ExtendedHeader, ExtendedResp, Header, number};
use std::ffi::c_int;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Command<'a> {
    /// Its number, [`number::EXTENDED`] included.
    pub(crate) number: u32,
    /// Its structure, without the response address, and the driver's after it.
    pub(crate) request: &'a [u8],
    /// Where the driver's begins, if the form says so.
    driver_at: Option<usize>,
    response: u64,
    core_out_bytes: usize,
    driver_out_bytes: usize,
}

/// The answer to a command.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    /// The structure of uverbs.
    pub(crate) core: Vec<u8>,
    /// The driver's, after it.
    pub(crate) driver: Vec<u8>,
}

impl Reply {
    /// With the driver's part.
    pub(crate) fn driver(mut self, structure: impl IntoBytes + Immutable) -> Self {
        self.driver = structure.as_bytes().to_vec();
        self
    }
}

/// An answer without a part of the driver's.
pub(crate) fn core(structure: impl IntoBytes + Immutable) -> Reply {
    Reply { core: structure.as_bytes().to_vec(), driver: vec![] }
}

/// The response of a command whose extended form has two more words in it.
pub(crate) fn extendable(command: &Command<'_>, structure: impl IntoBytes + Immutable) -> Reply {
    let mut reply = core(structure);
    if command.is_extended() {
        let response_length = (reply.core.len() + size_of::<ExtendedResp>()) as u32;
        reply.core.extend(ExtendedResp { comp_mask: 0, response_length }.as_bytes());
    }
    reply
}

impl<'a> Command<'a> {
    /// What was written, if it is a whole command.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, c_int> {
        let (header, rest) = Header::read_from_prefix(bytes).map_err(|_| libc::EINVAL)?;
        if header.command & number::EXTENDED != 0 {
            let (extended, request) = ExtendedHeader::read_from_prefix(rest).map_err(|_| libc::EINVAL)?;
            let in_words = usize::from(header.in_words) + usize::from(extended.provider_in_words);
            if request.len() != 8 * in_words {
                return Err(libc::EINVAL);
            }
            return Ok(Self {
                number: header.command,
                request,
                driver_at: Some(8 * usize::from(header.in_words)),
                response: extended.response,
                core_out_bytes: 8 * usize::from(header.out_words),
                driver_out_bytes: 8 * usize::from(extended.provider_out_words),
            });
        }
        if bytes.len() != 4 * usize::from(header.in_words) {
            return Err(libc::EINVAL);
        }
        // A command that is answered begins with the place for the answer.
        let (response, request) = match header.out_words {
            0 => (0, rest),
            _ => u64::read_from_prefix(rest).map_err(|_| libc::EINVAL)?,
        };
        let out_bytes = 4 * usize::from(header.out_words);
        Ok(Self {
            number: header.command,
            request,
            driver_at: None,
            response,
            core_out_bytes: out_bytes,
            driver_out_bytes: 0,
        })
    }

    /// A structure at the request's start.
    pub(crate) fn structure<T: FromBytes>(&self) -> Result<T, c_int> {
        T::read_from_prefix(self.request).map(|(structure, _)| structure).map_err(|_| libc::EINVAL)
    }

    /// A structure after a `C`.
    pub(crate) fn behind<C, T: FromBytes>(&self) -> Result<T, c_int> {
        let request = self.request.get(size_of::<C>()..).ok_or(libc::EINVAL)?;
        T::read_from_prefix(request).map(|(structure, _)| structure).map_err(|_| libc::EINVAL)
    }

    /// The driver's structure, after a `C`, or where the extended form has it.
    pub(crate) fn driver<C, T: FromBytes>(&self) -> Result<T, c_int> {
        let request = self.request.get(self.driver_at.unwrap_or(size_of::<C>())..).ok_or(libc::EINVAL)?;
        T::read_from_prefix(request).map(|(structure, _)| structure).map_err(|_| libc::EINVAL)
    }

    /// Whether it is of the extended form.
    pub(crate) fn is_extended(&self) -> bool {
        self.number & number::EXTENDED != 0
    }

    /// Writes the answer, as much of it as there is room for.
    ///
    /// # Safety
    /// The response address and lengths are those of memory that the program lends for writing.
    pub(crate) unsafe fn answer(&self, reply: &Reply) {
        let core = &reply.core[..reply.core.len().min(self.core_out_bytes)];
        // The plain form has one room for both parts, without a gap.
        let (driver_at, driver_room) = match self.is_extended() {
            true => (self.core_out_bytes, self.driver_out_bytes),
            false => (core.len(), self.core_out_bytes - core.len()),
        };
        let driver = &reply.driver[..reply.driver.len().min(driver_room)];
        let to = self.response as *mut u8;
        // SAFETY: promised by the caller; neither copy goes on after its room.
        unsafe {
            std::ptr::copy_nonoverlapping(core.as_ptr(), to, core.len());
            std::ptr::copy_nonoverlapping(driver.as_ptr(), to.add(driver_at), driver.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_commands_are_answered_in_one_piece() {
        let mut out = [0u8; 12];
        let mut bytes = Header { command: number::ALLOC_PD, in_words: 4, out_words: 2 }.as_bytes().to_vec();
        bytes.extend((out.as_mut_ptr() as u64).to_ne_bytes());
        let command = Command::parse(&bytes).unwrap();
        assert_eq!((command.number, command.request), (number::ALLOC_PD, &[][..]));
        let reply = Reply { core: vec![1; 4], driver: vec![2; 8] };
        // SAFETY: 8 bytes of `out`, which lives on.
        unsafe { command.answer(&reply) };
        assert_eq!(out, [1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0]);
    }

    #[test]
    fn extended_commands_have_a_room_for_each_part() {
        let mut out = [0u8; 32];
        let command = number::EXTENDED | number::CREATE_CQ;
        let mut bytes = Header { command, in_words: 1, out_words: 2 }.as_bytes().to_vec();
        let response = out.as_mut_ptr() as u64;
        let extended = ExtendedHeader { response, provider_in_words: 1, provider_out_words: 1, reserved: 0 };
        bytes.extend(extended.as_bytes());
        bytes.extend([3; 16]);
        let command = Command::parse(&bytes).unwrap();
        assert_eq!(command.request, [3; 16]);
        let reply = Reply { core: vec![1; 4], driver: vec![2; 12] };
        // SAFETY: 24 bytes of `out`, which lives on.
        unsafe { command.answer(&reply) };
        assert_eq!(
            (&out[..4], &out[4..16], &out[16..24], &out[24..]),
            (&[1; 4][..], &[0; 12][..], &[2; 8][..], &[0; 8][..])
        );
    }

    #[test]
    fn lengths_must_be_as_the_header_says() {
        for bytes in [&[0; 7][..], &[0; 12][..], &[0, 0, 0, 0x80, 0, 0, 0, 0][..]] {
            assert_eq!(Command::parse(bytes), Err(libc::EINVAL), "{bytes:?}");
        }
    }
}
