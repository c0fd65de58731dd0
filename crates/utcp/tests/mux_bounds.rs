//! What a peer of a session can make it do, and what it remembers of flows that are over.

use heddle_utcp::compact::{FlowId, Mux, MuxOptions};
use heddle_utcp::{BufferPool, Instant};

const S: u64 = 1_000_000_000;

fn deliver(now: Instant, to: &mut Mux, datagram: &[u8]) {
    to.handle_datagram(now, datagram, &mut |_, bytes| bytes.len()).expect("well formed");
}

/// Takes all that `from` sends to the other end, or nowhere.
fn give(now: Instant, from: &mut Mux, mut to: Option<&mut Mux>) {
    let mut datagram = Vec::new();
    while from.poll_datagram(now, &mut datagram).is_some() {
        if let Some(to) = &mut to {
            deliver(now, to, &datagram);
        }
        datagram.clear();
    }
}

/// One that opens too many flows waits with the rest, and has each of them in the end.
#[test]
fn what_opens_or_ends_too_many_flows_is_dropped_and_taken_when_it_is_repeated() {
    let mut mux = Mux::new(MuxOptions::default(), BufferPool::new(1 << 20));
    let now = Instant::from_nanos(S);
    // Ends of 65,534 flows that nobody has heard of: the peer may open two more at once.
    let end = |port: u32| [&[0x90][..], &port.to_be_bytes()[1..], &[1]].concat();
    let ends: Vec<u8> = (0..65_534).flat_map(end).collect();
    ends.chunks(1400).for_each(|datagram| deliver(now, &mut mux, datagram));
    let opening = |port: u32| [&[0xc0][..], &port.to_be_bytes()[1..], &[0, 0, 0, 0, 0, 0, 0, 9, 0]].concat();
    (65_534..65_540).for_each(|port| deliver(now, &mut mux, &opening(port)));
    assert_eq!(mux.len(), 2);
    // What was taken is known, and what was dropped is opened now.
    let later = now.plus_ns(S);
    (65_534..65_540).rev().for_each(|port| deliver(later, &mut mux, &opening(port)));
    assert_eq!(mux.len(), 6);
}

/// Without a window nobody asks which flows' time-outs have grown, so none is remembered when it has ended.
#[test]
fn flows_that_timed_out_and_ended_leave_nothing() {
    let pool = BufferPool::new(64 << 20);
    let [mut ours, mut theirs] = [0, 1].map(|_| Mux::new(MuxOptions::default(), pool.clone()));
    let mut now = Instant::from_nanos(S);
    let mut heaps = Vec::new();
    for _ in 0..4 {
        let ids: Vec<FlowId> = (0..2_000).map(|_| theirs.open(now).expect("a port id")).collect();
        give(now, &mut theirs, Some(&mut ours));
        assert_eq!(ours.len(), ids.len());
        // What ours answers is lost until the flows end.
        for _ in 0..40 {
            give(now, &mut ours, None);
            now = now.plus_ns(S / 4);
            ours.handle_timeout(now);
        }
        ids.iter().for_each(|id| theirs.reset(now, *id, 1));
        for _ in 0..20 {
            give(now, &mut theirs, Some(&mut ours));
            give(now, &mut ours, Some(&mut theirs));
            now = now.plus_ns(S);
            [&mut ours, &mut theirs].into_iter().for_each(|end| end.handle_timeout(now));
        }
        assert!(ours.is_empty() && theirs.is_empty());
        while ours.poll_event().is_some() {}
        heaps.push(ours.heap_bytes());
    }
    assert!(heaps[3] < heaps[0] + 4_000, "{heaps:?}");
}
