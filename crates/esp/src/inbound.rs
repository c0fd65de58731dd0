//! An association from the peer.
//!
//! A packet is refused by the first of these that it fails, so that what costs most comes last:
//!
//! 1. the SPI (RFC 4303, section 3.4.2);
//! 2. the length;
//! 3. the replay window, with the half of the sequence number that is not sent guessed by it (section 3.4.3);
//! 4. the integrity check value (section 3.4.4.2): from here on the packet is the peer's;
//! 5. the padding.

use crate::cipher::{Cipher, aad};
use crate::keys::{Keys, Spi};
use crate::lifetime::{Lifetime, Used};
use crate::packet::{Arrived, DUMMY, HEADER_LEN, TRAILER_LEN, classify};
use crate::window::{Stale, Window};
use core::fmt;
use heddle_seam::time::Instant;

/// Why a packet was refused. All but [`Refused::Malformed`] may be a stranger's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is no packet of ESP, or of no association here.
    NotOurs,
    /// A packet of this number came before.
    Replayed,
    /// No packet has this number.
    Impossible,
    /// The association's lifetime is over.
    Expired,
    /// It was not sealed with this association's keys, or was changed on the way; or it is older than the replay
    /// window, which lets its number be taken for another one.
    Forged,
    /// It is the peer's, and its padding is not as it must be.
    Malformed,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::NotOurs => "it belongs to no association",
            Refused::Replayed => "it came before",
            Refused::Impossible => "no packet has such a number",
            Refused::Expired => "the association's lifetime is over",
            Refused::Forged => "it is not authentic",
            Refused::Malformed => "its padding is wrong",
        })
    }
}

impl core::error::Error for Refused {}

impl From<Stale> for Refused {
    fn from(stale: Stale) -> Self {
        match stale {
            Stale::Replayed => Refused::Replayed,
            Stale::Impossible => Refused::Impossible,
        }
    }
}

/// What was in a packet.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened<'a> {
    pub next_header: u8,
    pub payload: &'a [u8],
}

/// An association from the peer: it opens.
pub struct Inbound {
    spi: Spi,
    cipher: Cipher,
    window: Window,
    lifetime: Lifetime,
    /// Since its first packet, because one that waits for the peer to turn to it does not age.
    used: Option<Used>,
}

impl Inbound {
    /// `keys` must be this association's alone.
    pub fn new(spi: Spi, keys: &Keys, lifetime: Lifetime) -> Self {
        Inbound { spi, cipher: Cipher::new(keys), window: Window::new(), lifetime, used: None }
    }

    pub fn spi(&self) -> Spi {
        self.spi
    }

    /// Opens a packet in place. `None` is a dummy, which says nothing but that the peer is there.
    ///
    /// # Errors
    /// If it is not to be believed; then the bytes are of no use any more.
    pub fn open<'a>(&mut self, now: Instant, packet: &'a mut [u8]) -> Result<Option<Opened<'a>>, Refused> {
        if classify(packet) != Arrived::Esp(self.spi) {
            return Err(Refused::NotOurs);
        }
        let len = packet.len();
        let (header, sealed) = packet.split_at_mut(HEADER_LEN);
        let (Some(low), Some(iv)) = (header[4..].first_chunk(), header.last_chunk()) else {
            return Err(Refused::NotOurs);
        };
        let sequence = self.window.infer(u32::from_be_bytes(*low))?;
        if self.used.is_some_and(|used| !used.allows(now, len)) {
            return Err(Refused::Expired);
        }
        let text = self.cipher.open(iv, &aad(self.spi, sequence), sealed).map_err(|_| Refused::Forged)?;
        self.window.mark(sequence);
        self.used.get_or_insert_with(|| Used::new(now, self.lifetime)).count(len);
        let (payload, next_header) = unpad(text).ok_or(Refused::Malformed)?;
        Ok((next_header != DUMMY).then_some(Opened { next_header, payload }))
    }

    /// Whether a packet came by it.
    pub fn is_used(&self) -> bool {
        self.used.is_some()
    }

    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, top: u64) {
        self.window = Window::at(top);
    }

    /// As if all numbers up to some below this one had come, if it is too far off to be inferred.
    #[cfg(test)]
    pub(crate) fn skip_to_reach(&mut self, sequence: u64) {
        if !self.window.infer(sequence as u32).is_ok_and(|inferred| inferred == sequence) {
            self.skip_to(sequence - 1000);
        }
    }
}

