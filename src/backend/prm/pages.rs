//! Pages that firmware borrows: given, reclaimed, refused, and counted.
#![forbid(unsafe_code)]

use super::cmd_queue::{CommandQueue, Lane};
use crate::{
    Error, Result,
    backend::{
        dma::{DmaRegion, DmaSpace, PAGE_BYTES},
        pci::PciFunction,
    },
    mistake::mistake,
    mlx5::{
        cmd::{Command, ManagePagesIn, ManagePagesOpMod, QueryPagesIn, QueryPagesOpMod},
        eqe::EqePageReq,
    },
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Pages in one MANAGE_PAGES: a list of one 4 KiB page.
const CHUNK_PAGES: usize = 512;

/// Longest wait without a page coming back at teardown (Linux `RECLAIM_PAGES` timeout).
const RECLAIM_TIMEOUT: Duration = Duration::from_secs(5);

/// Whose pages: function id, and whether it is the embedded CPU's.
type Owner = (u16, bool);

/// What firmware holds.
#[derive(Debug)]
pub(super) struct FirmwarePages {
    dma: Arc<DmaSpace>,
    /// Most pages that firmware may hold at once.
    limit: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// Chunk and owner of each page, by address.
    pages: HashMap<u64, (u64, Owner)>,
    /// Memory and number of held pages of each chunk, by address of its first page.
    chunks: HashMap<u64, (DmaRegion, usize)>,
}

impl Held {
    fn of(&self, owner: Owner) -> usize {
        self.pages.values().filter(|(_, of)| *of == owner).count()
    }

    fn take_back(&mut self, page: u64) -> Result<()> {
        let Some((chunk, _)) = self.pages.remove(&page) else {
            return Err(Error::Protocol(format!(
                "firmware returned page 0x{page:x}, which it does not hold"
            )));
        };
        if let Some((_, n_held)) = self.chunks.get_mut(&chunk) {
            *n_held -= 1;
            if *n_held == 0 {
                self.chunks.remove(&chunk);
            }
        }
        Ok(())
    }
}

impl FirmwarePages {
    pub(super) fn new(dma: Arc<DmaSpace>, limit: usize) -> Self {
        Self { dma, limit, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pages that firmware holds.
    pub(super) fn count(&self) -> usize {
        self.held().pages.len()
    }

    /// Asks what firmware wants at a stage of bring-up, and gives it.
    pub(super) fn supply(&self, cmd: &CommandQueue, stage: QueryPagesOpMod) -> Result<()> {
        if mistake!(PagesSkipped) {
            return Ok(());
        }
        let wanted = cmd.call(&QueryPagesIn::request().with_op_mod(stage))?;
        let n_pages = wanted.num_pages() as i32;
        let owner = (wanted.function_id(), wanted.embedded_cpu_function());
        if n_pages > 0 { self.give(cmd, owner, n_pages as usize) } else { Ok(()) }
    }

    /// Serves a page request event.
    pub(super) fn serve(&self, cmd: &CommandQueue, request: &EqePageReq) -> Result<()> {
        let owner = (request.func_id(), request.ec_function());
        let n_pages = request.num_pages() as i32;
        if request.release_all_pages() {
            // Firmware has dropped them all already: it wants no command.
            let mut held = self.held();
            let pages: Vec<_> =
                held.pages.iter().filter(|(_, v)| v.1 == owner).map(|(page, _)| *page).collect();
            return pages.into_iter().try_for_each(|page| held.take_back(page));
        }
        if n_pages >= 0 {
            self.give(cmd, owner, n_pages as usize)
        } else {
            // No more than it holds, whatever it says.
            let n_held = self.held().of(owner);
            self.reclaim(cmd, owner, n_held.min(n_pages.unsigned_abs() as usize)).map(|_| ())
        }
    }

    /// Gives pages chunk by chunk. If the host has none left, tells firmware so.
    fn give(&self, cmd: &CommandQueue, owner: Owner, n_pages: usize) -> Result<()> {
        let held = self.count();
        let mut result = Ok(());
        if n_pages > self.limit.saturating_sub(held) {
            result = Err(Error::invalid(format!(
                "firmware asks for {n_pages} pages and holds {held}: the limit is {} \
                 (OpenOptions::max_firmware_pages)",
                self.limit
            )));
        }
        let mut left = n_pages;
        while result.is_ok() && left > 0 {
            let n = left.min(CHUNK_PAGES);
            left -= n;
            match self.dma.alloc(n * PAGE_BYTES, PAGE_BYTES) {
                // A refusal of pages that were offered is not answered with CANT_GIVE.
                Ok(region) => self.give_chunk(cmd, owner, region)?,
                Err(error) => result = Err(error),
            }
        }
        if result.is_err() {
            let cant = manage(ManagePagesOpMod::CANT_GIVE, owner, 0);
            cmd.exec(Lane::Pages, &cant, &[], 0)?;
        }
        result
    }

    fn give_chunk(&self, cmd: &CommandQueue, owner: Owner, region: DmaRegion) -> Result<()> {
        let chunk = region.address_of(0);
        let pages: Vec<u64> = region.pages(region.memory().len_bytes(), PAGE_BYTES).collect();
        let told = |page: u64| match page {
            _ if mistake!(PageTwice) => chunk,
            page if mistake!(PageUnaligned) => page + 8,
            page => page,
        };
        let list: Vec<u8> = pages.iter().flat_map(|page| told(*page).to_be_bytes()).collect();
        // Held from before the command: if its outcome stays unknown, firmware may use the memory.
        {
            let mut held = self.held();
            held.chunks.insert(chunk, (region, pages.len()));
            held.pages.extend(pages.iter().map(|&page| (page, (chunk, owner))));
        }
        let given = cmd.exec(Lane::Pages, &manage(ManagePagesOpMod::GIVE, owner, pages.len()), &list, 0);
        if let Err(Error::Command { .. } | Error::Delivery { .. }) = given {
            let mut held = self.held();
            for page in pages {
                held.take_back(page)?;
            }
        }
        given.map(|_| ())
    }

    /// Takes up to `n_pages` back; how many came.
    fn reclaim(&self, cmd: &CommandQueue, owner: Owner, n_pages: usize) -> Result<usize> {
        let mut taken = 0;
        while taken < n_pages {
            let n = (n_pages - taken).min(CHUNK_PAGES);
            let (out, list) = cmd.exec(Lane::Pages, &manage(ManagePagesOpMod::TAKE, owner, n), &[], n * 8)?;
            let returned = out.output_num_entries() as usize;
            if returned > n {
                return Err(Error::Protocol(format!("firmware returned {returned} pages, asked for {n}")));
            }
            let mut held = self.held();
            for entry in list.as_chunks::<8>().0.iter().take(returned) {
                held.take_back(u64::from_be_bytes(*entry))?;
            }
            taken += returned;
            if returned == 0 {
                break;
            }
        }
        Ok(taken)
    }

    /// Takes all pages back, at teardown.
    pub(super) fn reclaim_all(&self, cmd: &CommandQueue, function: &dyn PciFunction) -> Result<()> {
        let mut progress = Instant::now();
        if mistake!(PagesKept) {
            return Ok(());
        }
        loop {
            let owner = self.held().pages.values().next().map(|(_, owner)| *owner);
            let Some(owner) = owner else { return Ok(()) };
            let n_held = self.held().of(owner);
            if self.reclaim(cmd, owner, n_held)? > 0 {
                progress = Instant::now();
            } else if progress.elapsed() > RECLAIM_TIMEOUT {
                return Err(Error::Timeout {
                    what: format!("return of {n_held} pages by firmware"),
                    after: RECLAIM_TIMEOUT,
                });
            } else {
                function.relax(Duration::from_millis(1));
            }
        }
    }

    /// Forgets all pages: the function is down, and reaches none of them.
    pub(super) fn drop_all(&self) {
        *self.held() = Held::default();
    }
}

fn manage(op_mod: ManagePagesOpMod, (function_id, embedded): Owner, n_pages: usize) -> ManagePagesIn {
    ManagePagesIn::request()
        .with_op_mod(op_mod)
        .with_function_id(function_id)
        .with_embedded_cpu_function(embedded)
        .with_input_num_entries(n_pages as u32)
}
