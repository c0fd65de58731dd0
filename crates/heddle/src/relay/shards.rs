//! The event loops of the relay, one for each shard, and how they share what the relay has.
//!
//! - Shard 0 accepts, and deals connections out to all.
//! - What each shard has of the relay's is the [assembly](heddle_assembly)'s business, but for descriptors and the
//!   resolver's places, of which each has an even part.
//! - Workers and the resolver serve all shards.

use super::address::Listeners;
use super::endpoints::{self, Bound};
use super::observe::Observatory;
use super::stacks::Stacks;
use super::{Failure, net_options, outcome, sockets};
use crate::torrc::Options;
use heddle_assembly::{Assembly, Setup};
use heddle_control::{ControlLanguage, Told};
use heddle_dir::certs::ChannelCerts;
use heddle_dir::keys::RelayKeys;
use heddle_net::{EventLoop, LoopHandle, Resolver, SystemEntropy, Workers, anchor, link_shards};
use heddle_relay::{Event, Relay, RelayLanguage};
use heddle_seam::datagrams::IdPrefix;
use heddle_seam::node::{PortId, StackId};
use heddle_seam::stopwatch::Stopwatch;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// Tasks that may wait for a worker, of all shards. Onionskins take half of them at most, because a shard has few at
/// work and keeps the others itself ([`heddle_relay::Limits::onionskins_at_work`]). The other half is for signatures of
/// TLS, of which a shard begins 500 a second. Should workers lag behind by more than that half, shards work off
/// themselves what has no place.
const TASKS_MAX: usize = 4096;
/// The most shards that are made without being asked for.
const SHARDS_MAX: usize = 16;
/// Messages that may wait for a shard for each circuit: one for each cell of a crossing's window, each way, and what
/// begins, credits and ends a lane.
const MESSAGES_PER_CIRCUIT: usize = 160;

/// The relay's shards, made and not running yet.
pub struct Shards {
    loops: Vec<EventLoop<RelayLanguage, Relay>>,
}

/// What the shards are made of.
pub struct Parts<'a> {
    pub setup: &'a Setup<'a>,
    pub keys: &'a RelayKeys,
    pub certs: &'a Arc<ChannelCerts>,
    pub entropy: SystemEntropy,
    pub resolver: Option<&'a Resolver>,
    /// Sockets that there may be on all stacks.
    pub stack_sockets_max: u64,
    /// What each shard's loop and endpoints tell their times to.
    pub stopwatch: &'a dyn Fn(u16) -> Stopwatch,
}

impl Shards {
    /// Makes as many shards as the operator wants.
    pub fn new(parts: &Parts<'_>, listeners: Listeners, mut stacks: Stacks) -> Result<Self, Failure> {
        let Setup { options, shards: count, sockets_max, .. } = *parts.setup;
        let workers = match options.num_cpus {
            0 => Workers::start_per_core(TASKS_MAX)?,
            threads => Workers::start(threads as usize, TASKS_MAX)?,
        };
        let assembly = Assembly::new(parts.setup, parts.keys, parts.certs, anchor());
        let mut relays: Vec<(Relay, Vec<Bound>)> = Vec::new();
        for number in 0..count {
            let stopwatch = (parts.stopwatch)(number);
            let place = listeners.udp_place();
            let bound = endpoints::bind(options, place, (number, count), &mut stacks)?;
            let offered: Vec<_> = bound.iter().map(|bound| bound.offered).collect();
            let first = relays.first().map(|(first, _)| first);
            let relay = assembly.shard(number, &offered, first, &stopwatch, &|_| Box::new(parts.entropy))?;
            relays.push((relay, bound));
        }
        let mut loops = Vec::new();
        let mut net = net_options(options);
        net.closing_max = sockets::closing(net.closing_max, sockets_max, count);
        net.handed_max = sockets::handed(net.handed_max, sockets_max, count);
        net.stack_sockets_max =
            usize::try_from(parts.stack_sockets_max / u64::from(count)).unwrap_or(usize::MAX);
        for (number, (relay, bound)) in (0..).zip(relays) {
            let id_prefixes = relay.id_prefixes();
            let mut event_loop = EventLoop::new(relay, net.clone())?;
            event_loop.set_workers(&workers);
            event_loop.set_stopwatch((parts.stopwatch)(number));
            if let Some(resolver) = parts.resolver {
                event_loop.set_resolver(resolver.clone());
            }
            bound.into_iter().try_for_each(|bound| add_port(&mut event_loop, bound))?;
            for (port, prefix) in id_prefixes {
                keep_apart(&mut event_loop, port, prefix);
            }
            loops.push(event_loop);
        }
        listen(&mut loops, listeners.into_sockets())?;
        link_shards(&mut loops, assembly.circuits_max() * MESSAGES_PER_CIRCUIT);
        Ok(Shards { loops })
    }

