//! Whatever is sealed is opened, once, in any order that the window bears; whatever was changed is not.

use heddle_esp::packet::{TCP, classify, sealed_len};
use heddle_esp::{Arrived, Inbound, Keys, Lifetime, Outbound, Refused, Spi};
use heddle_seam::time::Instant;
use proptest::prelude::*;

const NOW: Instant = Instant::ZERO;
/// As `window.rs` has it.
const WINDOW: usize = 8_128;

fn ends(material: &[u8; 20]) -> (Outbound, Inbound) {
    let (spi, keys) = (Spi::new(4_711).expect("an SPI"), Keys::from_material(material));
    (Outbound::new(NOW, spi, &keys, Lifetime::default()), Inbound::new(spi, &keys, Lifetime::default()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_sealed_comes_out(
        material: [u8; 20],
        payloads in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..2_000)), 1..20),
    ) {
        let (mut outbound, mut inbound) = ends(&material);
        let mut out = Vec::new();
        for (next_header, payload) in &payloads {
            let before = out.len();
            outbound.seal(NOW, *next_header, payload, &mut out).expect("it may seal");
            prop_assert_eq!(out.len() - before, sealed_len(payload.len()));
        }
        let mut rest = &mut out[..];
        for (next_header, payload) in &payloads {
            let packet;
            (packet, rest) = rest.split_at_mut(sealed_len(payload.len()));
            let opened = inbound.open(NOW, packet).expect("authentic");
            match opened {
                Some(opened) => {
                    prop_assert_eq!((opened.next_header, opened.payload), (*next_header, &payload[..]));
                }
                None => prop_assert_eq!(*next_header, 59),
            }
        }
    }

    #[test]
    fn what_was_changed_does_not(
        material: [u8; 20],
        payload in prop::collection::vec(any::<u8>(), 0..200),
        flips in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
    ) {
        let (mut outbound, mut inbound) = ends(&material);
        let mut packet = Vec::new();
        outbound.seal(NOW, TCP, &payload, &mut packet).expect("it may seal");
        let mut changed = packet.clone();
        for flip in flips {
            let bit = flip.index(packet.len() * 8);
            changed[bit / 8] ^= 1 << (bit % 8);
        }
        if changed != packet {
            prop_assert!(inbound.open(NOW, &mut changed).is_err());
        }
        prop_assert!(inbound.open(NOW, &mut packet).is_ok());
    }

    /// Packets come late by up to twice the window, and some twice.
    #[test]
    fn order_matters_only_beyond_the_window(delays in prop::collection::vec(0..2 * WINDOW, 20), gap in 1..800_usize) {
        let (mut outbound, mut inbound) = ends(&[3; 20]);
        let count = delays.len() * gap;
        let mut order: Vec<(usize, usize)> = (0..count)
            .map(|number| (number + if number % gap == 0 { delays[number / gap] } else { 0 }, number))
            .collect();
        let packets: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                let mut packet = Vec::new();
                outbound.seal(NOW, TCP, &[], &mut packet).expect("it may seal");
                packet
            })
            .collect();
        order.sort_unstable();
        let mut newest = 0;
        for (_, number) in order {
            let mut copies = [(); 2].map(|()| packets[number].clone());
            let is_opened = inbound.open(NOW, &mut copies[0]).is_ok();
            let is_late = newest >= number + WINDOW;
            prop_assert_eq!(is_opened, !is_late, "{} behind {}", number, newest);
            newest = newest.max(number);
            let again = inbound.open(NOW, &mut copies[1]);
            prop_assert_eq!(again, Err(if is_late { Refused::Forged } else { Refused::Replayed }));
        }
    }

    #[test]
    fn any_bytes_are_borne(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (_, mut inbound) = ends(&[3; 20]);
        let is_packet = matches!(classify(&bytes), Arrived::Esp(_));
        let refused = inbound.open(NOW, &mut bytes).expect_err("nobody sealed it");
        prop_assert!(is_packet || refused == Refused::NotOurs);
    }
}
