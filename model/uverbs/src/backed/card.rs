//! The card of this process, brought up as mlx5_core does: made when a program first opens a device, there until the
//! process ends.

use super::{address, complain, context::Context, events::Source, refused, tree};
use crate::uapi::{AsyncEventDesc, event};
use mlx5_direct::{
    Error,
    backend::{
        AsyncEvent, ChannelId, CompChannel, Control, DeviceAttr, LinkLayer,
        prm::{OpenOptions, PrmControl},
    },
    mlx5::{
        caps::CmdHcaCap,
        cmd::{CapType, Command, QueryHcaCapIn},
    },
};
use mlx5_model::{Model, ModelConfig, ModelFunction, preload};
use std::{
    collections::HashMap,
    ffi::c_int,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    thread,
    time::Duration,
};
use zerocopy::{FromZeros, IntoBytes};

/// A wait without end, for the threads that tell of events.
const FOR_EVER: Duration = Duration::MAX;

/// The card.
#[derive(Debug)]
pub(crate) struct Card {
    model: Model,
    functions: Vec<Arc<Host>>,
}

/// One function, and what the kernel keeps of it: a device of verbs.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) function: Arc<ModelFunction>,
    pub(crate) control: Arc<PrmControl>,
    pub(crate) caps: CmdHcaCap,
    pub(crate) config: ModelConfig,
    /// By completion vector, made when first used.
    vectors: Mutex<Vec<Option<Arc<dyn CompChannel>>>>,
    sources: Mutex<Sources>,
}

/// Who hears of an object's events, by its number.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// Completions.
    pub(crate) completions: HashMap<u32, Arc<Source>>,
    /// What befalls completion queues, queue pairs and shared receive queues.
    pub(crate) cqs: HashMap<u32, Arc<Source>>,
    pub(crate) qps: HashMap<u32, Arc<Source>>,
    /// Open devices.
    contexts: Vec<Weak<Context>>,
}

static CARD: OnceLock<Result<Card, String>> = OnceLock::new();

/// Whether this process has a card at all, and not only numbers.
pub(crate) fn is_wanted() -> bool {
    std::env::var_os("MLX5_MODEL").is_some()
}

/// Function `index`.
pub(crate) fn open(index: usize) -> Result<&'static Arc<Host>, c_int> {
    let card = CARD.get_or_init(|| Card::new().inspect_err(|error| complain(error)));
    card.as_ref().ok().and_then(|card| card.functions.get(index)).ok_or(libc::ENODEV)
}

/// Executes a command with `tail` after its fixed part.
pub(crate) fn call<C: Command>(control: &PrmControl, input: &C, tail: &[u8]) -> mlx5_direct::Result<C::Out> {
    let mut out = C::Out::new_zeroed();
    control.execute(&[input.as_bytes(), tail].concat(), out.as_mut_bytes())?;
    Ok(out)
}

impl Card {
    fn new() -> Result<Self, String> {
        let config = preload::config()?;
        let model = preload::card(config.clone())?;
        let functions = (0..usize::from(config.ports)).map(|index| {
            let function = model.function(index).map_err(|error| error.to_string())?;
            Host::new(function, index, &config).map_err(|error| error.to_string())
        });
        let functions = functions.collect::<Result<_, _>>()?;
        // SAFETY: a function of the right type, which lives as long as this library.
        unsafe { libc::atexit(report) };
        Ok(Self { model, functions })
    }
}

impl Host {
    fn new(
        function: Arc<ModelFunction>,
        index: usize,
        config: &ModelConfig,
    ) -> mlx5_direct::Result<Arc<Self>> {
        let control = PrmControl::open(Arc::clone(&function) as _, &OpenOptions::default())?;
        // A subnet manager fills InfiniBand's table.
        let ethernet = address::link_layer(config) == LinkLayer::Ethernet;
        for (at, entry) in tree::gids(index, config.port_mac(index as u8)).into_iter().filter(|_| ethernet) {
            control.set_gid(1, at, Some(&entry))?;
        }
        let query = QueryHcaCapIn::request().with_op_mod(CapType::GENERAL.op_mod(true));
        let mut out = [0; 16 + 4096];
        control.execute(query.as_bytes(), &mut out)?;
        let caps = *out[16..].first_chunk().expect("the group begins there");
        let n_vectors = control.device_attr().num_comp_vectors as usize;
        let host = Arc::new(Self {
            function,
            caps: CmdHcaCap::from_bytes(caps),
            config: config.clone(),
            vectors: Mutex::new(vec![None; n_vectors]),
            sources: Mutex::default(),
            control,
        });
        let listener = Arc::clone(&host);
        let spawned = thread::Builder::new().name("uverbs-async".into()).spawn(move || listener.listen());
        spawned.map_err(|source| Error::Os { what: "starting a thread".into(), source })?;
        Ok(host)
    }

