//! Strangers at the port of any transport, and whoever stands on the wire: nobody is answered, and nothing changes.

use crate::bench::{
    ANSWERS_REPLAYS, Bench, End, FUZZED, ID, MS, S, Sent, addr, anchor, delay, dialled, nearly_let_through,
    options,
};
use crate::source::Source;
use core::net::SocketAddr;
use heddle_netem::{HostOptions, TopologyOptions, WireOptions};
use heddle_proto::endpoint::ConnectionEvent;
use heddle_seam::rng::Seed;
use heddle_seam::time::Instant;
use heddle_transport::fuzz_endpoint::{flows, stranger_datagrams};
use proptest::prelude::*;

const STRANGER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 9)), 443);

/// How many datagrams follow one.
pub fn answers(bench: &mut Bench, host: usize, from: SocketAddr, data: &[u8]) -> usize {
    bench.deliver(host, Sent { from, to: addr(host), ecn: 0, data: data.to_vec() });
    bench.record = Some(Vec::new());
    bench.run_for(15 * MS, &mut ());
    bench.record.take().map_or(0, |record| record.len())
}

/// The datagrams of a handshake, and a listener that awaits that dialler still.
pub fn overheard() -> (Vec<Sent>, Bench) {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    bench.record = Some(Vec::new());
    bench.open_ready();
    let overheard = bench.record.take().expect("it was recorded");
    let mut waiting = Bench::pair(delay(10 * MS), &options());
    let there = waiting.connection(1, 0, heddle_proto::channel::Role::Responder);
    waiting.ends[1].endpoint.open(waiting.now, there);
    (overheard, waiting)
}

#[test]
fn a_hello_from_elsewhere_is_not_answered_even_with_the_token() {
    let (overheard, mut bench) = overheard();
    let hello = &overheard[0];
    assert_eq!(hello.from, addr(0));
    assert_eq!(answers(&mut bench, 1, STRANGER, &hello.data), 0);
    assert_eq!(bench.ends[1].endpoint.refused_datagrams().strangers, 1);
    // From the peer's address it is: that is what the listener waits for, and a translator may change the port.
    let translated = SocketAddr::new(addr(0).ip(), 12345);
    bench.deliver(1, Sent { from: translated, to: addr(1), ecn: 0, data: hello.data.clone() });
    assert!(bench.ends[1].endpoint.poll_transmit(bench.now, &mut Vec::new()).is_some());
}

#[test]
fn what_was_overheard_is_worth_nothing_later() {
    let (mut overheard, _) = overheard();
    overheard.retain(|sent| sent.from == addr(0));
    // While the connection lives, and after it has ended.
    for ends in [false, true] {
        let mut bench = Bench::pair(delay(10 * MS), &options());
        let (a, b) = bench.open_ready();
        if ends {
            bench.ends[0].endpoint.close(bench.now, a);
            bench.ends[1].endpoint.close(bench.now, b);
            bench.run_for(60 * S, &mut ());
        }
        for end in &mut bench.ends {
            end.events.clear();
        }
        for sent in &overheard {
            for from in [addr(0), STRANGER] {
                let answers = answers(&mut bench, 1, from, &sent.data);
                let may_answer = ANSWERS_REPLAYS && !ends && from == addr(0);
                assert!(answers == 0 || may_answer, "{answers}");
            }
        }
        assert_eq!(bench.ends[1].events, []);
    }
}

