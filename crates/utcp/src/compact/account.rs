//! A flow in the books of its session's window.

/// What a session's window knows of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    pub(super) in_flight: u64,
    pub(super) ready_bytes: u64,
    pub(super) is_waiting: bool,
    pub(super) is_repairing: bool,
}
