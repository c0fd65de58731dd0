//! What is sent on one wire, for a plan that views it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use heddle_netem::pcapng::Place;
use heddle_seam::time::Instant;
use heddle_sim::{HostId, WireWatch};

use crate::capture::Capture;

/// What is kept, until it is taken.
pub(super) type Kept = Rc<RefCell<Option<Capture>>>;

/// Keeps the packets that two hosts send each other.
pub(super) struct Tap {
    ends: [HostId; 2],
    kept: Kept,
}

impl Tap {
    /// On the wire between these hosts, and where what it keeps is taken.
    pub(super) fn new(ends: [HostId; 2]) -> (Tap, Kept) {
        let kept = Rc::new(RefCell::new(Some(Capture::default())));
        (Tap { ends, kept: Rc::clone(&kept) }, kept)
    }
}

impl WireWatch for Tap {
    fn wants(&self, from: HostId, to: HostId) -> bool {
        let [one, other] = self.ends;
        [(one, other), (other, one)].contains(&(from, to)) && self.kept.borrow().is_some()
    }

    fn on_packet(&mut self, at: Instant, from: HostId, _to: HostId, place: Place, packet: &[u8]) {
        if let (Place::Sent, Some(capture)) = (place, &mut *self.kept.borrow_mut()) {
            capture.add(Duration::from_nanos(at.as_nanos()), from == self.ends[0], packet);
        }
    }
}
