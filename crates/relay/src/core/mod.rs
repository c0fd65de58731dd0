//! What a shard holds, one of each part, and what takes several parts at once.
//!
//! Only the files of this folder see the parts together; the parts know nothing of it. Sockets, channels and endpoints
//! are not in here: the shard reads a cell from one and lends it to [`Core::on_channel_cell`] or
//! [`Core::on_flow_cell`], and later has [`Core::fill`] give it cells. So a cell that a channel lends can be worked on
//! while everything else is at hand.
//!
//! A file calls those of the rows above it, and in its own row those to its left; crate `tidy` has a test that fails
//! when files call one another in a circle.
//!
//! | what they do | files |
//! |---|---|
//! | take notes, tell others | `observe`, `log`, `used`, `holds`, `links` |
//! | end things | `streams/leaving`, `ending`, `pressure`, `credit` |
//! | queue cells | `sending` |
//! | serve streams | `streams/reading`, `replies`, `places`, `resolve`, `begin`, `data`, `mod` |
//! | lead circuits on | `extend/onward`, `dials`, `crossing`, `find`, `mod` |
//! | begin circuits | `idle`, `create` |
//! | do what clients ask of their circuits | `forward`, `measure` |
//! | hear the shard and answer it | `hop`, `datagrams`, `cells`, `shards`, `channels`, `output`, `connecting`, `traffic`, `probe`, `time`, `stats` |

mod cells;
mod channels;
mod connecting;
mod create;
mod credit;
mod datagrams;
mod ending;
mod extend;
mod forward;
mod holds;
mod hop;
mod idle;
mod links;
mod log;
mod measure;
mod observe;
mod output;
mod pressure;
mod probe;
mod sending;
mod shards;
mod stats;
mod streams;
mod time;
mod traffic;
mod used;

pub(crate) use observe::{index_of, shard_fields};

