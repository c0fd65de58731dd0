//! What flows over a wire by itself, without Tor.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant as Real};

use heddle_seam::time::Instant;
use heddle_sim::HostId;

use super::datagrams::{DATAGRAM_PORT, DatagramNode, Datagrams};
use super::flood::Flood;
use super::source_node::SourceNode;
use super::world::World;
use crate::backend::{OPEN_MAX, Outcome, WireFlow};
use crate::error::{Error, Result};
use crate::plan::{Arm, Bulk, Ping, Probe, Share, Tcp};
use crate::traffic::sunk::Sunk;

/// How much virtual time passes before it is looked how far flows are.
const LOOK: Duration = Duration::from_millis(1);
/// How often whoever waits is told so, in real time.
const PROGRESS: Duration = Duration::from_millis(200);

/// What an arm without a network needs that there is not, to be read after the arm's name.
pub(super) fn lacking(arm: &Arm) -> Option<&'static str> {
    let is_utcp = |tcp: Tcp| tcp == Tcp::Utcp;
    let mut flows = arm.flows();
    let any = flows.any(|case| {
        case.bulk.as_ref().is_some_and(|bulk| is_utcp(bulk.sender))
            || case.share.as_ref().is_some_and(|share| is_utcp(share.first) || is_utcp(share.second))
    });
    any.then_some("compares utcp with Linux' TCP, and the backend sim has no Linux; run it on emu")
}

/// A flow under way.
enum Flow {
    Bulk(Counted),
    Share(Counted, Counted),
    Probe(Probing),
}

/// A connection that sends all the time, and what is counted of it.
struct Counted {
    sender: (HostId, usize),
    to: SocketAddr,
    number: usize,
    sunk: Arc<Sunk>,
    starts: Instant,
    warm_up: Duration,
    duration: Duration,
    /// Its place among its sender's programs, once it has started.
    place: Option<usize>,
    /// What had come at the end of the warm-up, and at the end.
    at_warm: Option<u64>,
    at_end: Option<u64>,
}

/// Datagrams under way.
struct Probing {
    /// The host and the node that sends, and those where what was sent arrives in the end.
    sender: (HostId, usize),
    receiver: (HostId, usize),
    /// Its number at both.
    flow: u32,
    count: usize,
    stragglers: Duration,
    comes_back: bool,
}

