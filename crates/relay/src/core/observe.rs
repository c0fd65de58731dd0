//! Looks at what the shard has, for whoever analyses it.
//!
//! Beside observees there are static probes (SystemTap's, or USDT) for `bpftrace`, `perf` and `gdb`: a `nop` in the
//! code, and a note in the program file that names it and says where its arguments are. Lanes, circuits and channels
//! have the numbers there that observees have.

use super::Core;
use crate::keys::{CircuitKey, LinkKey, Side};
use crate::memory::InUse;
use crate::message::Event;
use crate::observe::{Observed, Observees, Place, Why};
use crate::table::{Departure, Next};
use heddle_proto::channel::Role;
use heddle_seam::time::{Duration, Instant};
use heddle_spe::Snapshot;
use probe::probe;
use slotmap::{Key, KeyData};

/// How many observations of a place wait to be told, and for how long.
const FORCED_ROWS_MAX: usize = 256;
const FORCED_WAIT: Duration = Duration::from_millis(10);

/// What is forced at places, if anything is.
#[derive(Debug, Default)]
pub(super) struct Forced {
    /// With what nobody was told of.
    places: Vec<(Place, Snapshot)>,
}

impl Core {
    /// Begins or ends to force observations at a place.
    pub fn force(&mut self, place: Place, on: bool) {
        self.tell_forced();
        let mut forced = self.forced.take().unwrap_or_default();
        forced.places.retain(|(other, _)| *other != place);
        if on {
            forced.places.push((place, Snapshot::of(place.observees().family())));
        }
        self.forced = Some(forced).filter(|forced| !forced.places.is_empty());
    }

    /// When what places have forced is told at the latest.
    #[inline]
    pub(super) fn forced_due(&self) -> Option<Instant> {
        let eldest = self.forced.as_ref()?.places.iter().filter_map(|(_, snapshot)| snapshot.rows().next());
        eldest.map(|row| Instant::from_nanos(row.time_ns) + FORCED_WAIT).min()
    }

    /// Says what places have forced since this was last called.
    pub(super) fn tell_forced(&mut self) {
        for place in Place::ALL {
            self.tell_place(place);
        }
    }

    fn tell_place(&mut self, place: Place) {
        let Some(waiting) = self.forced_at(place).filter(|waiting| !waiting.is_empty()) else { return };
        let snapshot = core::mem::replace(waiting, Snapshot::of(place.observees().family()));
        self.event(Event::Observed(Box::new(Observed { why: Why::Forced(place), snapshot })));
    }

    fn forced_at(&mut self, place: Place) -> Option<&mut Snapshot> {
        let places = &mut self.forced.as_mut()?.places;
        places.iter_mut().find(|(other, _)| *other == place).map(|(_, snapshot)| snapshot)
    }

    /// A cell is about to be queued on a lane.
    #[inline]
    pub(super) fn before_push(&mut self, key: CircuitKey, side: Side) {
        if self.is_forced(Place::BeforePush) {
            let (index, fields) = (lane_index(key, side), self.lane_fields(key, side));
            self.note_forced(Place::BeforePush, index, &fields.unwrap_or_default());
        }
    }

    /// A cell was queued on a lane, where so many wait now.
    #[inline]
    pub(super) fn note_queued(&mut self, key: CircuitKey, side: Side, waiting: u32) {
        probe!(heddle, cell_queued, lane_index(key, side), waiting);
        self.meter.on_queue(waiting);
    }

    /// A cell left a lane, where so many wait now.
    #[inline]
    pub(super) fn note_left(&self, departure: &Departure) {
        let lane = lane_index(departure.circuit, departure.side);
        probe!(heddle, cell_left, lane, departure.left, departure.waited.as_nanos());
    }

    /// A channel is about to be given cells.
    #[inline]
    pub fn before_write(&mut self, link: LinkKey, writable: usize) {
        probe!(heddle, channel_write, index_of(link), writable);
        if self.is_forced(Place::BeforeWrite) {
            let fields = self.channel_fields(link, writable);
            self.note_forced(Place::BeforeWrite, index_of(link), &fields.unwrap_or_default());
        }
    }

    #[inline]
    fn is_forced(&self, place: Place) -> bool {
        let forced = self.forced.as_ref();
        forced.is_some_and(|forced| forced.places.iter().any(|(other, _)| *other == place))
    }

    #[cold]
    fn note_forced(&mut self, place: Place, index: u64, fields: &[i64]) {
        let time_ns = self.now.as_nanos();
        let Some(waiting) = self.forced_at(place) else { return };
        waiting.push(time_ns, index, fields);
        if waiting.len() >= FORCED_ROWS_MAX {
            self.tell_place(place);
        }
    }

