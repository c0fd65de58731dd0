//! What flows in an arm: TCP connections (`bulk`) and numbered datagrams.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heddle_net::realtime;

use super::bulk::{run_bulk, run_share};
use super::wires::{End, Wires};
use super::{Arm, Case, Probe};
use crate::error::{Error, Result};
use crate::machine::interrupt;
use crate::socks::is_timeout;

/// How long a read, write or sleep may last before Ctrl-C is looked at.
pub(super) const SLICE: Duration = Duration::from_millis(200);
/// How long the receiver of probes waits for stragglers, beyond twice the wire's delay.
const STRAGGLERS: Duration = Duration::from_secs(1);
/// Bytes of the IPv4 and the UDP header.
const HEADERS_BYTES: usize = 28;
/// Bytes of a probe's number and time, at the start of its payload.
const STAMP_BYTES: usize = 16;

/// What a case measured.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// The goodput of a bulk connection.
    Bulk {
        /// Megabits (10^6 bits) of application data per second.
        mbit_s: f64,
    },
    /// What two connections that share a wire got of it.
    Share {
        /// The part of the one that is compared, of what both got.
        share: f64,
        /// What both got, in Mbit/s.
        together_mbit_s: f64,
    },
    /// The fate of every probe, in the order of sending: its delay, or `None` when it did not arrive.
    Probe {
        /// One-way delays in milliseconds.
        delays_ms: Vec<Option<f64>>,
    },
}

/// Runs all flows of an arm at the same time and returns what came of each, in their order. `on_wait` is called a few
/// times a second meanwhile.
pub(super) fn run_all(arm: &Arm, wires: &dyn Wires, on_wait: &mut dyn FnMut()) -> Result<Vec<Outcome>> {
    thread::scope(|scope| {
        let flows = arm.flows().enumerate();
        let running: Vec<_> = flows.map(|(flow, case)| scope.spawn(move || run(case, flow, wires))).collect();
        while running.iter().any(|flow| !flow.is_finished()) {
            on_wait();
            thread::sleep(SLICE);
        }
        let joined = running.into_iter().map(|flow| {
            flow.join().unwrap_or_else(|_| Err(Error::Options("a flow of the plan panicked".into())))
        });
        joined.collect()
    })
}

/// How long an arm's flows take.
pub(super) fn duration(arm: &Arm) -> Duration {
    let of = |case: &Case| {
        let bulk = case.bulk.as_ref().map(|bulk| bulk.duration);
        let share = case.share.as_ref().map(|share| share.apart + share.duration);
        let probe = case.probe.as_ref().map(|probe| probe.interval * probe.count as u32 + stragglers(case));
        bulk.or(share).or(probe).unwrap_or_default()
    };
    arm.cases.iter().map(|case| of(case.as_ref())).max().unwrap_or_default()
}

fn run(case: &Case, place: usize, wires: &dyn Wires) -> Result<Outcome> {
    match (&case.bulk, &case.share, &case.probe) {
        (Some(bulk), _, _) => run_bulk(bulk, place, wires),
        (None, Some(share), _) => run_share(share, place, wires),
        (None, None, Some(probe)) => run_probe(case, probe, place, wires),
        (None, None, None) => Err(Error::Options("nothing flows in a case".into())),
    }
}

fn run_probe(case: &Case, probe: &Probe, place: usize, wires: &dyn Wires) -> Result<Outcome> {
    let receiver = wires.datagrams(place, End::Receiver)?;
    let sender = wires.datagrams(place, End::Sender)?;
    let to = receiver.local_addr().map_err(Error::io("preparing probes"))?;
    sender.connect(to).map_err(Error::io("preparing probes"))?;
    let origin = Instant::now();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            be_on_time();
            let sent = send_probes(&sender, probe, origin);
            ended.store(true, Ordering::Relaxed);
            sent
        });
        be_on_time();
        let received = receive_probes(&receiver, probe, origin, stragglers(case), &ended);
        let sent =
            sending.join().unwrap_or_else(|_| Err(Error::Options("a sender of probes panicked".into())));
        sent.and(received)
    })
}

/// A thread that waits for a processor would count that as the wire's delay. Where the system does not allow it, the
/// figures show it.
fn be_on_time() {
    let _ = realtime::sharpen_timers();
    let _ = realtime::run_first();
}

