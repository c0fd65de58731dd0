//! Channels whose peers take nothing of what waits for them, for 50 minutes, as in stock Tor: ten times
//! `KeepalivePeriod`; or leave many DESTROY cells unread for a minute (`farewells`).
//!
//! A kernel that acknowledges and reads nothing keeps a TCP connection for ever, and with it a channel, its circuits
//! and the cells that wait.

use super::carrier::Carrier;
use crate::keys::LinkKey;
use crate::shard::Relay;
use heddle_proto::channel::ChannelError;
use heddle_seam::time::{Duration, Instant};

const STUCK_TIMEOUT: Duration = Duration::from_secs(3000);

impl Carrier {
    fn is_stuck(&self, now: Instant) -> bool {
        self.stuck_since.is_some_and(|since| now.since(since) >= STUCK_TIMEOUT)
    }
}

impl Relay {
    /// Once a second: channels end that are stuck.
    pub(crate) fn end_stuck_channels(&mut self, now: Instant) {
        let stuck = self
            .carriers
            .iter()
            .filter(|(link, carrier)| carrier.is_stuck(now) || self.core.leaves_farewells(*link));
        let stuck: Vec<LinkKey> = stuck.map(|(link, _)| link).collect();
        stuck.into_iter().for_each(|link| self.end_channel(now, link, ChannelError::Stuck));
    }
}