    pub(crate) fn attr(&self) -> &DeviceAttr {
        self.control.device_attr()
    }

    /// Who hears of events.
    pub(crate) fn sources(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an open device in.
    pub(crate) fn join(&self, context: &Arc<Context>) {
        let mut sources = self.sources();
        sources.contexts.retain(|context| context.strong_count() > 0);
        sources.contexts.push(Arc::downgrade(context));
    }

    fn contexts(&self) -> Vec<Arc<Context>> {
        self.sources().contexts.iter().filter_map(Weak::upgrade).collect()
    }

    /// The event queue of a completion vector.
    pub(crate) fn vector(self: &Arc<Self>, vector: u32) -> Result<ChannelId, c_int> {
        let mut vectors = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = vectors.get_mut(vector as usize).ok_or(libc::EINVAL)?;
        if let Some(channel) = slot {
            return Ok(channel.id());
        }
        let channel = self.control.create_comp_channel().map_err(refused)?;
        let (host, events) = (Arc::clone(self), Arc::clone(&channel));
        let spawned = thread::Builder::new().name(format!("uverbs-comp{vector}")).spawn(move || {
            // Ends with the device.
            while let Ok(fired) = events.wait(FOR_EVER) {
                // Under the lock: nothing is told of a queue that is gone.
                let sources = host.sources();
                if let Some(source) = fired.and_then(|cqn| sources.completions.get(&cqn.get())) {
                    source.complete();
                }
            }
        });
        spawned.map_err(|error| error.raw_os_error().unwrap_or(libc::EAGAIN))?;
        Ok(slot.insert(channel).id())
    }

    /// Tells programs of asynchronous events.
    fn listen(&self) {
        // Ends with the device.
        while let Ok(event) = self.control.next_async_event(FOR_EVER) {
            let Some(event) = event else { continue };
            let sources = self.sources();
            let told = match event {
                AsyncEvent::CqError { cqn, .. } => sources.cqs.get(&cqn.get()).zip(Some(event::CQ_ERR)),
                AsyncEvent::QpFatal { qpn } => sources.qps.get(&qpn.get()).zip(Some(event::QP_FATAL)),
                AsyncEvent::QpInvalidRequest { qpn } => {
                    sources.qps.get(&qpn.get()).zip(Some(event::QP_REQ_ERR))
                }
                AsyncEvent::QpAccess { qpn } => sources.qps.get(&qpn.get()).zip(Some(event::QP_ACCESS_ERR)),
                AsyncEvent::CommEst { qpn } => sources.qps.get(&qpn.get()).zip(Some(event::COMM_EST)),
                AsyncEvent::SqDrained { qpn } => sources.qps.get(&qpn.get()).zip(Some(event::SQ_DRAINED)),
                AsyncEvent::LastWqe { qpn } => {
                    sources.qps.get(&qpn.get()).zip(Some(event::QP_LAST_WQE_REACHED))
                }
                AsyncEvent::PortChange { port, up } => {
                    drop(sources);
                    let event_type = if up { event::PORT_ACTIVE } else { event::PORT_ERR };
                    let all = self.contexts();
                    all.iter().for_each(|context| context.tell(u64::from(port), event_type));
                    continue;
                }
                AsyncEvent::DeviceFatal(_) => {
                    drop(sources);
                    let all = self.contexts();
                    all.iter().for_each(|context| context.tell(0, event::DEVICE_FATAL));
                    continue;
                }
                _ => None,
            };
            if let Some((source, event_type)) = told {
                let record = AsyncEventDesc { element: source.element(), event_type, reserved: 0 };
                source.post(record.as_bytes());
            }
        }
    }
}

/// The process ends: what programs have left open is closed, as the kernel does, and the rules broken are told.
extern "C" fn report() {
    let Some(Ok(card)) = CARD.get() else { return };
    for host in &card.functions {
        host.contexts().iter().for_each(|context| context.close());
        if let Err(error) = host.control.close() {
            complain(&error.to_string());
        }
    }
    if let Err(error) = preload::report(&card.model, card.functions.iter().map(|host| &*host.function)) {
        complain(&error);
    }
}