fn stragglers(case: &Case) -> Duration {
    STRAGGLERS + 2 * Duration::from_nanos(case.wire.delay_ns)
}

fn send_probes(socket: &UdpSocket, probe: &Probe, origin: Instant) -> Result<()> {
    let mut payload = vec![0; probe.bytes - HEADERS_BYTES];
    for number in 0..probe.count as u64 {
        interrupt::check()?;
        // Counted from the probe before, not from a schedule: to catch up after a pause would be a burst.
        thread::sleep(probe.interval);
        payload[..8].copy_from_slice(&number.to_be_bytes());
        payload[8..STAMP_BYTES].copy_from_slice(&ns_since(origin).to_be_bytes());
        socket.send(&payload).map_err(Error::io("sending a probe"))?;
    }
    Ok(())
}

fn receive_probes(
    socket: &UdpSocket,
    probe: &Probe,
    origin: Instant,
    stragglers: Duration,
    ended: &AtomicBool,
) -> Result<Outcome> {
    socket.set_read_timeout(Some(SLICE)).map_err(Error::io("preparing probes"))?;
    let mut delays_ms = vec![None; probe.count];
    let mut payload = [0; 2048];
    let mut last = Instant::now();
    loop {
        interrupt::check()?;
        match socket.recv(&mut payload) {
            Ok(len) => {
                let now_ns = ns_since(origin);
                last = Instant::now();
                let Some((number, sent_ns)) = parse_probe(&payload[..len]) else { continue };
                // Of a duplicate, the first counts.
                if let Some(slot @ None) = usize::try_from(number).ok().and_then(|n| delays_ms.get_mut(n)) {
                    *slot = Some(now_ns.saturating_sub(sent_ns) as f64 / 1e6);
                }
            }
            Err(error) if !is_timeout(&error) => return Err(Error::io("receiving a probe")(error)),
            Err(_) if ended.load(Ordering::Relaxed) && last.elapsed() > stragglers => break,
            Err(_) => {}
        }
        if delays_ms.last().is_some_and(Option::is_some) && delays_ms.iter().all(Option::is_some) {
            break;
        }
    }
    Ok(Outcome::Probe { delays_ms })
}

/// The number and the time of sending of a probe.
fn parse_probe(payload: &[u8]) -> Option<(u64, u64)> {
    let (number, rest) = payload.split_first_chunk::<8>()?;
    let (sent, _) = rest.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*number), u64::from_be_bytes(*sent)))
}

fn ns_since(origin: Instant) -> u64 {
    origin.elapsed().as_nanos() as u64
}

/// The samples of an outcome: name, unit, values.
pub(super) fn samples(outcome: &Outcome) -> Vec<(&'static str, &'static str, Vec<f64>)> {
    match outcome {
        Outcome::Bulk { mbit_s } => vec![("goodput_mbit_s", "Mbit/s", vec![*mbit_s])],
        Outcome::Share { share, together_mbit_s } => vec![
            ("share_beside_linux", "1", vec![*share]),
            ("together_mbit_s", "Mbit/s", vec![*together_mbit_s]),
        ],
        Outcome::Probe { delays_ms } => {
            let arrived = delays_ms.iter().copied().flatten().collect();
            let lost = |thousand: &[Option<f64>]| {
                thousand.iter().filter(|probe| probe.is_none()).count() as f64 / 10.0
            };
            let losses = delays_ms.chunks_exact(1000).map(lost).collect();
            vec![("delay_ms", "ms", arrived), ("loss_pct", "%", losses)]
        }
    }
}

/// The samples of a repetition: in how many fates the two differ, and by how much the delays of probes that arrived
/// both times do.
pub(super) fn differences(
    first: &Outcome,
    second: &Outcome,
) -> BTreeMap<&'static str, (&'static str, Vec<f64>)> {
    let (Outcome::Probe { delays_ms: first }, Outcome::Probe { delays_ms: second }) = (first, second) else {
        return BTreeMap::new();
    };
    let pairs = || first.iter().zip(second);
    let lost_once = pairs().filter(|(a, b)| a.is_some() != b.is_some()).count() as f64;
    let apart = pairs().filter_map(|(a, b)| Some((a.as_ref()? - b.as_ref()?).abs())).collect();
    BTreeMap::from([
        ("repeated_loss_differences", ("probes", vec![lost_once])),
        ("repeated_delay_difference_ms", ("ms", apart)),
    ])
}
