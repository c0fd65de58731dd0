//! What two ends have between them: one association outwards, and a few inwards, so that keys change without the loss
//! of a packet.
//!
//! ```text
//!              │ both ends know the keys of generation n + 1
//!    expect    │ the receiver takes packets of n and of n + 1
//!    renew     │ the sender seals with n + 1 from now on
//!              │ the first packet of n + 1 comes: n is taken for OVERLAP still, because some may be on their way
//!    retired   │ n is gone
//! ```
//!
//! Whoever agrees on keys says `expect` at one end before `renew` at the other. An association that is expected and
//! never used costs its memory alone, so a peer whose change of keys never comes holds up nothing.

use crate::inbound::{Inbound, Opened, Refused};
use crate::keys::{Keys, Spi};
use crate::lifetime::Lifetime;
use crate::outbound::{Outbound, SealError};
use crate::packet::{Arrived, classify};
use core::fmt;
use heddle_seam::time::{Duration, Instant};

/// The one before, the one in use, and the one that is expected.
const INBOUND_MAX: usize = 3;

/// How long packets of an association are taken after the first one of its successor: longer than any is on its way.
pub const OVERLAP: Duration = Duration::from_secs(60);

struct Slot {
    inbound: Inbound,
    /// When it goes, because a newer one is in use.
    retires_at: Option<Instant>,
}

/// The associations of two ends, as one of them has them.
pub struct Tunnel {
    lifetime: Lifetime,
    outbound: Outbound,
    /// The newest last.
    inbound: [Option<Slot>; INBOUND_MAX],
}

impl Tunnel {
    /// One with an association in each direction.
    pub fn new(now: Instant, outwards: (Spi, &Keys), inwards: (Spi, &Keys), lifetime: Lifetime) -> Self {
        let outbound = Outbound::new(now, outwards.0, outwards.1, lifetime);
        let mut tunnel = Tunnel { lifetime, outbound, inbound: [const { None }; INBOUND_MAX] };
        tunnel.expect(inwards.0, inwards.1);
        tunnel
    }

    /// Takes packets of another association, too, from now on. Returns the oldest one, if that had to make room.
    pub fn expect(&mut self, spi: Spi, keys: &Keys) -> Option<Spi> {
        self.inbound.rotate_left(1);
        let slot = Slot { inbound: Inbound::new(spi, keys, self.lifetime), retires_at: None };
        // After the turn the oldest place is the last one. Places that are free are the oldest.
        let oldest = self.inbound[INBOUND_MAX - 1].replace(slot);
        oldest.map(|slot| slot.inbound.spi())
    }

    /// Seals with another association from now on.
    pub fn renew(&mut self, now: Instant, spi: Spi, keys: &Keys) {
        self.outbound = Outbound::new(now, spi, keys, self.lifetime);
    }

    /// Whether it is time to [`renew`](Tunnel::renew).
    pub fn is_short(&self, now: Instant) -> bool {
        self.outbound.is_short(now)
    }

    /// Whether the peer has turned to the newest association, so that it may soon want another one.
    pub fn is_newest_used(&self) -> bool {
        self.inbound[INBOUND_MAX - 1].as_ref().is_some_and(|slot| slot.inbound.is_used())
    }

    /// As [`Outbound::seal`].
    ///
    /// # Errors
    /// As there.
    pub fn seal(
        &mut self,
        now: Instant,
        next_header: u8,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), SealError> {
        self.outbound.seal(now, next_header, payload, out)
    }