    /// Looks at lanes, circuits or streams, or at the one of that index. Other families are the shard's to look at.
    pub fn observe(&self, observees: Observees, index: Option<u64>, snapshot: &mut Snapshot) {
        let is_wanted = |of: u64| index.is_none_or(|index| index == of);
        match (observees, index) {
            (Observees::Lanes, Some(index)) => {
                let side = if index & 1 == 0 { Side::Prev } else { Side::Next };
                self.observe_lane(circuit_of(index >> 1), side, snapshot);
            }
            (Observees::Lanes, None) => {
                self.observe_each(2, snapshot, |snapshot, key| {
                    self.observe_lane(key, Side::Prev, snapshot);
                    self.observe_lane(key, Side::Next, snapshot);
                });
            }
            (Observees::Circuits, Some(index)) => self.observe_circuit(circuit_of(index), snapshot),
            (Observees::Circuits, None) => {
                self.observe_each(1, snapshot, |snapshot, key| self.observe_circuit(key, snapshot));
            }
            (Observees::Streams, _) => self.observe_streams(&is_wanted, snapshot),
            (Observees::Channels | Observees::Connections | Observees::Shards, _) => {}
        }
    }

    /// Looks at circuits, of which each has so many observees at most, as long as there is room.
    fn observe_each(
        &self,
        of_each: u64,
        snapshot: &mut Snapshot,
        observe: impl Fn(&mut Snapshot, CircuitKey),
    ) {
        for (key, _) in self.table.iter() {
            if snapshot.is_full() {
                return snapshot.leave_out(of_each * self.table.len() as u64 - snapshot.len() as u64);
            }
            observe(snapshot, key);
        }
    }

    fn observe_lane(&self, key: CircuitKey, side: Side, snapshot: &mut Snapshot) {
        if let Some(fields) = self.lane_fields(key, side) {
            snapshot.push(self.now.as_nanos(), lane_index(key, side), &fields);
        }
    }

    fn observe_circuit(&self, key: CircuitKey, snapshot: &mut Snapshot) {
        let Some(circuit) = self.table.get(key) else { return };
        let fields = [
            i64::from(circuit.queued_cells()),
            number(circuit.streams_len()),
            i64::from(circuit.questions()),
            i64::from(matches!(circuit.next(), Next::Joined(_))),
            i64::from(circuit.is_transit()),
            self.ns_since(circuit.used_at()),
        ];
        snapshot.push(self.now.as_nanos(), index_of(key), &fields);
    }

    fn observe_streams(&self, is_wanted: &dyn Fn(u64) -> bool, snapshot: &mut Snapshot) {
        let open = self.table.iter().flat_map(|(_, circuit)| circuit.owed());
        let over = self.streams.owed();
        for ((socket, queue), is_over) in open.map(|owed| (owed, 0)).chain(over.map(|owed| (owed, 1))) {
            if is_wanted(socket.get()) {
                let oldest_ns = self.pool.oldest(queue).map_or(0, |at| self.ns_since(at));
                let fields = [i64::from(queue.len()), oldest_ns, is_over];
                snapshot.push(self.now.as_nanos(), socket.get(), &fields);
            }
        }
    }

    fn lane_fields(&self, key: CircuitKey, side: Side) -> Option<[i64; 7]> {
        let lane = self.table.get(key)?.lane(side)?;
        let flow = lane.flow().unwrap_or_default();
        Some([
            i64::from(lane.queued_cells()),
            lane.oldest(&self.pool).map_or(0, |at| self.ns_since(at)),
            index_of(key) as i64,
            index_of(lane.link()) as i64,
            i64::from(side == Side::Prev),
            i64::from(flow.blocked),
            i64::from(flow.held),
        ])
    }

    /// What is to be seen of a channel whose socket takes so many bytes.
    pub fn channel_fields(&self, link: LinkKey, writable: usize) -> Option<[i64; 7]> {
        let channel = self.links.channel(link)?;
        Some([
            number(writable),
            number(self.table.ids_len(link)),
            number(self.table.farewells_len(link)),
            i64::from(self.table.has_output(link)),
            i64::from(channel.is_open()),
            i64::from(channel.peer().is_some()),
            i64::from(channel.role() == Role::Initiator),
        ])
    }

    /// Circuits of a connection, and cells that came in and went out over it.
    pub fn connection_fields(&self, link: LinkKey) -> Option<[i64; 3]> {
        let (cells_in, cells_out) = self.links.flows(link)?.cells();
        Some([number(self.table.ids_len(link)), cells_in as i64, cells_out as i64])
    }

    fn ns_since(&self, at: Instant) -> i64 {
        i64::try_from(self.now.since(at).as_nanos()).unwrap_or(i64::MAX)
    }
}

/// What is to be seen of a shard.
pub(crate) fn shard_fields(in_use: &InUse, (used_max, max): (u32, u32)) -> [i64; 15] {
    [
        i64::from(in_use.slots),
        i64::from(used_max),
        i64::from(max),
        i64::from(in_use.circuit_cells),
        i64::from(in_use.leftover_cells),
        number(in_use.buffer_bytes),
        number(in_use.flow_bytes),
        number(in_use.circuits),
        number(in_use.channels),
        number(in_use.flow_links),
        number(in_use.connections),
        number(in_use.questions),
        number(in_use.onionskins),
        number(in_use.dials),
        number(in_use.turns),
    ]
}

/// The number of a circuit or a link, which none has that comes after it.
pub(crate) fn index_of(key: impl Key) -> u64 {
    key.data().as_ffi()
}

/// The number of a lane: twice its circuit's, and one more away from the client.
fn lane_index(key: CircuitKey, side: Side) -> u64 {
    index_of(key) << 1 | u64::from(side == Side::Next)
}

fn circuit_of(index: u64) -> CircuitKey {
    KeyData::from_ffi(index).into()
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
