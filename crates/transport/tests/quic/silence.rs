//! What only QUIC's port could answer.

use crate::bench::{Bench, MS, S, addr, delay, options};
use crate::strangers::{answers, overheard};
use heddle_proto::endpoint::ConnectionEvent;
use heddle_seam::rng::Seed;

#[test]
fn other_versions_are_not_negotiated() {
    let (overheard, mut bench) = overheard();
    for version in [0_u32, 0x6b33_43cf, 0xff00_001d, 0x0a0a_0a0a] {
        let mut probe = overheard[0].data.clone();
        probe[1..5].copy_from_slice(&version.to_be_bytes());
        assert_eq!(answers(&mut bench, 1, addr(0), &probe), 0, "{version:08x}");
    }
}

#[test]
fn another_token_is_not_answered() {
    let (overheard, mut bench) = overheard();
    let mut probe = overheard[0].data.clone();
    assert_eq!(probe[5], 20);
    probe[6] ^= 1;
    assert_eq!(answers(&mut bench, 1, addr(0), &probe), 0);
}

#[test]
fn a_broken_initial_uses_up_no_token() {
    let (overheard, mut bench) = overheard();
    let mut broken = overheard[0].data.clone();
    let last = broken.len() - 1;
    broken[last] ^= 1;
    assert_eq!(answers(&mut bench, 1, addr(0), &broken), 0);
    let here = bench.connection(0, 1, heddle_proto::channel::Role::Initiator);
    bench.ends[0].endpoint.open(bench.now, here);
    bench.run_for(2 * S, &mut ());
    for end in &bench.ends {
        assert_eq!(end.events.first().map(|(_, event)| event), Some(&ConnectionEvent::Ready));
    }
}

#[test]
fn packets_for_connections_that_never_were_get_no_reset() {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    bench.open_ready();
    let mut rng = Seed::from_number(3).rng();
    for _ in 0..50 {
        let mut packet = vec![0; 200];
        rng.fill(&mut packet);
        packet[0] = 0x40 | packet[0] & 0x3f;
        assert_eq!(answers(&mut bench, 1, addr(0), &packet), 0);
    }
    assert_eq!(bench.ends[1].endpoint.refused_datagrams().strangers, 50);
}