    /// As [`Inbound::open`], by whichever association the packet is of.
    ///
    /// # Errors
    /// As there.
    pub fn open<'a>(&mut self, now: Instant, packet: &'a mut [u8]) -> Result<Option<Opened<'a>>, Refused> {
        let Arrived::Esp(spi) = classify(packet) else { return Err(Refused::NotOurs) };
        let of_it = |slot: &Option<Slot>| slot.as_ref().is_some_and(|slot| slot.inbound.spi() == spi);
        let place = self.inbound.iter().position(of_it).ok_or(Refused::NotOurs)?;
        let (older, rest) = self.inbound.split_at_mut(place);
        let Some(slot) = rest.first_mut().and_then(Option::as_mut) else { return Err(Refused::NotOurs) };
        let opened = slot.inbound.open(now, packet)?;
        for slot in older.iter_mut().flatten() {
            slot.retires_at.get_or_insert(now + OVERLAP);
        }
        Ok(opened)
    }

    /// Forgets an association that has had its time, if there is one.
    pub fn retired(&mut self, now: Instant) -> Option<Spi> {
        let is_due = |slot: &Slot| slot.retires_at.is_some_and(|at| at <= now);
        let slot = self.inbound.iter_mut().find(|slot| slot.as_ref().is_some_and(is_due))?.take();
        slot.map(|slot| slot.inbound.spi())
    }

    /// When [`Tunnel::retired`] will have something to say. Nothing need be renewed but before a packet is sealed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.inbound.iter().flatten().filter_map(|slot| slot.retires_at).min()
    }

    /// The associations inwards, the newest last.
    pub fn inbound_spis(&self) -> impl Iterator<Item = Spi> + '_ {
        self.inbound.iter().flatten().map(|slot| slot.inbound.spi())
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").field("outbound", &self.outbound).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::TCP;

    const LIFETIME: Lifetime =
        Lifetime { packets_max: 100, bytes_max: u64::MAX, age_max: Duration::from_secs(3600) };

    fn generation(number: u32) -> (Spi, Keys) {
        let spi = Spi::new(1000 + number).expect("an SPI");
        (spi, Keys::from_material(&[number as u8; 20]))
    }

    /// Both ends know the next generation before it is wanted, as they would by a chain of secrets.
    #[test]
    fn keys_change_without_losing_a_packet() {
        let mut now = Instant::ZERO;
        let spi = |number| generation(number).0;
        let (of_server, server_keys) = generation(200);
        let (first, first_keys) = generation(0);
        let mut client = Tunnel::new(now, (first, &first_keys), (of_server, &server_keys), LIFETIME);
        let mut server = Tunnel::new(now, (of_server, &server_keys), (first, &first_keys), LIFETIME);
        let (next, keys) = generation(1);
        assert_eq!(server.expect(next, &keys), None);
        let (mut sent, mut known) = (0, 1);
        let mut on_its_way: Vec<Vec<u8>> = Vec::new();
        for round in 0..1000_u32 {
            if client.is_short(now) {
                sent += 1;
                let (spi, keys) = generation(sent);
                client.renew(now, spi, &keys);
            }
            let mut packet = Vec::new();
            client.seal(now, TCP, &round.to_be_bytes(), &mut packet).expect("renewed in time");
            on_its_way.push(packet);
            // Ten are on their way, and the newest comes first.
            if on_its_way.len() == 10 {
                for mut packet in on_its_way.drain(..).rev() {
                    assert!(server.open(now, &mut packet).expect("none is lost").is_some());
                }
                if server.is_newest_used() {
                    known += 1;
                    let (next, keys) = generation(known);
                    server.expect(next, &keys);
                }
            }
            now += Duration::from_secs(1);
            while server.retired(now).is_some() {}
        }
        assert!(sent >= 12 && known == sent + 1, "{sent} {known}");
        now += OVERLAP;
        assert!(server.retired(now).is_some());
        assert_eq!(server.inbound_spis().collect::<Vec<_>>(), [spi(sent), spi(known)]);
    }

    #[test]
    fn an_association_goes_when_its_successor_was_used_for_a_while() {
        let mut now = Instant::ZERO;
        let generations: Vec<_> = (0..5).map(generation).collect();
        let [zero, one, two, three, other] = &generations[..] else { panic!("five") };
        let mut server = Tunnel::new(now, (other.0, &other.1), (zero.0, &zero.1), LIFETIME);
        server.expect(one.0, &one.1);
        let packets = |now, (spi, keys): &(Spi, Keys)| {
            let mut outbound = Outbound::new(now, *spi, keys, LIFETIME);
            [(); 3].map(|()| {
                let mut packet = Vec::new();
                outbound.seal(now, TCP, b"x", &mut packet).expect("a new one");
                packet
            })
        };
        let [mut old, mut late, mut too_late] = packets(now, zero);
        let [mut new, ..] = packets(now, one);
        assert!(server.open(now, &mut old).is_ok() && !server.is_newest_used());
        assert_eq!(server.poll_timeout(), None);
        assert!(server.open(now, &mut new).is_ok() && server.is_newest_used());
        assert_eq!(server.poll_timeout(), Some(now + OVERLAP));
        now += OVERLAP - Duration::from_nanos(1);
        assert!(server.retired(now).is_none() && server.open(now, &mut late).is_ok());
        now += Duration::from_nanos(1);
        assert_eq!((server.retired(now), server.retired(now)), (Some(zero.0), None));
        assert_eq!(server.open(now, &mut too_late), Err(Refused::NotOurs));
        // A fourth one has the oldest make room.
        assert_eq!((server.expect(two.0, &two.1), server.expect(three.0, &three.1)), (None, None));
        assert_eq!(server.expect(other.0, &other.1), Some(one.0));
    }
}