/// Whoever has a connection of his own may have overheard the ids of another.
#[test]
fn a_peer_cannot_speak_on_anothers_connection() {
    let host = |name: &str| HostOptions { name: name.to_owned(), ..HostOptions::default() };
    let wire = |from: &str, to: &str| {
        let (from, to) = (from.to_owned(), to.to_owned());
        WireOptions { from, to, there: delay(10 * MS), back: None }
    };
    let wires = TopologyOptions {
        hosts: ["a", "b", "c"].map(host).to_vec(),
        wires: vec![wire("a", "b"), wire("c", "b")],
        default_wire: None,
    };
    let mut bench = Bench::new(&wires, &options(), 1);
    let (a, _) = bench.open_ready();
    let awaited = bench.connection(1, 2, heddle_proto::channel::Role::Responder);
    bench.ends[1].endpoint.open(bench.now, awaited);
    let mut source = Source::new(0, a, &[dialled(1)], 1);
    bench.record = Some(Vec::new());
    bench.run_for(S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
    let overheard = bench.record.take().unwrap_or_default();
    let theirs: Vec<&Sent> = overheard.iter().filter(|sent| sent.to == addr(1)).collect();
    assert!(!theirs.is_empty());
    for (number, sent) in (1..).zip(theirs) {
        let mut forged = sent.data.clone();
        forged[ID.end..].fill(7);
        assert_eq!(answers(&mut bench, 1, addr(2), &forged), 0);
        assert_eq!(bench.ends[1].endpoint.refused_datagrams().strangers, number);
    }
}

/// Somebody on the wire who sees everything: what he makes of each datagram is delivered beside it.
pub fn attacked(seed: u64, forge: impl Fn(&mut heddle_seam::rng::Rng, &[Sent], &Sent) -> Vec<Vec<u8>>) {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let (a, _) = bench.open_ready();
    let mut source = Source::new(0, a, &[dialled(1), dialled(2)], 400);
    let mut rng = Seed::from_number(seed).rng();
    let mut seen: Vec<Sent> = Vec::new();
    for _ in 0..300 {
        bench.record = Some(Vec::new());
        bench.run_for(10 * MS, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
        for sent in bench.record.take().into_iter().flatten() {
            for data in forge(&mut rng, &seen, &sent) {
                let to = bench.ends.iter().position(|end| end.addr == sent.to).expect("one of the two");
                bench.deliver(to, Sent { data, ..sent.clone() });
            }
            seen.push(sent);
        }
    }
    bench.run_for(20 * S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
    for name in [dialled(1), dialled(2)] {
        let numbers: Vec<u32> =
            bench.ends[1].cells.iter().filter(|got| got.circ_id == name).map(|got| got.number).collect();
        assert_eq!(numbers, (0..400).collect::<Vec<u32>>());
    }
    let ended = |end: &End| end.events.iter().any(|(_, event)| matches!(event, ConnectionEvent::Ended(_)));
    assert!(!bench.ends.iter().any(ended));
}

#[test]
fn replayed_datagrams_change_nothing() {
    attacked(1, |rng, seen, sent| {
        let old = seen.get(rng.next_u64() as usize % seen.len().max(1));
        [Some(sent), old].into_iter().flatten().map(|sent| sent.data.clone()).collect()
    });
}

#[test]
fn truncated_datagrams_change_nothing() {
    attacked(2, |rng, _, sent| {
        let cut = |len: usize| sent.data[..len % sent.data.len()].to_vec();
        vec![cut(rng.next_u64() as usize), cut(ID.end), cut(ID.end + 3)]
    });
}

#[test]
fn bent_datagrams_change_nothing() {
    attacked(3, |rng, _, sent| {
        let mut bent = sent.data.clone();
        let bit = rng.next_u64() as usize % (bent.len() * 8);
        bent[bit / 8] ^= 1 << (bit % 8);
        vec![bent]
    });
}

/// What both ends of an idle connection send in forty seconds in which somebody sends each a bent copy of its peer's,
/// once a second.
fn sent_while_idle(is_attacked: bool) -> usize {
    let mut bench = Bench::pair(delay(10 * MS), &options());
    let (a, _) = bench.open_ready();
    let mut source = Source::new(0, a, &[dialled(1)], 1);
    bench.record = Some(Vec::new());
    bench.run_for(S, &mut |now: Instant, ends: &mut [End]| source.step(now, ends));
    let seen = bench.record.take().unwrap_or_default();
    let bent = [0, 1].map(|end: usize| {
        let theirs = seen.iter().filter(|sent| sent.to == bench.ends[end].addr);
        let mut bent =
            theirs.max_by_key(|sent| sent.data.len()).expect("a cell, or its acknowledgement").clone();
        // What is long asks for an acknowledgement.
        bent.data.resize(1200, 0);
        bent
    });
    (0..40)
        .map(|_| {
            for (end, bent) in bent.iter().enumerate().filter(|_| is_attacked) {
                bench.deliver(end, bent.clone());
            }
            bench.record = Some(Vec::new());
            bench.run_for(S, &mut ());
            bench.record.take().map_or(0, |sent| sent.len())
        })
        .sum()
}

#[test]
fn forged_datagrams_put_off_no_probe() {
    let undisturbed = sent_while_idle(false);
    assert!(undisturbed >= 2, "{undisturbed}: it probes every 15 seconds");
    assert_eq!(sent_while_idle(true), undisturbed);
}

#[test]
fn a_script_of_cells_delivers_them() {
    let script: Vec<u8> = (0..200).flat_map(|step: u8| [[0, step], [7, 0]]).flatten().collect();
    assert!(flows(FUZZED, anchor(), &script) > 100);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn arbitrary_datagrams_are_not_answered(
        datagrams in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..8),
        is_near in any::<bool>(),
    ) {
        let mut bytes = Vec::new();
        for mut datagram in datagrams {
            if is_near {
                datagram = nearly_let_through(&datagram);
            }
            bytes.extend_from_slice(&(datagram.len() as u16).to_be_bytes());
            bytes.extend_from_slice(&datagram);
        }
        stranger_datagrams(FUZZED, anchor(), &bytes);
    }

    #[test]
    fn flows_keep_order_whatever_happens(script in proptest::collection::vec(any::<u8>(), 0..400)) {
        flows(FUZZED, anchor(), &script);
    }
}
