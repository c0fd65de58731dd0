//! Numbered datagrams over a wire, one way or there and back.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heddle_net::realtime;

use super::SLICE;
use super::flow_hosts::{End, FlowHosts};
use crate::backend::Outcome;
use crate::error::{Error, Result};
use crate::machine::interrupt;
use crate::plan::{Ping, Probe};
use crate::socks::is_timeout;

/// Bytes of the IPv4 and the UDP header.
const HEADERS_BYTES: usize = 28;
/// Bytes of a probe's number and time, at the start of its payload.
const STAMP_BYTES: usize = 16;

/// Sends all datagrams of a probe and gives the fate of each. Those that are late are waited for after the last was
/// sent.
pub(super) fn run_probe(
    probe: &Probe,
    stragglers: Duration,
    place: usize,
    hosts: &dyn FlowHosts,
) -> Result<Outcome> {
    let receiver = hosts.datagrams(place, End::Receiver)?;
    let sender = hosts.datagrams(place, End::Sender)?;
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
        let received = receive_probes(&receiver, probe, origin, stragglers, &ended);
        let sent =
            sending.join().unwrap_or_else(|_| Err(Error::Options("a sender of probes panicked".into())));
        Ok(Outcome::Probe { delays_ms: sent.and(received)? })
    })
}

/// Sends all pings, has the other host send each back, and gives the fate of each.
pub(super) fn run_ping(
    ping: &Ping,
    stragglers: Duration,
    place: usize,
    hosts: &dyn FlowHosts,
) -> Result<Outcome> {
    let Ping { count, interval, bytes } = *ping;
    let probe = Probe { count, interval, bytes };
    let preparing = || Error::io("preparing pings");
    let echoing = hosts.datagrams(place, End::Receiver)?;
    let sender = hosts.datagrams(place, End::Sender)?;
    sender.connect(echoing.local_addr().map_err(preparing())?).map_err(preparing())?;
    let receiver = sender.try_clone().map_err(preparing())?;
    let origin = Instant::now();
    let (ended, over) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let echo = scope.spawn(|| {
            be_on_time();
            send_back(&echoing, &over)
        });
        let sending = scope.spawn(|| {
            be_on_time();
            let sent = send_probes(&sender, &probe, origin);
            ended.store(true, Ordering::Relaxed);
            sent
        });
        be_on_time();
        let received = receive_probes(&receiver, &probe, origin, stragglers, &ended);
        over.store(true, Ordering::Relaxed);
        let panicked = || Err(Error::Options("a thread of pings panicked".into()));
        let sent = sending.join().unwrap_or_else(|_| panicked());
        let echoed = echo.join().unwrap_or_else(|_| panicked());
        Ok(Outcome::Ping { rtts_ms: sent.and(echoed).and(received)? })
    })
}

/// Sends back what comes, until that is over.
fn send_back(socket: &UdpSocket, over: &AtomicBool) -> Result<()> {
    socket.set_read_timeout(Some(SLICE)).map_err(Error::io("preparing pings"))?;
    let mut payload = [0; 2048];
    while !over.load(Ordering::Relaxed) {
        match socket.recv_from(&mut payload) {
            Ok((len, from)) => {
                socket.send_to(&payload[..len], from).map_err(Error::io("answering a ping"))?;
            }
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(Error::io("receiving a ping")(error)),
        }
    }
    Ok(())
}

/// A thread that waits for a processor would count that as the wire's delay. Where the system does not allow it, the
/// figures show it.
fn be_on_time() {
    let _ = realtime::sharpen_timers();
    let _ = realtime::run_first();
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
) -> Result<Vec<Option<f64>>> {
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
    Ok(delays_ms)
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
