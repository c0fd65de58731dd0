//! The shard's channels by their links and by their sockets, and when each wants to be called.

use super::carrier::Carrier;
use crate::core::Core;
use crate::keys::LinkKey;
use heddle_seam::node::SocketId;
use heddle_seam::time::Instant;
use slotmap::SecondaryMap;
use std::collections::{BTreeMap, BTreeSet};

/// See the [module](self).
#[derive(Default)]
pub(super) struct Carriers {
    carriers: SecondaryMap<LinkKey, Timed>,
    links: BTreeMap<SocketId, LinkKey>,
    /// At most one entry a channel.
    timers: BTreeSet<(Instant, SocketId)>,
}

/// A channel, and when it is to be called.
struct Timed {
    carrier: Carrier,
    timer: Option<Instant>,
}

impl Carriers {
    /// A channel is there, on a link of its own.
    pub fn insert(&mut self, link: LinkKey, carrier: Carrier) {
        self.links.insert(carrier.socket(), link);
        self.carriers.insert(link, Timed { carrier, timer: None });
    }

    /// A channel is over.
    pub fn remove(&mut self, core: &mut Core, link: LinkKey) -> Option<Carrier> {
        let Timed { carrier, timer } = self.carriers.remove(link)?;
        self.links.remove(&carrier.socket());
        carrier.tell_gone(core);
        if let Some(at) = timer {
            self.timers.remove(&(at, carrier.socket()));
        }
        Some(carrier)
    }

    pub fn len(&self) -> usize {
        self.carriers.len()
    }

    /// The link of a socket, if it is a channel's.
    pub fn link_of(&self, socket: SocketId) -> Option<LinkKey> {
        self.links.get(&socket).copied()
    }

    pub fn get(&self, link: LinkKey) -> Option<&Carrier> {
        self.carriers.get(link).map(|timed| &timed.carrier)
    }

    pub fn get_mut(&mut self, link: LinkKey) -> Option<&mut Carrier> {
        self.carriers.get_mut(link).map(|timed| &mut timed.carrier)
    }

    pub fn iter(&self) -> impl Iterator<Item = (LinkKey, &Carrier)> {
        self.carriers.iter().map(|(link, timed)| (link, &timed.carrier))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Carrier> {
        self.carriers.values_mut().map(|timed| &mut timed.carrier)
    }

    /// Gives a channel the cells that it can send promptly, and its bytes to the driver. Returns its socket.
    pub fn flush(
        &mut self,
        core: &mut Core,
        now: Instant,
        link: LinkKey,
        out: &mut Vec<u8>,
    ) -> Option<SocketId> {
        let Timed { carrier, timer } = self.carriers.get_mut(link)?;
        carrier.flush(core, now, link, out);
        let socket = carrier.socket();
        // A timer that moved on is left where it is; it looks again when it fires.
        if let Some(at) = carrier.channel().poll_timeout()
            && timer.is_none_or(|set| at < set)
        {
            if let Some(set) = timer.replace(at) {
                self.timers.remove(&(set, socket));
            }
            self.timers.insert((at, socket));
        }
        Some(socket)
    }

    /// When a channel is to be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// A channel that is to be called now.
    pub fn pop_due(&mut self, now: Instant) -> Option<LinkKey> {
        let &(_, socket) = self.timers.first().filter(|(at, _)| *at <= now)?;
        self.timers.pop_first();
        let link = self.link_of(socket)?;
        self.carriers.get_mut(link)?.timer = None;
        Some(link)
    }
}
