//! The security associations of a connection in both directions, and the keys that come after theirs.

use super::chain::{Chain, Root};
use heddle_esp::{Lifetime, Opened, Refused, Spi, Tunnel};
use heddle_proto::channel::Role;
use heddle_seam::time::Instant;

pub(super) struct Associations {
    tunnel: Tunnel,
    /// The generations of keys that come next.
    outwards: Chain,
    inwards: Chain,
    /// Associations inwards that are new, with true, or gone.
    news: Vec<(Spi, bool)>,
}

impl Associations {
    /// Those of the side with this role.
    pub(super) fn new(now: Instant, root: &Root, role: Role, lifetime: Lifetime) -> Self {
        let (mut outwards, mut inwards) = (root.chain_to(role.other()), root.chain_to(role));
        let ((to, their_keys), (from, our_keys)) = (outwards.next(), inwards.next());
        let mut tunnel = Tunnel::new(now, (to, &their_keys), (from, &our_keys), lifetime);
        let (next, next_keys) = inwards.next();
        tunnel.expect(next, &next_keys);
        Associations { tunnel, outwards, inwards, news: vec![(from, true), (next, true)] }
    }

    /// Those inwards.
    pub(super) fn inbound_spis(&self) -> impl Iterator<Item = Spi> + '_ {
        self.tunnel.inbound_spis()
    }

    /// Those inwards that are new, with true, or gone since this was last asked.
    pub(super) fn take_news(&mut self) -> Vec<(Spi, bool)> {
        core::mem::take(&mut self.news)
    }

    /// Has fresh keys for the next packet, if those in use run short.
    pub(super) fn renew(&mut self, now: Instant) {
        if self.tunnel.is_short(now) {
            let (spi, keys) = self.outwards.next();
            self.tunnel.renew(now, spi, &keys);
        }
    }

    /// Appends a packet to `out`; says whether it could be made.
    pub(super) fn seal(&mut self, now: Instant, next_header: u8, payload: &[u8], out: &mut Vec<u8>) -> bool {
        self.tunnel.seal(now, next_header, payload, out).is_ok()
    }

    /// As [`Tunnel::open`]. [`Associations::turn`] must follow.
    pub(super) fn open<'a>(
        &mut self,
        now: Instant,
        packet: &'a mut [u8],
    ) -> Result<Option<Opened<'a>>, Refused> {
        self.tunnel.open(now, packet)
    }

    /// Gets ready for the peer's next keys, and forgets old ones.
    pub(super) fn turn(&mut self, now: Instant) {
        if self.tunnel.is_newest_used() {
            let (spi, keys) = self.inwards.next();
            let gone = self.tunnel.expect(spi, &keys);
            self.news.push((spi, true));
            self.news.extend(gone.map(|spi| (spi, false)));
        }
        while let Some(spi) = self.tunnel.retired(now) {
            self.news.push((spi, false));
        }
    }

    /// When old keys are to be forgotten, by [`Associations::turn`].
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.tunnel.poll_timeout()
    }
}
