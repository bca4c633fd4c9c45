//! An open device: carries out the commands that are written to its descriptor.
#![forbid(unsafe_code)]

use super::{
    address, answers,
    card::{self, Host, call},
    cq::Cq,
    events::{self, EventPipe},
    memory::lend,
    qp::Qp,
    refused,
    srq::Srq,
    uar::Pages,
    unsupported,
};
use crate::{
    command::{Command, Reply, core, extendable},
    uapi::*,
};
use mlx5_direct::{
    backend::{Access, Control, MrParams},
    mlx5::{
        cmd::{AttachToMcgIn, Command as _, DetachFromMcgIn},
        ids::{Lkey, Pdn, Rkey},
    },
};
use std::{
    collections::BTreeMap,
    ffi::c_int,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use zerocopy::IntoBytes;

/// `IB_ACCESS_*` that are hints, or of a registration's pages only: huge pages.
const ACCESS_HINTS: u32 = 1 << 7;

/// One `ibv_context`'s kernel side.
#[derive(Debug)]
pub(crate) struct Context {
    host: &'static Arc<Host>,
    events: Arc<EventPipe>,
    /// The program's end of it, until it is told.
    events_fd: c_int,
    state: Mutex<State>,
}

/// Its objects, by handle.
#[derive(Debug, Default)]
pub(super) struct State {
    n_handles: u32,
    pages: Option<Pages>,
    pds: BTreeMap<u32, Pdn>,
    mrs: BTreeMap<u32, Lkey>,
    mws: BTreeMap<u32, Rkey>,
    cqs: BTreeMap<u32, Cq>,
    qps: BTreeMap<u32, Qp>,
    srqs: BTreeMap<u32, Srq>,
    is_closed: bool,
}

impl State {
    pub(super) fn pages(&self) -> Result<&Pages, c_int> {
        self.pages.as_ref().ok_or(libc::EINVAL)
    }

    pub(super) fn pages_mut(&mut self) -> Result<&mut Pages, c_int> {
        self.pages.as_mut().ok_or(libc::EINVAL)
    }

    pub(super) fn pd(&self, handle: u32) -> Result<Pdn, c_int> {
        self.pds.get(&handle).copied().ok_or(libc::EINVAL)
    }

    pub(super) fn cq(&self, handle: u32) -> Result<&Cq, c_int> {
        self.cqs.get(&handle).ok_or(libc::EINVAL)
    }

    pub(super) fn srq(&self, handle: u32) -> Result<&Srq, c_int> {
        self.srqs.get(&handle).ok_or(libc::EINVAL)
    }

    fn qp(&self, handle: u32) -> Result<&Qp, c_int> {
        self.qps.get(&handle).ok_or(libc::EINVAL)
    }
}

/// Takes an object out of its table, if the card lets go of it.
fn end<T, R>(
    table: &mut BTreeMap<u32, T>,
    handle: u32,
    destroy: impl FnOnce(&T) -> Result<R, c_int>,
) -> Result<R, c_int> {
    let result = destroy(table.get(&handle).ok_or(libc::EINVAL)?)?;
    table.remove(&handle);
    Ok(result)
}

impl Context {
    /// Opens function `index` of the card.
    pub(crate) fn open(index: usize) -> Result<Arc<Self>, c_int> {
        let host = card::open(index)?;
        let (events, events_fd) = EventPipe::new(size_of::<AsyncEventDesc>())?;
        let context = Arc::new(Self { host, events, events_fd, state: Mutex::default() });
        host.join(&context);
        Ok(context)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device.
    pub(crate) fn host(&self) -> &'static Arc<Host> {
        self.host
    }

    /// Where UAR page `index` of the program is in the BAR.
    pub(crate) fn uar_offset(&self, index: usize) -> Result<u64, c_int> {
        let state = self.state();
        let page = state.pages()?.pages.get(index).ok_or(libc::EINVAL)?;
        Ok(u64::from(page.index().get()) << 12)
    }

    /// Tells of an event of the port or device.
    pub(super) fn tell(&self, element: u64, event_type: u32) {
        if !self.events.post(AsyncEventDesc { element, event_type, reserved: 0 }.as_bytes()) {
            super::complain("an event is lost: the program has left too many unread");
        }
    }

    /// Carries out a command.
    pub(crate) fn execute(&self, command: &Command<'_>) -> Result<Reply, c_int> {
        let (host, control) = (self.host, &self.host.control);
        let mut state = self.state();
        let state = &mut *state;
        if state.is_closed {
            return Err(libc::EIO);
        }
        let handle = state.n_handles + 1;
        let reply = match command.number & !number::EXTENDED {
            number::GET_CONTEXT => {
                let request: AllocUcontextReq = command.driver::<[u8; 0], _>()?;
                let pages = Pages::alloc(control, request).map_err(refused)?;
                let answer = answers::context(host, pages.n_bfregs());
                state.pages = Some(pages);
                let num_comp_vectors = host.attr().num_comp_vectors;
                core(GetContextResp { async_fd: self.events_fd as u32, num_comp_vectors }).driver(answer)
            }
            number::QUERY_DEVICE => {
                let base = answers::device(host);
                let response_length = size_of::<ExQueryDeviceResp>() as u32;
                match command.is_extended() {
                    true => core(ExQueryDeviceResp { base, comp_mask: 0, response_length }),
                    false => core(base),
                }
            }
            number::QUERY_PORT => core(answers::port(host, command.structure()?)?),
            number::ALLOC_PD => {
                let pd = control.alloc_pd().map_err(refused)?;
                state.pds.insert(handle, pd);
                core(HandleResp { handle }).driver(pd.get())
            }
            number::DEALLOC_PD => {
                end(&mut state.pds, command.structure()?, |pd| control.dealloc_pd(*pd).map_err(refused))?;
                Reply::default()
            }
            number::CREATE_AH => {
                let request: CreateAh = command.structure()?;
                state.pd(request.pd_handle)?;
                // The card knows nothing of it: datagrams carry it.
                core(HandleResp { handle }).driver(Mlx5CreateAhResp {
                    response_length: size_of::<Mlx5CreateAhResp>() as u32,
                    dmac: address::dmac(host, &request.dgid)?,
                    ..Default::default()
                })
            }
            number::DESTROY_AH => Reply::default(),
            number::REG_MR => {
                let request: RegMr = command.structure()?;
                let params = MrParams {
                    pd: state.pd(request.pd_handle)?,
                    memory: lend(request.start, request.length)?,
                    access: Access(request.access_flags & !ACCESS_HINTS),
                    start_addr: Some(request.hca_va),
                };
                let keys = control.reg_mr(&params).map_err(refused)?;
                state.mrs.insert(handle, keys.lkey);
                core(RegMrResp { mr_handle: handle, lkey: keys.lkey.get(), rkey: keys.rkey.get() })
            }
            number::DEREG_MR => {
                end(&mut state.mrs, command.structure()?, |key| control.dereg_mr(*key).map_err(refused))?;
                Reply::default()
            }
            number::ALLOC_MW => {
                let request: AllocMw = command.structure()?;
                if request.mw_type != MW_TYPE_2 {
                    return Err(unsupported("memory windows of type 1"));
                }
                let rkey = control.alloc_mw(state.pd(request.pd_handle)?).map_err(refused)?;
                state.mws.insert(handle, rkey);
                core(AllocMwResp { mw_handle: handle, rkey: rkey.get() })
            }
            number::DEALLOC_MW => {
                end(&mut state.mws, command.structure()?, |rkey| control.dealloc_mw(*rkey).map_err(refused))?;
                Reply::default()
            }
            number::CREATE_COMP_CHANNEL => core(HandleResp { handle: events::create_channel()? as u32 }),
            number::CREATE_CQ => {
                let (cq, request) = state.create_cq(host, &self.events, command)?;
                let number = cq.cqn.get();
                state.cqs.insert(handle, cq);
                extendable(command, CreateCqResp { cq_handle: handle, cqe: request.cqe })
                    .driver(NumberResp { number, reserved: 0 })
            }
            number::DESTROY_CQ => core(end(&mut state.cqs, command.structure()?, |cq| cq.destroy(host))?),
            number::CREATE_QP => {
                let qp = state.create_qp(host, &self.events, command)?;
                let response = CreateQpResp {
                    qp_handle: handle,
                    qpn: qp.qpn.get(),
                    max_send_wr: qp.caps.max_send_wr,
                    max_recv_wr: qp.caps.max_recv_wr,
                    max_send_sge: qp.caps.max_send_sge,
                    max_recv_sge: qp.caps.max_recv_sge,
                    max_inline_data: qp.caps.max_inline_data,
                    reserved: 0,
                };
                let driver = Mlx5CreateQpResp { bfreg_index: qp.bfreg_index, ..Default::default() };
                state.qps.insert(handle, qp);
                extendable(command, response).driver(driver)
            }
            number::MODIFY_QP => {
                let request: ModifyQp = command.structure()?;
                state.qp(request.qp_handle)?.modify(host, &request)?;
                match command.is_extended() {
                    true => extendable(command, [0_u8; 0]),
                    false => Reply::default(),
                }
            }
            number::QUERY_QP => core(state.qp(command.structure()?)?.query(host)?),
            number::DESTROY_QP => {
                let pages = state.pages.as_mut().ok_or(libc::EINVAL)?;
                core(end(&mut state.qps, command.structure()?, |qp| {
                    let n_events = qp.destroy(host)?;
                    pages.give_back(qp.bfreg_index);
                    Ok(n_events)
                })?)
            }
            number::ATTACH_MCAST => {
                let request: Mcast = command.structure()?;
                let qpn = state.qp(request.qp_handle)?.qpn;
                let input = AttachToMcgIn::request().with_qpn(qpn).with_multicast_gid(request.gid);
                call(control, &input, &[]).map_err(refused)?;
                Reply::default()
            }
            number::DETACH_MCAST => {
                let request: Mcast = command.structure()?;
                let qpn = state.qp(request.qp_handle)?.qpn;
                let input = DetachFromMcgIn::request().with_qpn(qpn).with_multicast_gid(request.gid);
                call(control, &input, &[]).map_err(refused)?;
                Reply::default()
            }
            number::CREATE_SRQ => {
                let srq = state.create_srq(host, command)?;
                let ((max_wr, max_sge), srqn) = (srq.limits(), srq.number());
                state.srqs.insert(handle, srq);
                core(CreateSrqResp { srq_handle: handle, max_wr, max_sge, srqn })
                    .driver(NumberResp { number: srqn, reserved: 0 })
            }
            number::MODIFY_SRQ => {
                let request: ModifySrq = command.structure()?;
                state.srq(request.srq_handle)?.modify(host, &request)?;
                Reply::default()
            }
            number::QUERY_SRQ => core(state.srq(command.structure()?)?.query(host)?),
            number::DESTROY_SRQ => {
                end(&mut state.srqs, command.structure()?, |srq| srq.destroy(host))?;
                core(0_u32)
            }
            other => {
                let form = if command.is_extended() { " of the extended form" } else { "" };
                return Err(unsupported(&format!("command {other} of uverbs{form}")));
            }
        };
        state.n_handles = handle;
        Ok(reply)
    }

    /// Ends what the program has left, users before what they use.
    pub(super) fn close(&self) {
        let (host, control) = (self.host, &self.host.control);
        let mut state = self.state();
        if std::mem::replace(&mut state.is_closed, true) {
            return;
        }
        // What fails was said, and stays until the function is down.
        for qp in std::mem::take(&mut state.qps).into_values() {
            let _ = qp.destroy(host);
        }
        for srq in std::mem::take(&mut state.srqs).into_values() {
            let _ = srq.destroy(host);
        }
        for cq in std::mem::take(&mut state.cqs).into_values() {
            let _ = cq.destroy(host);
        }
        for rkey in std::mem::take(&mut state.mws).into_values() {
            let _ = control.dealloc_mw(rkey).map_err(refused);
        }
        for lkey in std::mem::take(&mut state.mrs).into_values() {
            let _ = control.dereg_mr(lkey).map_err(refused);
        }
        for pd in std::mem::take(&mut state.pds).into_values() {
            let _ = control.dealloc_pd(pd).map_err(refused);
        }
        state.pages = None;
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.close();
    }
}