    pub fn handles(&self) -> Vec<LoopHandle<RelayLanguage>> {
        self.loops.iter().map(EventLoop::handle).collect()
    }

    /// What concerns the control plane goes there, what was looked at to the observatory, and everything else to
    /// `news`; what does not fit is dropped.
    pub(crate) fn set_events(
        &mut self,
        control: &LoopHandle<ControlLanguage>,
        observatory: Option<&Observatory>,
        news: &SyncSender<Event>,
    ) {
        for (shard, event_loop) in (0..).zip(&mut self.loops) {
            let (control, news, observatory) = (control.clone(), news.clone(), observatory.cloned());
            // What was freed and could not be told is told with what is freed next.
            let mut untold_cells = 0_u32;
            event_loop.set_on_event(move |event| match Told::of(shard, event) {
                Ok(Told::MemoryPressure { freed_cells }) => {
                    untold_cells = untold_cells.saturating_add(freed_cells);
                    if control.control(Told::MemoryPressure { freed_cells: untold_cells }).is_ok() {
                        untold_cells = 0;
                    }
                }
                Ok(told) => drop(control.control(told)),
                Err(Event::Observed(observed)) => {
                    if let Some(observatory) = &observatory {
                        observatory.tell(shard, observed);
                    }
                }
                Err(event) => drop(news.try_send(event)),
            });
        }
    }

    /// Runs each shard on a thread of its own and calls `ended` on it when the shard is over.
    pub fn spawn(self, ended: impl Fn(Result<(), String>) + Clone + Send + 'static) -> std::io::Result<()> {
        for (shard, event_loop) in self.loops.into_iter().enumerate() {
            let ended = ended.clone();
            std::thread::Builder::new().name(format!("shard {shard}")).spawn(move || {
                let run = || event_loop.run().map(drop).map_err(|error| error.to_string());
                ended(outcome(&format!("shard {shard}"), run).flatten());
            })?;
        }
        Ok(())
    }
}

/// `HeddleShards`, or as many as there are cores but one: the kernel's part of the traffic, onionskins and the control
/// plane need time too, and every circuit that crosses between shards costs two copies a cell.
pub(super) fn shard_count(options: &Options) -> u16 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let chosen = options.heddle.shards.map_or((cores - 1).clamp(1, SHARDS_MAX), usize::from);
    u16::try_from(chosen).unwrap_or(u16::MAX)
}

/// Gives a shard a port, and the stack that goes with it.
fn add_port(event_loop: &mut EventLoop<RelayLanguage, Relay>, bound: Bound) -> std::io::Result<()> {
    let port = event_loop.add_port(bound.socket)?;
    log::info!("{}", describe(event_loop, port));
    let Some((options, stack)) = bound.offered.transport.stack.zip(bound.stack) else { return Ok(()) };
    let helper = stack.helper_pid().map_or_else(|| "nobody".to_owned(), |pid| format!("process {pid}"));
    let transport = bound.offered.transport.transport.name;
    log::info!("{transport} has a network stack of its own, whose sockets {helper} makes");
    event_loop.add_stack(StackId(port.0), &options, stack)
}

/// Keeps what has a port's prefix apart from strangers' datagrams, if the kernel does that. A flood takes its place
/// otherwise, and nothing else is worse.
fn keep_apart(event_loop: &mut EventLoop<RelayLanguage, Relay>, port: PortId, prefix: IdPrefix) {
    if let Err(error) = event_loop.keep_apart(port, prefix) {
        log::info!("Datagrams of strangers wait in one buffer with those of other relays: {error}");
    }
}

fn describe(event_loop: &EventLoop<RelayLanguage, Relay>, port: PortId) -> String {
    let Some(info) = event_loop.port_info(port) else { return "A UDP port is open".to_owned() };
    let how = if info.offload { "many datagrams at once" } else { "one datagram at a time" };
    let (recv, send) = (info.recv_buffer_bytes, info.send_buffer_bytes);
    format!("UDP port {} is open: {how}, buffers of {recv} and {send} bytes", info.local)
}

/// Gives the listeners to the first loop, which deals out what it accepts.
fn listen(loops: &mut [EventLoop<RelayLanguage, Relay>], sockets: Vec<TcpListener>) -> std::io::Result<()> {
    let Some(first) = loops.first_mut() else { return Ok(()) };
    sockets.into_iter().try_for_each(|socket| first.add_listener(socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torrc::SHARDS_MAX as ASKED_MAX;
    use heddle_relay::Limits;

    /// Signatures have the other half to themselves: 32 for each of so many shards.
    #[test]
    fn onionskins_of_all_shards_take_half_of_the_workers_queue_at_most() {
        let shards = SHARDS_MAX.max(ASKED_MAX as usize);
        assert!(shards * Limits::default().onionskins_at_work <= TASKS_MAX / 2);
    }
}
