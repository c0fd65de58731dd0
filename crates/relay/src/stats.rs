//! What a shard has done and what waits in it, for metrics and for the lab. Nothing concerns a single circuit or
//! client.

use crate::admission::Granted;
use heddle_proto::endpoint::RefusedDatagrams;
use heddle_seam::time::Duration;
use std::collections::BTreeMap;

/// What a shard has done since its start, and what it holds now. The shards' sum is the relay's ([`RelayStats::add`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayStats {
    /// Channels first, then each endpoint in the order of its ports.
    pub transports: Vec<TransportStats>,
    /// What went back to TLS or stayed there, by one word for why: pairs
    /// ([`Fallback::label`](heddle_proto::pair::Fallback)), and circuits to a pair's relay, for which there was
    /// `no_room` or whose CREATE2 was sent over TLS as well (`create_again`).
    pub fallbacks: BTreeMap<&'static str, u64>,
    /// How long cells waited in lanes.
    pub queue_delay: DelayHistogram,
    /// Cells that wait in lanes now, and in the longest of them.
    pub queue_cells: u64,
    pub queue_cells_longest: u64,
    /// The most cells that ever waited in one lane; and in one lane while the flow that supplies it was held, zero when
    /// none ever was.
    pub queue_cells_max: u64,
    pub held_queue_cells_max: u64,
    /// Slots of the cell pool: in use, in use at most since the start, and how many there can be.
    pub pool_slots: u64,
    pub pool_slots_used_max: u64,
    pub pool_slots_max: u64,
    /// Bytes that flows keep in endpoints, at most, which count beside the slots that are in use.
    pub flow_bytes: u64,
    /// Bytes that connections and flows take in endpoints themselves. They count, too.
    pub flow_state_bytes: u64,
    /// Bytes that circuits take themselves.
    pub circuit_state_bytes: u64,
    /// Bytes that channels take themselves, and those whose handshake is not over.
    pub channel_state_bytes: u64,
    /// Bytes of sockets that the system did not take yet, and of messages that are not whole. They count as well.
    pub buffer_bytes: u64,
    /// Circuits, those that cross between shards counted in both.
    pub circuits: u64,
    /// What neighbours were granted.
    pub granted: Granted,
    /// How often what was refused to neighbours, because all was in use (`full`) or they had their `share`; and what
    /// ended because it `gave_way` to who had less, or was `idle`; and what stock's defences refused (`rate`,
    /// `concurrent`).
    pub refused: BTreeMap<(&'static str, &'static str), u64>,
    /// How often a client's address lost the right to create circuits for a while (`DoSCircuitCreation…`).
    pub addresses_held_off: u64,
    /// The same for circuits whose queues ran full (`dos_num_circ_max_outq`).
    pub addresses_held_off_for_queues: u64,
    /// DATAGRAM cells that were dropped, because too many waited in their lane.
    pub dropped_datagrams: u64,
}

/// What went over one transport.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransportStats {
    /// As in torrc and plans.
    pub name: &'static str,
    pub cells_in: u64,
    pub cells_out: u64,
    /// Bytes of datagrams, without the headers of IP and UDP. Zero for channels.
    pub received_bytes: u64,
    pub sent_bytes: u64,
    /// Channels that are open, or connections that are ready: pairs.
    pub links: u64,
    /// Circuits' lanes on them: flows.
    pub lanes: u64,
    /// Channels that opened to relays, or connections that became ready.
    pub links_opened: u64,
    /// How channels to relays and connections ended, by one word for the reason.
    pub links_ended: BTreeMap<&'static str, u64>,
    /// Datagrams that were dropped. None for channels.
    pub refused: RefusedDatagrams,
}

/// Time spent waiting, in classes that double.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelayHistogram {
    /// The `n`-th counts waits below 2ⁿ µs that the one before does not count; the last counts all that are longer.
    pub counts: [u64; DelayHistogram::CLASSES],
    pub sum_us: u64,
}

impl DelayHistogram {
    /// The last but one ends at 2²² µs, about 4 seconds.
    pub const CLASSES: usize = 24;

    /// Notes a wait.
    pub(crate) fn record_us(&mut self, delay_us: u32) {
        let class = (u32::BITS - delay_us.leading_zeros()) as usize;
        self.counts[class.min(Self::CLASSES - 1)] += 1;
        self.sum_us += u64::from(delay_us);
    }

    /// Waits of the `n`-th class are shorter than this; there is no bound for the last.
    pub fn bound(class: usize) -> Option<Duration> {
        (class + 1 < Self::CLASSES).then(|| Duration::from_micros(1 << class))
    }

    fn add(&mut self, other: &DelayHistogram) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.sum_us += other.sum_us;
    }
}

