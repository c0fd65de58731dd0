//! What a relay of a network in virtual time is like.

use core::net::IpAddr;
use heddle_proto::params::NetworkParams;
use heddle_torrc::Options;
use heddle_transport::Ciphers;

/// What a relay is like.
#[derive(Clone)]
pub struct RelayOptions {
    pub addr: IpAddr,
    /// What its operator chose.
    pub torrc: Options,
    /// What the consensus asks for.
    pub params: NetworkParams,
    /// Where the cryptography of its links comes from, the same for all whom it meets.
    pub ciphers: Ciphers,
}

impl RelayOptions {
    /// A relay as [`usual`] has it.
    pub fn new(addr: IpAddr) -> Self {
        RelayOptions { addr, torrc: usual(), params: NetworkParams::default(), ciphers: Ciphers::default() }
    }
}

/// The options of a relay of one shard that does not exit, speaks TLS alone and takes 16 MiB for queues, where all
/// addresses are private and everybody is reached.
pub fn usual() -> Options {
    let mut torrc = Options {
        data_directory: "data".into(),
        extend_allow_private_addresses: true,
        exit_policy_reject_private: false,
        assume_reachable: true,
        max_mem_in_queues: 16 << 20,
        ..Options::default()
    };
    torrc.heddle.transports.clear();
    torrc
}

/// Has a relay exit to everywhere.
pub(crate) fn open_exit(torrc: &mut Options) {
    torrc.exit_relay = Some(true);
    torrc.ipv6_exit = true;
    torrc.exit_policy = vec!["accept *:*".parse().expect("a rule of the grammar")];
}

/// The shards that an operator chose; a simulated machine has one core.
pub(crate) fn shards(torrc: &Options) -> u16 {
    torrc.heddle.shards.unwrap_or(1)
}
