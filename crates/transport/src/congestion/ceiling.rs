//! As how many TCPs a connection contends at most, as the consensus has it.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use heddle_proto::endpoint::CongestionParams;
use std::sync::Arc;

/// The most TCPs that one connection stands for beside others, however many circuits it carries, because a client may
/// open as many as it likes. Browsers open six to one server.
pub(super) const TCPS_MAX: u8 = CongestionParams::TCPS_MAX;

/// What an endpoint has in common with the controllers of its connections, of those to come, too. All are called by one
/// thread; it is atomic because quinn-proto wants controllers to be `Sync`.
#[derive(Clone, Debug)]
pub(crate) struct Ceiling(Arc<AtomicU8>);

impl Ceiling {
    pub(crate) fn set(&self, params: CongestionParams) {
        self.0.store(params.tcps_max.clamp(1, TCPS_MAX), Relaxed);
    }

    pub(super) fn tcps(&self) -> f64 {
        f64::from(self.0.load(Relaxed))
    }

    /// Whether a connection is to be one flow as TCP has them, and nothing else.
    pub(super) fn is_single(&self) -> bool {
        self.0.load(Relaxed) == 1
    }
}

impl Default for Ceiling {
    fn default() -> Self {
        Ceiling(Arc::new(AtomicU8::new(CongestionParams::default().tcps_max)))
    }
}
