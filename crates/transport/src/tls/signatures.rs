//! When a responder may answer a ClientHello.
//!
//! The answer costs a signature with RSA, which rustls makes within the call that reads the ClientHello, so on a
//! worker's thread ([`super::signing`]). Many at once would keep workers from circuits' handshakes, so all responders
//! of a transport share a budget: a few at once, and then so many a second. Who is over it waits with its ClientHello
//! unread.
//!
//! Turns are fair between sites, and in a site between its networks ([`super::rounds`]): however many connections
//! somebody has waiting, from however many networks of one site, another's first comes before all but one of them.

use super::rounds::{Place, Rounds};
use core::net::{IpAddr, SocketAddr};
use heddle_proto::addr::AddrKey;
use heddle_seam::time::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Turns that may be had at once.
const BURST: u32 = 4;
/// From one turn to the next, on average: a signature takes 0.3 ms, so they take a sixth of a worker at most.
const PERIOD: Duration = Duration::from_millis(2);
/// The budget of a transport. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Signatures(Arc<Mutex<Queue>>);

/// A place in the queue, which is left when this is dropped.
pub(super) struct Turn {
    queue: Signatures,
    peer: IpAddr,
    place: Place,
}

#[derive(Default)]
struct Queue {
    /// A place for each who waits: at most as many as there are handshakes of channels, which the relay bounds.
    sites: Rounds<AddrKey>,
    of_site: BTreeMap<AddrKey, Site>,
    /// When the budget is whole again: each turn moves it on by a [`PERIOD`].
    whole_at: Instant,
}

/// What a site has: places among the sites, and as many of its networks that wait for these in an order of their own.
#[derive(Default)]
struct Site {
    places: BTreeSet<Place>,
    networks: Rounds<AddrKey>,
}

impl Signatures {
    /// Joins the queue behind the turns that `peer` waits for.
    pub(super) fn join(&self, peer: SocketAddr) -> Turn {
        let place = self.lock().join(peer.ip());
        Turn { queue: self.clone(), peer: peer.ip(), place }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Each change is whole, whatever became of a thread.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Uses the turn if it has come; fails with the time to ask again.
    pub(super) fn poll(&self, now: Instant) -> Result<(), Instant> {
        self.queue.lock().poll(self.peer, self.place, now)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.queue.lock().leave(self.peer, self.place);
    }
}

impl Queue {
    fn join(&mut self, peer: IpAddr) -> Place {
        let key = AddrKey::site_of(peer);
        let site = self.of_site.entry(key).or_default();
        site.places.insert(self.sites.join(key));
        site.networks.join(AddrKey::of(peer))
    }

    /// `place` is one of the site's networks; the place among the sites that it waits for is the one as far from the
    /// first.
    fn poll(&mut self, peer: IpAddr, place: Place, now: Instant) -> Result<(), Instant> {
        let key = AddrKey::site_of(peer);
        let Some(site) = self.of_site.get_mut(&key) else { return Ok(()) };
        let Some(&among_sites) = site.places.iter().nth(site.networks.ahead(place)) else { return Ok(()) };
        let whole_at = self.whole_at.max(now);
        let ahead = u32::try_from(self.sites.ahead(among_sites)).unwrap_or(u32::MAX);
        let due = whole_at + PERIOD * ahead;
        if due > now + PERIOD * (BURST - 1) {
            return Err(due - PERIOD * (BURST - 1));
        }
        self.whole_at = whole_at + PERIOD;
        site.places.remove(&among_sites);
        self.sites.serve(key, among_sites);
        site.networks.serve(AddrKey::of(peer), place);
        self.of_site.retain(|other, site| *other != key || !site.places.is_empty());
        Ok(())
    }

    /// The site gives up the last of its places, so that who is behind in it moves on.
    fn leave(&mut self, peer: IpAddr, place: Place) {
        let key = AddrKey::site_of(peer);
        let Some(site) = self.of_site.get_mut(&key) else { return };
        if !site.networks.leave(AddrKey::of(peer), place) {
            return;
        }
        if let Some(last) = site.places.pop_last() {
            self.sites.leave(key, last);
        }
        if site.places.is_empty() {
            self.of_site.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(addr: &str) -> SocketAddr {
        SocketAddr::new(addr.parse().expect("an address"), 9001)
    }

    /// After how many turns of `others` that wait already somebody's first turn comes.
    fn turns_before(others: &[SocketAddr], somebody: SocketAddr) -> usize {
        let signatures = Signatures::default();
        let mut now = Instant::ZERO;
        let mut waiting: Vec<Turn> = others.iter().map(|peer| signatures.join(*peer)).collect();
        let turn = signatures.join(somebody);
        let mut before = 0;
        while turn.poll(now).is_err() {
            let had = waiting.iter().position(|other| other.poll(now).is_ok());
            match had {
                Some(had) => {
                    drop(waiting.swap_remove(had));
                    before += 1;
                }
                None => now += PERIOD,
            }
            // The burst is used up by then.
            now += PERIOD;
        }
        before
    }

    #[test]
    fn an_address_with_many_connections_is_not_before_another() {
        let many = vec![at("192.0.2.1"); 1000];
        assert!(turns_before(&many, at("192.0.2.2")) <= BURST as usize + 1);
    }

    #[test]
    fn a_site_with_many_networks_is_not_before_another() {
        let many: Vec<_> = (0..1000).map(|network| at(&format!("2001:db8:1:{network:x}::1"))).collect();
        assert!(turns_before(&many, at("192.0.2.2")) <= BURST as usize + 1);
        assert!(turns_before(&many, at("2001:db8:2::1")) <= BURST as usize + 1);
    }

    #[test]
    fn in_a_site_a_network_with_many_connections_is_not_before_another() {
        let many = vec![at("2001:db8:1:1::1"); 1000];
        assert!(turns_before(&many, at("2001:db8:1:2::1")) <= BURST as usize + 1);
    }

    /// What is left in the queue when everybody has left: nothing.
    #[test]
    fn whoever_leaves_leaves_nothing() {
        let signatures = Signatures::default();
        let peers = ["192.0.2.1", "2001:db8:1:1::1", "2001:db8:1:2::1", "2001:db8:1:1::2"].map(at);
        let mut turns: Vec<Turn> = peers.iter().cycle().take(40).map(|peer| signatures.join(*peer)).collect();
        while !turns.is_empty() {
            drop(turns.swap_remove(turns.len() / 2));
        }
        let queue = signatures.lock();
        assert!(queue.of_site.is_empty() && queue.sites.is_empty());
    }
}
