//! What a shard is told once, at its start.

use crate::dos::DosOptions;
use crate::scheduler::Scheduler;
use heddle_proto::bucket::Limit;
use heddle_proto::credit::HopCredit;
use heddle_proto::flow_control::FlowChoice;
use heddle_proto::ids::RelayIds;
use heddle_proto::params::NetworkParams;
use heddle_proto::policy::ExitPolicy;
use heddle_seam::node::{RESOLVER_PLACES, ShardId};
use heddle_seam::time::Duration;

/// How long an onionskin may wait unless operator or consensus say otherwise, as in stock Tor.
const ONIONSKIN_WAIT_MAX_MS: i32 = 1750;
/// What the consensus' `onion_queue_wait_cutoff` is where it says nothing, as in stock Tor.
const ONIONSKIN_CUTOFF_S: i32 = 5;

/// A shard's options. Sizes and rates are the shard's part of the relay's.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Who we are.
    pub ids: RelayIds,
    /// Where streams may go, or `None` for a relay that is no exit.
    pub exit_policy: Option<ExitPolicy>,
    /// Whether streams may go to IPv6 addresses (`IPv6Exit`).
    pub ipv6_exit: bool,
    /// Whether streams are refused that come from a relay which the consensus does not list (`RefuseUnknownExits`);
    /// `None` does what the consensus says (`refuseunknownexits`, else yes).
    pub refuse_unknown_exits: Option<bool>,
    /// Stock Tor's defences against denial of service (`DoS…`).
    pub dos: DosOptions,
    /// How long an onionskin may wait for a worker before it is refused (`MaxOnionQueueDelay`); `None` does what the
    /// consensus says under the same name (else 1.75 s). If it is longer than neighbours wait for an answer on a flow,
    /// they ask again over TLS.
    pub onionskin_wait_max: Option<Duration>,
    /// Whether a flow is not read while its cells wait for the next relay or the client (hop-by-hop flow control), so
    /// that a reader that stops holds back all relays before it; `None` does what the consensus says
    /// (`heddle_hop_by_hop_flow_control`, else no). Where it is on, an exit can tell whether the guard is upgraded.
    pub hop_by_hop_flow_control: Option<bool>,
    /// Credit from hop to hop on channels to relays that agree to it.
    pub hop_credit: HopCredit,
    /// Whether clients may ask what was counted of their own circuits (`HeddleMeasure`), in test networks.
    pub answers_measure: bool,
    /// Whether clients may have circuits whose cells are datagrams (`HeddleForwardDatagrams`), in test networks.
    pub forwards_datagrams: bool,
    /// Flow control with the clients of circuits that end here.
    pub flow_control: FlowChoice,
    /// Whether circuits may be extended to private addresses (`ExtendAllowPrivateAddresses`, which
    /// `TestingTorNetwork` turns on).
    pub extend_to_private: bool,
    /// Whether circuits may be extended to IPv6 addresses: where the relay itself is reached by IPv6.
    pub extend_to_ipv6: bool,
    /// Whether exits ask for names with characters that hosts' names do not have (`ServerDNSAllowNonRFC953Hostnames`).
    pub any_host_names: bool,
    /// Bytes that cells may take: those that wait, and what flows keep in endpoints (`MaxMemInQueues`).
    pub max_queue_bytes: usize,
    /// `BandwidthRate` and `BandwidthBurst`, on every socket.
    pub bandwidth: Limit,
    /// `RelayBandwidthRate` and `RelayBandwidthBurst`, on channels.
    pub relay_bandwidth: Option<Limit>,
    /// Whether the limits also hold for private addresses (`CountPrivateBandwidth`).
    pub count_private_bandwidth: bool,
    /// Which circuit of a link sends next.
    pub scheduler: Scheduler,
    /// This shard, and how many there are.
    pub shard: ShardId,
    pub shards: u16,
    pub limits: Limits,
}