/// The payload, and the next header behind it.
fn unpad(text: &[u8]) -> Option<(&[u8], u8)> {
    let (rest, [pad_len, next_header]) = text.split_last_chunk::<TRAILER_LEN>()?;
    let payload_len = rest.len().checked_sub(usize::from(*pad_len))?;
    let (payload, padding) = rest.split_at(payload_len);
    // The receiver should look (RFC 4303, section 2.4).
    let is_right = padding.iter().zip(1..).all(|(byte, expected): (&u8, u8)| *byte == expected);
    is_right.then_some((payload, *next_header))
}

impl fmt::Debug for Inbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbound").field("spi", &self.spi).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{TCP, sealed_len};
    use crate::{Outbound, SealError};
    use heddle_seam::time::Duration;

    const NOW: Instant = Instant::ZERO;

    fn pair(lifetime: Lifetime) -> (Outbound, Inbound) {
        let spi = Spi::new(0x1234_5678).expect("an SPI");
        let keys = Keys::from_material(&[7; 20]);
        (Outbound::new(NOW, spi, &keys, lifetime), Inbound::new(spi, &keys, lifetime))
    }

    fn sealed(outbound: &mut Outbound, payload: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        outbound.seal(NOW, TCP, payload, &mut packet).expect("it may seal");
        packet
    }

    /// The first two packets of draft-mcgrew-gcm-test-01 with sequence numbers of 64 bits, and how long the IPv4
    /// packets in them are. Their next header is 1.
    #[test]
    fn published_packets_are_opened() {
        let vectors = [
            (
                "4c80cdefbb5d10da906ac73c3613a6342e443b68",
                0x8765_4321_0000_0000_u64,
                "00004321000000004956ed7e3b244cfe\
                 fecf537e729d5b07dc30df528dd22b768d1b98736696a6fd348509fa13ceac34cfa2436f14a3f3cf65925bf1f4a13c5d\
                 15b21e1884f5ff6247aeabb786b93bce61bc17d768fd9732459018148f6cbe722fd04796562dfdb4",
                68,
            ),
            (
                "abbccddef00112233445566778899aabdecaf888",
                1,
                "0000010000000001cafedebaceface74\
                 18a6fd42f72cbf4ab2a2ea901f73d814e3e7f243d95412e1c349c1d2fbec168f9190feebaf2cb01984e65863965d7472\
                 b79da345e0e780191f0d2f0e0f496c226f2127b27db35724e7845d68651f57e65f354f75ff17015769623436",
                73,
            ),
        ];
        for (material, sequence, packet, inner_len) in vectors {
            let material = hex::decode(material).expect("hex");
            let keys = Keys::from_material(material.as_slice().try_into().expect("20 bytes"));
            let mut packet = hex::decode(packet).expect("hex");
            let Arrived::Esp(spi) = classify(&packet) else { panic!("it is a packet") };
            let mut inbound = Inbound::new(spi, &keys, Lifetime::default());
            inbound.skip_to(sequence - 1);
            let opened = inbound.open(NOW, &mut packet).expect("authentic").expect("no dummy");
            assert_eq!((opened.payload.len(), opened.payload[0]), (inner_len, 0x45));
            assert_eq!(opened.next_header, 1);
        }
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let (mut outbound, mut inbound) = pair(Lifetime::default());
        let packet = sealed(&mut outbound, b"a segment of no length to speak of");
        for bit in 0..packet.len() * 8 {
            let mut bent = packet.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            let refused = inbound.open(NOW, &mut bent).expect_err("a bit was flipped");
            let expected = if bit < 32 { Refused::NotOurs } else { Refused::Forged };
            // The number 1 with its only bit flipped is 0, which nobody sends.
            let expected = if bit == 7 * 8 { Refused::Impossible } else { expected };
            assert_eq!(refused, expected, "bit {bit}");
        }
        assert!(inbound.open(NOW, &mut packet.clone()).is_ok(), "none of them has moved the window");
    }

    #[test]
    fn lengths_and_cuts() {
        let (mut outbound, mut inbound) = pair(Lifetime::default());
        for len in 0..300 {
            let payload = vec![len as u8; len];
            let mut packet = sealed(&mut outbound, &payload);
            assert_eq!((packet.len(), packet.len() % 4), (sealed_len(len), 0));
            for cut in 0..packet.len() {
                assert!(inbound.open(NOW, &mut packet.clone()[..cut]).is_err(), "{cut} of {}", packet.len());
            }
            let opened = inbound.open(NOW, &mut packet).expect("authentic");
            assert_eq!(opened, Some(Opened { next_header: TCP, payload: &payload }));
        }
        let mut out = Vec::new();
        let too_long = vec![0; crate::packet::PAYLOAD_LEN_MAX + 1];
        assert_eq!(outbound.seal(NOW, TCP, &too_long, &mut out), Err(SealError::TooLong));
        outbound.seal(NOW, TCP, &too_long[1..], &mut out).expect("the longest");
        let opened = inbound.open(NOW, &mut out).expect("authentic").expect("no dummy");
        assert_eq!(opened.payload.len(), too_long.len() - 1);
    }

    #[test]
    fn numbers_pass_the_low_half_and_end_at_the_last_one() {
        let (mut outbound, mut inbound) = pair(Lifetime::default());
        for start in [u64::from(u32::MAX) - 3, (5 << 32) - 3, u64::MAX - 3] {
            outbound.skip_to(start);
            inbound.skip_to(start);
            let mut packets: Vec<_> = (0..3).map(|_| sealed(&mut outbound, b"late")).collect();
            if start < u64::MAX - 3 {
                packets.extend((0..3).map(|_| sealed(&mut outbound, b"late")));
            }
            // Backwards, so that some are of the half before the newest.
            for packet in packets.iter_mut().rev() {
                let again = &mut packet.clone();
                assert!(inbound.open(NOW, packet).is_ok(), "after {start}");
                assert_eq!(inbound.open(NOW, again), Err(Refused::Replayed));
            }
        }
        let mut out = Vec::new();
        assert_eq!(outbound.seal(NOW, TCP, b"one too many", &mut out), Err(SealError::Exhausted));
        assert!(out.is_empty());
    }

    #[test]
    fn dummies_say_nothing_and_padding_is_looked_at() {
        let (mut outbound, mut inbound) = pair(Lifetime::default());
        let mut packet = Vec::new();
        outbound.seal(NOW, DUMMY, &[0; 100], &mut packet).expect("it may seal");
        assert_eq!(inbound.open(NOW, &mut packet), Ok(None));
        assert!(inbound.is_used());
        // What a peer with the right keys and wrong habits would send.
        let keys = Keys::from_material(&[7; 20]);
        for (sequence, text) in [(2_u64, [1, 3, 2, TCP]), (3, [1, 2, 3, TCP]), (4, [0, 0, 200, TCP])] {
            let mut text = text;
            let iv = sequence.to_be_bytes();
            let icv = Cipher::new(&keys).seal(&iv, &aad(inbound.spi(), sequence), &mut text);
            let spi = inbound.spi().get().to_be_bytes();
            let mut packet = [&spi[..], &iv[4..], &iv, &text, &icv].concat();
            assert_eq!(inbound.open(NOW, &mut packet), Err(Refused::Malformed), "{sequence}");
        }
    }

    #[test]
    fn lifetimes_end_both_directions() {
        let lifetime = Lifetime { packets_max: 4, bytes_max: 10_000, age_max: Duration::from_secs(100) };
        let (mut outbound, _) = pair(lifetime);
        let short: Vec<bool> = (0..4)
            .map(|_| {
                sealed(&mut outbound, b"x");
                outbound.is_short(NOW)
            })
            .collect();
        assert_eq!(short, [false, false, true, true]);
        assert_eq!(outbound.seal(NOW, TCP, b"x", &mut Vec::new()), Err(SealError::Expired));

        let (mut outbound, _) = pair(lifetime);
        assert_eq!(outbound.seal(NOW, TCP, &[0; 10_000], &mut Vec::new()), Err(SealError::Expired));
        sealed(&mut outbound, &[0; 8_000]);
        assert!(outbound.is_short(NOW));

        let (outbound, _) = pair(lifetime);
        let [before, at] = [74, 75].map(|s| outbound.is_short(NOW + Duration::from_secs(s)));
        assert_eq!((before, at), (false, true));

        // Who sends by other limits than we have is stopped by ours, counted from the first packet.
        let (mut outbound, _) = pair(Lifetime::default());
        let (_, mut inbound) = pair(lifetime);
        let late = NOW + Duration::from_secs(1_000_000);
        let mut packets: Vec<_> = (0..6).map(|_| sealed(&mut outbound, b"x")).collect();
        assert!(inbound.open(late, &mut packets[0]).is_ok());
        assert_eq!(inbound.open(late + lifetime.age_max, &mut packets[1].clone()), Err(Refused::Expired));
        let opened = packets[1..].iter_mut().map(|packet| inbound.open(late, packet).is_ok());
        assert_eq!(opened.collect::<Vec<_>>(), [true, true, true, false, false]);
    }
}