use crate::admission::Admission;
use crate::circuit_log::CircuitLog;
use crate::circuits::IdleRound;
use crate::circuits::Jobs;
use crate::circuits::Probe;
use crate::config::{Limits, RelayConfig};
use crate::dos::Dos;
use crate::exit::Streams;
use crate::forwarding::Sessions;
use crate::language::Output;
use crate::links::{Crossings, Dials, Links};
use crate::memory::{Buffers, QUESTION_BYTES};
use crate::message::Event;
use crate::rates::Rates;
use crate::scheduler::Runs;
use crate::stats::Meter;
use crate::table::Table;
use core::net::SocketAddr;
use heddle_proto::crypto::onionskin::OnionKeys;
use heddle_proto::ids::RelayIds;
use heddle_proto::params::NetworkParams;
use heddle_proto::policy::ExitPolicy;
use heddle_proto::pool::CellPool;
use heddle_seam::node::ShardId;
use heddle_seam::rng::{Entropy, Rng};
use heddle_seam::time::Instant;
use observe::Forced;
use std::collections::VecDeque;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Cells that may wait on one lane, unless the consensus (`circ_max_cell_queue_size`, and
/// `circ_max_cell_queue_size_out` away from the client) says less. A stock exit or client keeps far fewer in flight;
/// more is an attack on our memory.
const LANE_CELLS_MAX: i32 = 50_000;

/// Questions to the resolver take at most one part in so many of a shard's memory, but some may be asked in any case.
const QUESTIONS_PART: usize = 8;
const QUESTIONS_LEAST: usize = 64;

pub(super) struct Core {
    config: RelayConfig,
    /// The time of the input that is being handled.
    now: Instant,
    params: Arc<NetworkParams>,
    /// Whether flows are held while their cells wait.
    hop_by_hop: bool,
    keys: Option<Arc<OnionKeys>>,
    /// Seeds of secrets, each for one use.
    entropy: Box<dyn Entropy>,
    /// For what is no secret: circuit ids, padding, hashing.
    rng: Rng,
    pool: CellPool,
    buffers: Buffers,
    table: Table,
    idle_round: IdleRound,
    links: Links,
    dials: Dials,
    crossings: Crossings,
    /// Outputs other than cells; the driver empties it after each input.
    outputs: VecDeque<Output>,
    admission: Admission,
    dos: Dos,
    jobs: Jobs,
    streams: Streams,
    sessions: Sessions,
    rates: Rates,
    runs: Runs,
    probe: Option<Probe>,
    /// Who was dialled, and where, to say how it sees our address.
    asked: Option<(RelayIds, SocketAddr)>,
    meter: Meter,
    /// What is forced at places, while somebody wants that.
    forced: Option<Forced>,
    /// Who hears what happens to circuits, if somebody does.
    circuit_log: Option<Box<dyn CircuitLog>>,
    draining: bool,
}

impl Core {
    /// `transports` are the names of channels' transport and of the endpoints'.
    pub fn new(
        mut config: RelayConfig,
        transports: impl IntoIterator<Item = &'static str>,
        mut entropy: Box<dyn Entropy>,
    ) -> Self {
        let of_memory = config.max_queue_bytes / QUESTIONS_PART / QUESTION_BYTES;
        config.limits.questions = config.limits.questions.min(of_memory.max(QUESTIONS_LEAST));
        let pool = CellPool::new(config.max_queue_bytes);
        let mut core = Core {
            admission: Admission::new(&config.limits, pool.max()),
            dos: Dos::new(config.dos.defences(&NetworkParams::default())),
            pool,
            now: Instant::ZERO,
            params: Arc::default(),
            hop_by_hop: config.hop_by_hop_flow_control.unwrap_or(false),
            keys: None,
            rng: entropy.rng(),
            entropy,
            buffers: Buffers::default(),
            table: Table::new(config.scheduler, LANE_CELLS_MAX.unsigned_abs()),
            idle_round: IdleRound::default(),
            links: Links::new(config.ids, config.limits.circuits_per_channel),
            dials: Dials::default(),
            crossings: Crossings::new(config.shard),
            outputs: VecDeque::new(),
            jobs: Jobs::new(
                config.limits.onionskins_at_work,
                config.onionskin_age_max(&NetworkParams::default()),
            ),
            streams: Streams::default(),
            sessions: Sessions::new(config.max_queue_bytes),
            rates: Rates::new(&config),
            runs: config.scheduler.runs(),
            probe: None,
            asked: None,
            meter: Meter::new(transports),
            forced: None,
            circuit_log: None,
            draining: false,
            config,
        };
        core.open_crossings();
        core
    }

    pub fn set_params(&mut self, params: Arc<NetworkParams>) {
        let cells_max = |name, default| params.get(name, default, 1000, LANE_CELLS_MAX);
        let lane_cells_max = cells_max("circ_max_cell_queue_size", LANE_CELLS_MAX);
        let lane_cells_out_max = cells_max("circ_max_cell_queue_size_out", lane_cells_max);
        self.table.set_cells_max(lane_cells_max.unsigned_abs(), lane_cells_out_max.unsigned_abs());
        self.dos.set_defences(self.config.dos.defences(&params));
        self.jobs.set_age_max(self.config.onionskin_age_max(&params));
        self.params = params;
        self.choose_hop_by_hop();
    }

    /// What exit streams may reach from now on; those that are there go on.
    pub fn set_exit_policy(&mut self, policy: ExitPolicy) {
        self.config.exit_policy = (!policy.rejects_all()).then_some(policy);
    }

    /// The time of the input that is being handled.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// What is done from now on is done at this time.
    pub fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// Which of the relay's shards this is.
    pub fn shard(&self) -> ShardId {
        self.config.shard
    }

    /// The most slots that were ever used, and that can be.
    pub fn slots_max(&self) -> (u32, u32) {
        (self.pool.used_max(), self.pool.max())
    }

    pub fn limits(&self) -> &Limits {
        &self.config.limits
    }

    pub fn set_onion_keys(&mut self, keys: Arc<OnionKeys>) {
        self.keys = Some(keys);
    }

    /// Nothing new is accepted from now on.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Whether relays pad what joins them (`nf_pad_relays`).
    pub fn pads_relays(&self) -> bool {
        self.params.get("nf_pad_relays", 0, 0, 1) == 1
    }

    /// A secret for one use.
    pub fn draw_secret(&mut self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.entropy.rng().array())
    }
}

/// Outputs other than cells.
impl Core {
    pub fn push(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    pub fn event(&mut self, event: Event) {
        self.push(Output::Event(event));
    }

    pub fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}
