//! What a relay of a network in virtual time is like.

use core::net::IpAddr;
use heddle_proto::bucket::Limit;
use heddle_proto::credit::HopCredit;
use heddle_proto::flow::FlowChoice;
use heddle_proto::params::NetworkParams;
use heddle_relay::Scheduler;
use heddle_transport::registry::Registered;

/// What a relay is like.
#[derive(Clone)]
pub struct RelayOptions {
    pub addr: IpAddr,
    pub shards: usize,
    pub exits: bool,
    /// What it speaks beside TLS, the preferred first.
    pub transports: Vec<&'static Registered>,
    pub max_queue_bytes: usize,
    /// What the consensus asks for.
    pub params: NetworkParams,
    /// `HeddleFlowControl`.
    pub flow_control: FlowChoice,
    /// `HeddleHopCredit`.
    pub hop_credit: HopCredit,
    /// `HeddleScheduler`.
    pub scheduler: Scheduler,
    /// `RelayBandwidthRate` and `RelayBandwidthBurst`. Default: no limit.
    pub relay_bandwidth: Option<Limit>,
    /// `CountPrivateBandwidth`. Default: no.
    pub count_private_bandwidth: bool,
}

impl RelayOptions {
    /// A relay of one shard that does not exit and speaks TLS alone.
    pub fn new(addr: IpAddr) -> Self {
        RelayOptions {
            addr,
            shards: 1,
            exits: false,
            transports: vec![],
            max_queue_bytes: 16 << 20,
            params: NetworkParams::default(),
            flow_control: FlowChoice::default(),
            hop_credit: HopCredit::None,
            scheduler: Scheduler::RoundRobin,
            relay_bandwidth: None,
            count_private_bandwidth: false,
        }
    }
}
