//! Asynchronous events: what each says, by the name of verbs or of the device.

use mlx5_direct::mlx5::eqe::EventType;

/// An asynchronous event of verbs and of the device.
#[derive(Debug)]
pub struct AsyncEvent {
    /// The device's event, where there is one of the same meaning.
    pub kind: Option<EventType>,
    /// Its text in libibverbs (`ibv_event_type_str`).
    pub text: &'static str,
    /// Its name in `verbs.h`.
    pub name: &'static str,
    /// What it says.
    pub says: &'static str,
    /// What to look at.
    pub check: &'static str,
}

/// Every event of libibverbs.
pub const EVENTS: &[AsyncEvent] = &[
    event(
        Some(EventType::CQ_ERROR),
        "CQ error",
        "IBV_EVENT_CQ_ERR",
        "the completion queue is dead: it overflowed, or the device may not write it",
        "the kernel's line with its CQN tells which: syndrome 1 is an overrun, 2 an access violation",
    ),
    event(
        Some(EventType::WQ_CATAS_ERROR),
        "local work queue catastrophic error",
        "IBV_EVENT_QP_FATAL",
        "the queue is dead: the device could not go on with it",
        "error CQEs of that queue just before, the kernel log of the same second",
    ),
    event(
        Some(EventType::WQ_INVAL_REQ_ERROR),
        "invalid request local work queue error",
        "IBV_EVENT_QP_REQ_ERR",
        "a peer sent a request that this queue cannot take: the peer sees a remote invalid request error",
        "message and MTU sizes, what operations the queue allows, the peer's log",
    ),
    event(
        Some(EventType::WQ_ACCESS_ERROR),
        "local access violation work queue error",
        "IBV_EVENT_QP_ACCESS_ERR",
        "a peer's request reached memory that its key does not open: the peer sees a remote access error",
        "the rkey, address and length that the peer used, and whether the memory is still registered for it",
    ),
    event(
        Some(EventType::COMM_EST),
        "communication established",
        "IBV_EVENT_COMM_EST",
        "a packet came before the queue was ready to send; no error",
        "nothing",
    ),
    event(
        Some(EventType::SQ_DRAINED),
        "send queue drained",
        "IBV_EVENT_SQ_DRAINED",
        "the send queue is drained; no error",
        "nothing",
    ),
    event(
        Some(EventType::PATH_MIG),
        "path migrated",
        "IBV_EVENT_PATH_MIG",
        "the connection went over to its other path",
        "why the first path failed",
    ),
    event(
        Some(EventType::PATH_MIG_FAILED),
        "path migration request error",
        "IBV_EVENT_PATH_MIG_ERR",
        "the other path could not be taken",
        "both paths",
    ),
    event(
        Some(EventType::INTERNAL_ERROR),
        "local catastrophic error",
        "IBV_EVENT_DEVICE_FATAL",
        "the device failed as a whole; nothing works until it is reset",
        "the health lines of the kernel log: synd and ext_synd",
    ),
    event(
        Some(EventType::PORT_CHANGE),
        "port active",
        "IBV_EVENT_PORT_ACTIVE",
        "the port came up; no error",
        "why it was down before",
    ),
    event(
        Some(EventType::PORT_CHANGE),
        "port error",
        "IBV_EVENT_PORT_ERR",
        "the port went down",
        "cable, switch port, ibstat or ethtool, mlxlink",
    ),
    event(
        Some(EventType::PORT_CHANGE),
        "LID change",
        "IBV_EVENT_LID_CHANGE",
        "the subnet manager gave the port another LID: paths held by applications are stale",
        "the subnet manager's log",
    ),
    event(
        Some(EventType::PORT_CHANGE),
        "P_Key change",
        "IBV_EVENT_PKEY_CHANGE",
        "the partition table changed",
        "the subnet manager's partitions",
    ),
    event(
        None,
        "SM change",
        "IBV_EVENT_SM_CHANGE",
        "another subnet manager took over",
        "the subnet manager's log",
    ),
    event(
        Some(EventType::SRQ_CATAS_ERROR),
        "SRQ catastrophic error",
        "IBV_EVENT_SRQ_ERR",
        "the shared receive queue is dead, and with it every queue on it",
        "receive WQEs: keys and lengths",
    ),
    event(
        Some(EventType::SRQ_RQ_LIMIT),
        "SRQ limit reached",
        "IBV_EVENT_SRQ_LIMIT_REACHED",
        "the shared receive queue runs low; no error yet",
        "whether receives are posted fast enough",
    ),
    event(
        Some(EventType::SRQ_LAST_WQE),
        "last WQE reached",
        "IBV_EVENT_QP_LAST_WQE_REACHED",
        "a queue in error, attached to a shared receive queue, has used its last receive",
        "the error before it",
    ),
    event(
        Some(EventType::PORT_CHANGE),
        "client reregistration",
        "IBV_EVENT_CLIENT_REREGISTER",
        "the subnet manager asks everyone to register again",
        "the subnet manager's log",
    ),
    event(
        None,
        "GID table change",
        "IBV_EVENT_GID_CHANGE",
        "addresses of the port changed: GID indexes held by applications may be empty now",
        "show_gids; re-resolve the GID index",
    ),
    event(
        Some(EventType::WQ_CATAS_ERROR),
        "WQ fatal",
        "IBV_EVENT_WQ_FATAL",
        "the work queue is dead",
        "error CQEs of that queue just before",
    ),
    event(
        None,
        "Device link speed change",
        "IBV_EVENT_DEVICE_SPEED_CHANGE",
        "the link changed its speed",
        "mlxlink, ethtool",
    ),
];

const fn event(
    kind: Option<EventType>,
    text: &'static str,
    name: &'static str,
    says: &'static str,
    check: &'static str,
) -> AsyncEvent {
    AsyncEvent { kind, text, name, says, check }
}

/// The event with a text or name of libibverbs, in whatever case.
pub fn event_by_text(text: &str) -> Option<&'static AsyncEvent> {
    EVENTS.iter().find(|event| event.text.eq_ignore_ascii_case(text) || event.name.eq_ignore_ascii_case(text))
}

/// The first event of verbs that a device's event becomes.
pub fn event_of_type(kind: EventType) -> Option<&'static AsyncEvent> {
    EVENTS.iter().find(|event| event.kind == Some(kind))
}

/// Which sensors a temperature warning names: a bit each, 128 in all.
pub fn sensors(msb: u64, lsb: u64) -> Vec<u32> {
    let bits = u128::from(msb) << 64 | u128::from(lsb);
    (0..128).filter(|bit| bits >> bit & 1 == 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sensors_count_from_the_lowest_bit_of_lsb() {
        assert_eq!(sensors(0, 0x8000_0000_0000_0001), [0, 63]);
        assert_eq!(sensors(1, 0), [64]);
        assert!(sensors(0, 0).is_empty());
    }
}
