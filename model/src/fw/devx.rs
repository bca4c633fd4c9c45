//! DevX: user processes with a number of their own, and umems, the memory that their objects are made of.
#![forbid(unsafe_code)]

use super::{
    Function,
    alloc::Counted,
    buffer::Buffer,
    dispatch::{Input, Output, done, out},
    pages::Cost,
    refusal::Refusal,
};
use mlx5_direct::mlx5::cmd::{CreateUctxOut, CreateUmemIn, CreateUmemOut, DestroyUctxIn, DestroyUmemIn};

/// Memory of a process.
#[derive(Debug)]
pub(crate) struct Umem {
    buffer: Buffer,
    cost: Cost,
}

/// A part of a umem, as a command names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UmemPart {
    pub(super) id: u32,
    pub(super) offset_bytes: u64,
}

/// The list of pages behind a command, or a umem in its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct BufferSource<'a> {
    pub(super) log_page_size: u8,
    pub(super) page_offset: u8,
    pub(super) list: &'a [u8],
    pub(super) umem: Option<UmemPart>,
}

impl Function {
    pub(super) fn create_uctx(&mut self, _: &Input<'_>) -> Output {
        let uid = self.uctxs.insert(Counted::default())?;
        out(CreateUctxOut::new().with_uid(uid as u16))
    }

    pub(super) fn destroy_uctx(&mut self, input: &Input<'_>) -> Output {
        let uid = input.get::<DestroyUctxIn>()?.uid().into();
        self.uctxs.remove(uid).map_or(Err(Refusal::NO_SUCH_OBJECT), |_| done())
    }

    pub(super) fn create_umem(&mut self, input: &Input<'_>) -> Output {
        let (input, list) = input.get_with_list::<CreateUmemIn>()?;
        let umem = input.umem();
        let n_pages = umem.num_of_mtt() as usize;
        let list = list.as_chunks::<8>().0.get(..n_pages).ok_or(Refusal::LIST_SHORT)?;
        let buffer = Buffer::of_pages(list, umem.log_page_size(), umem.page_offset().into())?;
        let cost = Cost::mkey(n_pages);
        self.charge(cost)?;
        let umem_id = self.umems.insert(Umem { buffer, cost })?;
        out(CreateUmemOut::new().with_umem_id(umem_id))
    }

    pub(super) fn destroy_umem(&mut self, input: &Input<'_>) -> Output {
        let id = input.get::<DestroyUmemIn>()?.umem_id();
        let umem = self.umems.remove(id).ok_or(Refusal::NO_SUCH_OBJECT)?;
        self.refund(umem.cost);
        done()
    }

    /// The memory of a queue.
    pub(super) fn buffer(
        &self,
        source: BufferSource<'_>,
        len_bytes: u64,
        write: bool,
    ) -> Result<Buffer, Refusal> {
        let BufferSource { log_page_size, page_offset, list, umem } = source;
        match umem {
            None => Buffer::new(&self.dma, log_page_size, page_offset, len_bytes, list, write),
            Some(part) => {
                let umem = self.umems.get(part.id).ok_or(Refusal::UMEM)?;
                umem.buffer.part(&self.dma, part.offset_bytes, len_bytes, write)
            }
        }
    }

    /// Address of a doorbell record, which must be an aligned, mapped pair of words. In a umem `addr` is an
    /// offset.
    pub(super) fn record_address(&self, umem_id: Option<u32>, addr: u64) -> Result<u64, Refusal> {
        let iova = match umem_id {
            None => addr,
            Some(id) => self.umems.get(id).and_then(|umem| umem.buffer.iova(addr)).ok_or(Refusal::UMEM)?,
        };
        self.check_record(iova)?;
        Ok(iova)
    }

    /// Addresses of the pages of `1 << log_page` bytes that a key over a umem has.
    pub(super) fn umem_pages(&self, part: UmemPart, log_page: u8, n_pages: u64) -> Result<Vec<u64>, Refusal> {
        let umem = self.umems.get(part.id).ok_or(Refusal::UMEM)?;
        (0..n_pages)
            .map(|n| umem.buffer.iova(part.offset_bytes + (n << log_page)))
            .map(|iova| iova.map(|iova| iova & !((1 << log_page) - 1)).ok_or(Refusal::UMEM))
            .collect()
    }
}
