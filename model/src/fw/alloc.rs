//! Objects that are no more than a number: UAR pages, protection and transport domains, XRC domains.
#![forbid(unsafe_code)]

use super::{
    Function,
    blue_flame::{BlueFlame, N_BUFFERS},
    dispatch::{Input, Output, done, out},
    memic::OPERATIONS,
    pages::Cost,
    refusal::Refusal,
    table::Table,
};
use crate::{
    pci::PAGE_BYTES,
    strict::{Rule, Violation},
};
use mlx5_direct::mlx5::{
    cmd::{
        AllocPdOut, AllocTransportDomainOut, AllocUarOut, AllocXrcdOut, DeallocPdIn,
        DeallocTransportDomainIn, DeallocUarIn, DeallocXrcdIn,
    },
    ids::{Pdn, UarIndex},
};

/// First UAR page: those before it hold the init segment and the MSI-X table.
pub(crate) const FIRST_UAR: u32 = 8;
/// Number of UAR pages.
pub(crate) const N_UARS: u32 = (OPERATIONS.start / PAGE_BYTES) as u32 - FIRST_UAR;

/// An object that others refer to.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) n_users: u32,
}

/// A UAR page.
#[derive(Debug, Default)]
pub(crate) struct Uar {
    pub(crate) n_users: u32,
    /// BlueFlame buffers being filled, by buffer.
    pub(crate) blue_flame: [BlueFlame; N_BUFFERS],
}

impl Table<Counted> {
    /// Adds a reference.
    pub(crate) fn hold(&mut self, number: u32, missing: Refusal) -> Result<(), Refusal> {
        self.get_mut(number).ok_or(missing)?.n_users += 1;
        Ok(())
    }

    /// Drops a reference.
    pub(crate) fn release(&mut self, number: u32) {
        if let Some(object) = self.get_mut(number) {
            object.n_users -= 1;
        }
    }
}

impl Function {
    /// A refusal to end an object that others use, which is a driver's mistake.
    pub(super) fn in_use(&mut self, what: &str, number: u32, n_users: u32) -> Refusal {
        let detail = format!("{what} 0x{number:x} is in use by {n_users} objects");
        self.violate(Violation::new(Rule::ObjectInUse, detail));
        Refusal::OBJECT_IN_USE
    }

    pub(super) fn alloc_uar(&mut self, _: &Input<'_>) -> Output {
        if self.uars.len() == 0 {
            // A driver's first page is the one that its event queues ring in, and `bar=sparse` traps that one: it must
            // be the same again after a restart.
            self.uars.restart();
        }
        let uar = self.uars.insert(Uar::default())?;
        self.prime_page(uar);
        out(AllocUarOut::new().with_uar(UarIndex::new(uar)))
    }

    pub(super) fn dealloc_uar(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<DeallocUarIn>()?.uar().get();
        let n_users = self.uars.get(number).ok_or(Refusal::NO_SUCH_OBJECT)?.n_users;
        if n_users != 0 {
            return Err(self.in_use("UAR page", number, n_users));
        }
        self.uars.remove(number);
        done()
    }

    pub(super) fn alloc_pd(&mut self, _: &Input<'_>) -> Output {
        self.charge(Cost::OTHER)?;
        out(AllocPdOut::new().with_pd(Pdn::new(self.pds.insert(Counted::default())?)))
    }

    pub(super) fn dealloc_pd(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<DeallocPdIn>()?.pd().get();
        self.end_counted("protection domain", |function| &mut function.pds, number)?;
        self.refund(Cost::OTHER);
        done()
    }

    pub(super) fn alloc_transport_domain(&mut self, _: &Input<'_>) -> Output {
        let number = self.transport_domains.insert(Counted::default())?;
        out(AllocTransportDomainOut::new().with_transport_domain(number))
    }

    pub(super) fn dealloc_transport_domain(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<DeallocTransportDomainIn>()?.transport_domain();
        self.end_counted("transport domain", |function| &mut function.transport_domains, number)?;
        done()
    }

    pub(super) fn alloc_xrcd(&mut self, _: &Input<'_>) -> Output {
        out(AllocXrcdOut::new().with_xrcd(self.xrcds.insert(Counted::default())?))
    }

    pub(super) fn dealloc_xrcd(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<DeallocXrcdIn>()?.xrcd();
        self.end_counted("XRC domain", |function| &mut function.xrcds, number)?;
        done()
    }

    fn end_counted(
        &mut self,
        what: &str,
        table: impl Fn(&mut Self) -> &mut Table<Counted>,
        number: u32,
    ) -> Result<(), Refusal> {
        let n_users = table(self).get(number).ok_or(Refusal::NO_SUCH_OBJECT)?.n_users;
        if n_users != 0 {
            return Err(self.in_use(what, number, n_users));
        }
        table(self).remove(number);
        Ok(())
    }
}