impl RelayConfig {
    /// A relay of one shard, with default options: no exit, 64 MiB of memory, no rates worth the name
    /// (a TiB a second).
    pub fn new(ids: RelayIds) -> Self {
        RelayConfig {
            ids,
            exit_policy: None,
            ipv6_exit: false,
            refuse_unknown_exits: None,
            dos: DosOptions::default(),
            onionskin_wait_max: None,
            hop_by_hop_flow_control: None,
            hop_credit: HopCredit::None,
            answers_measure: false,
            forwards_datagrams: false,
            flow_control: FlowChoice::Auto,
            extend_to_private: false,
            extend_to_ipv6: false,
            any_host_names: false,
            max_queue_bytes: 64 << 20,
            bandwidth: Limit { rate_bytes_per_s: 1 << 40, burst_bytes: 1 << 40 },
            relay_bandwidth: None,
            count_private_bandwidth: false,
            scheduler: Scheduler::default(),
            shard: ShardId(0),
            shards: 1,
            limits: Limits::default(),
        }
    }

    /// How long an onionskin may wait for a worker: what the operator or the consensus says, and no longer than stock
    /// Tor lets any wait, whose client has left by then.
    pub(super) fn onionskin_age_max(&self, params: &NetworkParams) -> Duration {
        let consensus_ms = params.get("MaxOnionQueueDelay", ONIONSKIN_WAIT_MAX_MS, 1, i32::MAX);
        let cutoff_s = params.get("onion_queue_wait_cutoff", ONIONSKIN_CUTOFF_S, 1, i32::MAX);
        let wait_max = Duration::from_millis(consensus_ms.unsigned_abs().into());
        self.onionskin_wait_max.unwrap_or(wait_max).min(Duration::from_secs(cutoff_s.unsigned_abs().into()))
    }
}

/// Bounds on what strangers can make a shard hold. Of most, a quarter is reserved for relays of the consensus and
/// another for all others, and each neighbour has a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Circuits of one shard. Above it, CREATE2 is answered by DESTROY (`RESOURCELIMIT`).
    pub circuits: usize,
    /// Circuits of one channel, likewise. Those that cross to another shard have no limit of their own.
    pub circuits_per_channel: usize,
    /// Channels of one shard, open or not. A quarter is left for those that we open.
    pub channels: usize,
    /// Bytes that channels may hold whose handshake is not over.
    pub handshake_bytes: usize,
    /// Onionskins that wait for a worker or are with one.
    pub onionskins: usize,
    /// Onionskins that are with workers at once. Few, because who comes next is chosen before; enough to keep all
    /// workers busy.
    pub onionskins_at_work: usize,
    /// CREATE2 cells on one link that the next relay has not answered; others wait for their turn. A relay like this
    /// one takes 375 of one neighbour.
    pub creates_unanswered: usize,
    /// Streams of one circuit.
    pub streams_per_circuit: usize,
    /// Streams of one shard, which bounds sockets and questions to the resolver. Above it, the oldest stream of the
    /// circuit with most ends, or BEGIN is answered by END (`RESOURCELIMIT`).
    pub streams: usize,
    /// A shard's part of the questions that the resolver works on at once; by default it is the only one. Above half of
    /// it, only circuits with few questions may ask.
    pub questions: usize,
}

impl Limits {
    /// Channels that others may open: whoever fills these keeps us from opening none.
    pub(super) fn channels_accepted(&self) -> usize {
        self.channels - self.channels_dialled()
    }

    /// Dials, and channels that we opened.
    pub(super) fn channels_dialled(&self) -> usize {
        self.channels / 4
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            circuits: 100_000,
            circuits_per_channel: 50_000,
            channels: 16_000,
            // 1,024 at once, if none sends more than a handshake takes.
            handshake_bytes: 32 << 20,
            onionskins: 1_000,
            onionskins_at_work: 32,
            creates_unanswered: 128,
            streams_per_circuit: 1_000,
            streams: 20_000,
            questions: RESOLVER_PLACES,
        }
    }
}