/// Runs all flows at the same time to their end.
pub(super) fn run(
    world: &mut World,
    flows: &[WireFlow<'_>],
    on_wait: &mut dyn FnMut(),
) -> Result<Vec<Outcome>> {
    let begun = flows.iter().enumerate().map(|(place, flow)| begin(world, place, flow));
    let mut begun = begun.collect::<Result<Vec<_>>>()?;
    let mut told = Real::now();
    on_wait();
    loop {
        let mut done = true;
        for flow in &mut begun {
            done &= go_on(world, flow)?;
        }
        if done {
            return Ok(begun.iter().map(|flow| outcome(world, flow)).collect());
        }
        world.pass(LOOK)?;
        if told.elapsed() >= PROGRESS {
            told = Real::now();
            on_wait();
        }
    }
}

fn begin(world: &mut World, place: usize, flow: &WireFlow<'_>) -> Result<Flow> {
    let case = flow.case;
    if let Some(bulk) = &case.bulk {
        return Ok(Flow::Bulk(counted(world, flow, 0, bulk, Duration::ZERO)?));
    }
    if let Some(share) = &case.share {
        let Share { first, second, apart, duration, warm_up, congestion_control } = share;
        let bulk = |sender: &Tcp, earlier: Duration| Bulk {
            congestion_control: congestion_control.clone(),
            sender: *sender,
            duration: *duration + earlier,
            warm_up: *warm_up + earlier,
        };
        let one = counted(world, flow, 0, &bulk(first, *apart), Duration::ZERO)?;
        return Ok(Flow::Share(one, counted(world, flow, 1, &bulk(second, Duration::ZERO), *apart)?));
    }
    if let Some(Probe { count, interval, bytes }) = case.probe {
        return probing(world, flow, 0, (count, interval, bytes), false).map(Flow::Probe);
    }
    let nothing = || Error::Options(format!("nothing flows in case {place}"));
    let Ping { count, interval, bytes } = *case.ping.as_ref().ok_or_else(nothing)?;
    world.pinged += 1;
    let number = world.pinged;
    probing(world, flow, number, (count, interval, bytes), true).map(Flow::Probe)
}

fn counted(
    world: &World,
    flow: &WireFlow<'_>,
    number: usize,
    bulk: &Bulk,
    later: Duration,
) -> Result<Counted> {
    let (from, to) = (world.host(flow.from)?, world.host(flow.to)?);
    Ok(Counted {
        sender: (from.id, from.over_kernel),
        to: to.server(),
        number,
        sunk: Arc::clone(&to.sunk),
        starts: world.sim.now() + later,
        warm_up: bulk.warm_up,
        duration: bulk.duration,
        place: None,
        at_warm: None,
        at_end: None,
    })
}

fn probing(
    world: &mut World,
    flow: &WireFlow<'_>,
    number: u32,
    (count, interval, bytes): (usize, Duration, usize),
    comes_back: bool,
) -> Result<Probing> {
    let (from, to) = (world.host(flow.from)?, world.host(flow.to)?);
    let what =
        Datagrams { to: (to.addr, DATAGRAM_PORT).into(), bytes, interval, count, come_back: comes_back };
    let sender = (from.id, from.datagrams);
    let receiver = if comes_back { sender } else { (to.id, to.datagrams) };
    let stragglers = flow.case.stragglers();
    world.sim.with(sender.0, sender.1, |node: &mut DatagramNode, now| node.send(now, number, what));
    Ok(Probing { sender, receiver, flow: number, count, stragglers, comes_back })
}

/// Looks how far a flow is, and says whether it is over.
fn go_on(world: &mut World, flow: &mut Flow) -> Result<bool> {
    match flow {
        Flow::Bulk(counted) => count(world, counted),
        Flow::Share(first, second) => Ok(count(world, first)? & count(world, second)?),
        Flow::Probe(probing) => Ok(is_over(world, probing)),
    }
}

/// Starts a connection when its time is there, notes what has come when it is due, and says whether that is all.
fn count(world: &mut World, counted: &mut Counted) -> Result<bool> {
    let now = world.sim.now();
    let Counted { sender: (host, node), to, number, .. } = *counted;
    let Some(place) = counted.place else {
        if now >= counted.starts {
            let started = world.sim.with(host, node, |node: &mut SourceNode, now| {
                node.refresh();
                let way = node.carrier.add_way(None, to)?;
                Some(node.programs.start(now, Box::new(Flood::new(now, way, number))))
            });
            let missing = || Error::Options("a connection has no way to its server".into());
            counted.place = Some(started.ok_or_else(missing)?);
        }
        return Ok(false);
    };
    let opened = world.sim.with(host, node, |node: &mut SourceNode, _| node.programs.opened(place));
    let Some(opened) = opened else {
        return match now.since(counted.starts) < OPEN_MAX {
            true => Ok(false),
            false => {
                let waiting_for = "the opening of a bulk connection".to_owned();
                Err(Error::Deadline { waiting_for, after: OPEN_MAX })
            }
        };
    };
    let sunk = counted.sunk.of(number);
    if now >= opened + counted.warm_up {
        counted.at_warm.get_or_insert(sunk);
    }
    if now >= opened + counted.duration && counted.at_end.is_none() {
        counted.at_end = Some(sunk);
        world.sim.with(host, node, |node: &mut SourceNode, now| node.programs.stop(now, place));
    }
    Ok(counted.at_end.is_some())
}

/// Whether all probes have arrived, or were waited for long enough.
fn is_over(world: &mut World, probing: &Probing) -> bool {
    let Probing { sender, receiver, flow, count, stragglers, .. } = *probing;
    let (sent, last) = world.sim.with(sender.0, sender.1, |node: &mut DatagramNode, _| {
        let sent = node.sent(flow);
        (sent.len(), sent.last().copied())
    });
    let come = world.sim.with(receiver.0, receiver.1, |node: &mut DatagramNode, _| {
        node.arrived(flow).map_or(0, |arrived| arrived.count)
    });
    let waited = last.is_some_and(|last| world.sim.now().since(last) > stragglers);
    come == count || sent == count && waited
}

fn outcome(world: &mut World, flow: &Flow) -> Outcome {
    match flow {
        Flow::Bulk(counted) => Outcome::Bulk { mbit_s: goodput_mbit_s(counted) },
        Flow::Share(first, second) => {
            let (first, second) = (goodput_mbit_s(first), goodput_mbit_s(second));
            Outcome::Share { share: second / (first + second), together_mbit_s: first + second }
        }
        Flow::Probe(Probing { sender, receiver, flow, count, comes_back, .. }) => {
            let sent =
                world.sim.with(sender.0, sender.1, |node: &mut DatagramNode, _| node.sent(*flow).to_vec());
            let arrived = world.sim.with(receiver.0, receiver.1, |node: &mut DatagramNode, _| {
                node.arrived(*flow).map(|arrived| arrived.times.clone()).unwrap_or_default()
            });
            let delay_ms = |number: usize| {
                let arrived = arrived.get(number).copied().flatten()?;
                Some(arrived.since(sent[number]).as_secs_f64() * 1e3)
            };
            let fates = (0..*count).map(delay_ms).collect();
            match comes_back {
                false => Outcome::Probe { delays_ms: fates },
                true => Outcome::Ping { rtts_ms: fates },
            }
        }
    }
}

/// Megabits (10^6 bits) of application data that arrived in a second.
fn goodput_mbit_s(counted: &Counted) -> f64 {
    let bytes = counted.at_end.zip(counted.at_warm).map_or(0, |(end, warm)| end - warm);
    bytes as f64 * 8.0 / 1e6 / (counted.duration - counted.warm_up).as_secs_f64()
}