impl RelayStats {
    /// Takes in what another shard of the same relay reports.
    pub fn add(&mut self, other: &RelayStats) {
        for theirs in &other.transports {
            match self.transports.iter_mut().find(|ours| ours.name == theirs.name) {
                Some(ours) => ours.add(theirs),
                None => self.transports.push(theirs.clone()),
            }
        }
        add_counts(&mut self.fallbacks, &other.fallbacks);
        self.queue_delay.add(&other.queue_delay);
        self.queue_cells += other.queue_cells;
        self.queue_cells_longest = self.queue_cells_longest.max(other.queue_cells_longest);
        self.queue_cells_max = self.queue_cells_max.max(other.queue_cells_max);
        self.held_queue_cells_max = self.held_queue_cells_max.max(other.held_queue_cells_max);
        self.pool_slots += other.pool_slots;
        self.pool_slots_used_max += other.pool_slots_used_max;
        self.pool_slots_max += other.pool_slots_max;
        self.flow_bytes += other.flow_bytes;
        self.flow_state_bytes += other.flow_state_bytes;
        self.circuit_state_bytes += other.circuit_state_bytes;
        self.channel_state_bytes += other.channel_state_bytes;
        self.buffer_bytes += other.buffer_bytes;
        self.circuits += other.circuits;
        self.granted.add(&other.granted);
        self.addresses_held_off += other.addresses_held_off;
        self.addresses_held_off_for_queues += other.addresses_held_off_for_queues;
        self.dropped_datagrams += other.dropped_datagrams;
        for (refused, count) in &other.refused {
            *self.refused.entry(*refused).or_default() += count;
        }
    }
}

impl TransportStats {
    fn add(&mut self, other: &TransportStats) {
        self.cells_in += other.cells_in;
        self.cells_out += other.cells_out;
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
        self.links += other.links;
        self.lanes += other.lanes;
        self.links_opened += other.links_opened;
        self.refused += other.refused;
        add_counts(&mut self.links_ended, &other.links_ended);
    }
}

fn add_counts(ours: &mut BTreeMap<&'static str, u64>, theirs: &BTreeMap<&'static str, u64>) {
    for (reason, count) in theirs {
        *ours.entry(reason).or_default() += count;
    }
}

/// The shard's own counts, kept as things happen.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Of channels, then of each endpoint.
    transports: Vec<TransportStats>,
    fallbacks: BTreeMap<&'static str, u64>,
    queue_cells_max: u32,
    held_queue_cells_max: u32,
    addresses_held_off: u64,
    addresses_held_off_for_queues: u64,
    dropped_datagrams: u64,
}

/// The number of channels among the transports of a [`Meter`]; the `n`-th endpoint's is `n + 1`.
pub(super) const CHANNELS: usize = 0;

impl Meter {
    pub fn new(names: impl IntoIterator<Item = &'static str>) -> Self {
        let transports = names.into_iter().map(|name| TransportStats { name, ..TransportStats::default() });
        Meter { transports: transports.collect(), ..Meter::default() }
    }

    /// What was counted; the rest is what the shard holds.
    pub fn stats(&self) -> RelayStats {
        RelayStats {
            transports: self.transports.clone(),
            fallbacks: self.fallbacks.clone(),
            queue_cells_max: self.queue_cells_max.into(),
            held_queue_cells_max: self.held_queue_cells_max.into(),
            addresses_held_off: self.addresses_held_off,
            addresses_held_off_for_queues: self.addresses_held_off_for_queues,
            dropped_datagrams: self.dropped_datagrams,
            ..RelayStats::default()
        }
    }

    /// The name of the transport at a place.
    pub fn transport_name(&self, transport: usize) -> &'static str {
        self.transports[transport].name
    }

    /// Cells came in.
    pub fn on_cells_in(&mut self, transport: usize, cells: u64) {
        self.transports[transport].cells_in += cells;
    }

    /// Cells went out.
    pub fn on_cells_out(&mut self, transport: usize, cells: u64) {
        self.transports[transport].cells_out += cells;
    }

    /// Datagrams came.
    pub fn on_received(&mut self, transport: usize, bytes: u64) {
        self.transports[transport].received_bytes += bytes;
    }

    /// Datagrams left.
    pub fn on_sent(&mut self, transport: usize, bytes: u64) {
        self.transports[transport].sent_bytes += bytes;
    }

    /// A channel to a relay opened, or a connection is ready.
    pub fn on_link_opened(&mut self, transport: usize) {
        self.transports[transport].links_opened += 1;
    }

    /// A channel to a relay, or a connection, is over.
    pub fn on_ended(&mut self, transport: usize, reason: &'static str) {
        *self.transports[transport].links_ended.entry(reason).or_default() += 1;
    }

    /// A circuit goes over TLS where a flow was wanted.
    pub fn on_fallback(&mut self, reason: &'static str) {
        *self.fallbacks.entry(reason).or_default() += 1;
    }

    /// So many cells wait on a lane.
    pub fn on_queue(&mut self, cells: u32) {
        self.queue_cells_max = self.queue_cells_max.max(cells);
    }

    /// The same while the flow that supplies it is held.
    pub fn on_held_queue(&mut self, cells: u32) {
        self.held_queue_cells_max = self.held_queue_cells_max.max(cells);
    }

    /// A datagram was dropped.
    pub fn on_dropped_datagram(&mut self) {
        self.dropped_datagrams += 1;
    }

    /// An address may have lost the right to create circuits for a while.
    pub fn on_held_off(&mut self, is_news: bool) {
        self.addresses_held_off += u64::from(is_news);
    }

    /// The same for a circuit whose queue ran full.
    pub fn on_held_off_for_queues(&mut self, is_news: bool) {
        self.addresses_held_off_for_queues += u64::from(is_news);
    }
}
