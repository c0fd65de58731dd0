//! What the operator chose, and what the relay's place adds to it, as the parts of a relay take it.

use crate::limits::shard_limits;
use core::net::{IpAddr, SocketAddr};
use heddle_control::{ControlOptions, ControlPlane, Identity};
use heddle_dir::keys::{KeyOptions, RelayKeys};
use heddle_proto::bucket::Limit;
use heddle_proto::ids::{Ed25519Id, RelayIds, RsaId};
use heddle_proto::policy::ExitPolicy;
use heddle_relay::{Limits, RelayConfig};
use heddle_seam::node::ShardId;
use heddle_seam::rng::Entropy;
use heddle_seam::time::Duration;
use heddle_torrc::Options;

/// Where a relay's keys are, and how long they last.
pub fn key_options(options: &Options) -> KeyOptions {
    KeyOptions {
        key_directory: options.key_directory.clone(),
        offline_master_key: options.offline_master_key,
        signing_key_lifetime_s: options.signing_key_lifetime_s,
        ..KeyOptions::new(&options.data_directory, &options.nickname)
    }
}

/// A relay's options, and what its place adds to them.
pub struct Setup<'a> {
    pub options: &'a Options,
    /// The program and its version, for the descriptor.
    pub platform: &'a str,
    /// Where the ORPort is reached from outside, with 0.0.0.0 for an address that authorities are to tell.
    pub advertised: Vec<SocketAddr>,
    pub shards: u16,
    /// Bytes that the queues of all shards may take.
    pub queue_bytes_max: usize,
    /// Descriptors that the process may have for its own sockets, if there is a limit.
    pub sockets_max: Option<u64>,
    /// Each shard's bounds, but for the questions to the resolver, of which it has a part.
    pub limits: Limits,
}

impl Setup<'_> {
    /// The addresses that the descriptor and NETINFO name, as far as they are known.
    pub(crate) fn addrs(&self) -> Vec<IpAddr> {
        self.advertised.iter().map(SocketAddr::ip).filter(|addr| !addr.is_unspecified()).collect()
    }

    /// What a shard is told, but for its number: its part of memory and of what is bounded, and rates that all shards
    /// share.
    pub(crate) fn shard_config(&self, keys: &RelayKeys) -> RelayConfig {
        let options = self.options;
        let addrs = self.addrs();
        let exit_policy = options.exit_policy(&addrs);
        let exit_policy = (!exit_policy.rejects_all()).then_some(exit_policy);
        let (relay_rate, relay_burst) = options.relay_rate_and_burst();
        RelayConfig {
            ids: RelayIds { rsa: RsaId(keys.rsa_id()), ed25519: Ed25519Id(keys.ed25519_id()) },
            ipv6_exit: options.ipv6_exit,
            refuse_unknown_exits: options.refuse_unknown_exits,
            dos: options.dos.clone(),
            onionskin_wait_max: onionskin_wait_max(options),
            hop_by_hop_flow_control: options.heddle.hop_by_hop_flow_control,
            hop_credit: options.heddle.hop_credit,
            answers_measure: options.heddle.measure,
            forwards_datagrams: options.heddle.forward_datagrams,
            flow_control: options.heddle.flow_control,
            extend_to_private: options.extend_allow_private_addresses,
            extend_to_ipv6: self.advertised.iter().any(SocketAddr::is_ipv6),
            any_host_names: options.server_dns_allow_non_rfc953_hostnames,
            max_queue_bytes: self.queue_bytes_max / usize::from(self.shards),
            bandwidth: Limit {
                rate_bytes_per_s: options.bandwidth_rate,
                burst_bytes: options.bandwidth_burst,
            },
            relay_bandwidth: Some(Limit { rate_bytes_per_s: relay_rate, burst_bytes: relay_burst }),
            count_private_bandwidth: options.count_private_bandwidth,
            scheduler: options.heddle.scheduler,
            shard: ShardId(0),
            shards: self.shards,
            limits: shard_limits(&self.limits, self.sockets_max, self.shards, exit_policy.is_some()),
            exit_policy,
        }
    }

    /// The control plane of the relay's shards, whoever the relay is. `resolves` says whether names can be resolved.
    pub fn control_plane(
        &self,
        identity: Identity,
        resolves: bool,
        now_unix_s: u64,
        entropy: Box<dyn Entropy>,
    ) -> ControlPlane {
        ControlPlane::new(self.control_options(), identity, self.shards, resolves, now_unix_s, entropy)
    }

    fn control_options(&self) -> ControlOptions {
        let options = self.options;
        let (bandwidth_rate, bandwidth_burst) = options.relay_rate_and_burst();
        ControlOptions {
            nickname: options.nickname.clone(),
            contact: options.contact_info.clone(),
            family: options.my_family.clone(),
            platform: self.platform.to_owned(),
            advertised: self.advertised.clone(),
            authorities: options.authorities().cloned().collect(),
            data_directory: options.data_directory.clone(),
            cache_directory: options.cache_directory(),
            assume_reachable: options.assume_reachable,
            publish: options.publish_server_descriptor,
            testing_tor_network: options.testing_tor_network,
            exit_policy: options.exit_policy(&self.addrs()),
            exit_rejects_own: options.exit_policy_reject_private
                || options.exit_policy_reject_local_interfaces,
            bandwidth_rate,
            bandwidth_burst,
            max_advertised_bandwidth: options.max_advertised_bandwidth,
            metrics_policy: ExitPolicy::from_rules(&options.metrics_port_policy),
        }
    }
}

/// `MaxOnionQueueDelay`, if the operator chose one.
fn onionskin_wait_max(options: &Options) -> Option<Duration> {
    let chosen_ms = Some(options.max_onion_queue_delay_ms).filter(|chosen_ms| *chosen_ms > 0);
    chosen_ms.map(Duration::from_millis)
}
