//! The configuration of every kind of node.
//!
//! A Heddle relay gets what a stock relay gets, less what only stock Tor knows.

use std::net::SocketAddr;
use std::path::Path;

use super::{NetworkOptions, RelayOptions};

/// Seconds from the authorities' start to the first consensus; votes are cast four seconds before.
pub(super) const FIRST_INTERVAL_S: u32 = 10;

/// What is the same for every node of one network.
pub(super) struct Shared<'a> {
    pub(super) options: &'a NetworkOptions,
    /// The `DirAuthority` lines.
    pub(super) authorities: Vec<String>,
    /// Seconds by which voting intervals are shifted against the clock's.
    pub(super) voting_offset_s: u64,
}

/// Options of every node.
fn basics(shared: &Shared, dir: &Path) -> Vec<String> {
    let mut lines = vec![
        "TestingTorNetwork 1".to_owned(),
        format!("DataDirectory {}", dir.join("data").display()),
        "Log notice stdout".to_owned(),
        "SafeLogging 0".to_owned(),
        "ProtocolWarnings 1".to_owned(),
    ];
    lines.extend(shared.authorities.iter().cloned());
    lines
}

/// What every stock program gets and a Heddle relay has no use for: a control socket, and none of the statistics that
/// `TestingTorNetwork` turns on (tor(1)). They note each relayed cell and each connection's bytes for events that
/// nobody reads here, so stock's processor time would be that of a tor which nobody runs.
fn stock(dir: &Path) -> [String; 3] {
    [
        format!("ControlSocket {}", dir.join("control").display()),
        "TestingEnableCellStatsEvent 0".to_owned(),
        "TestingEnableConnBwEvent 0".to_owned(),
    ]
}

/// What stock relays and authorities get: no circuits of their own, which would open channels by chance.
fn stock_relay(dir: &Path) -> Vec<String> {
    let mut lines = stock(dir).to_vec();
    lines.push("__DisablePredictedCircuits 1".to_owned());
    lines
}

fn or_port(nickname: &str, addr: SocketAddr) -> Vec<String> {
    vec![
        format!("Nickname {nickname}"),
        format!("Address {}", addr.ip()),
        format!("ORPort {addr}"),
        "SocksPort 0".to_owned(),
        "ContactInfo private test network".to_owned(),
    ]
}

/// Voting: the first interval is as short as Tor allows with some room for slow starters.
fn voting(shared: &Shared) -> Vec<String> {
    vec![
        format!("TestingV3AuthInitialVotingInterval {} seconds", FIRST_INTERVAL_S),
        "TestingV3AuthInitialVoteDelay 2 seconds".to_owned(),
        "TestingV3AuthInitialDistDelay 2 seconds".to_owned(),
        format!("V3AuthVotingInterval {} seconds", shared.options.voting_interval_s),
        "V3AuthVoteDelay 2 seconds".to_owned(),
        "V3AuthDistDelay 2 seconds".to_owned(),
        format!("TestingV3AuthVotingStartOffset {} seconds", shared.voting_offset_s),
    ]
}

pub(super) fn authority(shared: &Shared, place: &super::authority::Authority) -> String {
    let mut lines = basics(shared, &place.dir);
    lines.extend(stock_relay(&place.dir));
    lines.extend(or_port(&place.nickname, SocketAddr::new(place.address, place.or_port)));
    lines.extend([
        format!("DirPort {}", SocketAddr::new(place.address, place.dir_port)),
        "AuthoritativeDirectory 1".to_owned(),
        "V3AuthoritativeDirectory 1".to_owned(),
        "ExitPolicy reject *:*".to_owned(),
        "AssumeReachable 1".to_owned(),
        // With a handful of new relays no threshold means anything.
        "TestingDirAuthVoteGuard *".to_owned(),
        // Rounded down to 0 kB/s: relays that have carried nothing yet are Fast all the same.
        "AuthDirFastGuarantee 1 bytes".to_owned(),
        // Otherwise the younger half of the network is not Stable, and no guard for clients.
        "AuthDirVoteStableGuaranteeMinUptime 0 seconds".to_owned(),
        "AuthDirVoteStableGuaranteeMTBF 0 seconds".to_owned(),
    ]);
    lines.extend(voting(shared));
    lines.extend(shared.options.authority_torrc.iter().cloned());
    text(&lines)
}

/// The torrc of a relay of either program; `stock` adds what only stock Tor understands.
pub(super) fn relay(
    shared: &Shared,
    relay: &RelayOptions,
    dir: &Path,
    addr: SocketAddr,
    stock: bool,
) -> String {
    let mut lines = basics(shared, dir);
    if stock {
        lines.extend(stock_relay(dir));
    }
    let mut identity = or_port(&relay.nickname, addr);
    for option in ["Address ", "ORPort "] {
        if relay.torrc.iter().any(|line| line.starts_with(option)) {
            identity.retain(|line| !line.starts_with(option));
        }
    }
    lines.extend(identity);
    // It cannot test its own reachability before there are circuits to do it with.
    lines.push("AssumeReachable 1".to_owned());
    // Of most options the last line counts, of a policy the first that fits: both are the relay's.
    lines.extend(relay.torrc.iter().cloned());
    let exit: &[&str] = if relay.exit {
        // Loopback is private, and a policy that accepts only 127.0.0.0/8 does not count as one.
        // An exit may hear of a new relay later than the client does, and would refuse its streams until then.
        &["ExitRelay 1", "ExitPolicyRejectPrivate 0", "ExitPolicy accept *:*", "RefuseUnknownExits 0"]
    } else {
        &["ExitRelay 0", "ExitPolicy reject *:*"]
    };
    lines.extend(exit.iter().map(|line| (*line).to_owned()));
    text(&lines)
}

pub(super) fn client(shared: &Shared, dir: &Path, socks_port: u16) -> String {
    let mut lines = basics(shared, dir);
    lines.extend(stock(dir));
    lines.extend([
        format!("SocksPort 127.0.0.1:{socks_port}"),
        // What a client learns and tries out by itself would differ from run to run.
        "LearnCircuitBuildTimeout 0".to_owned(),
        "CircuitBuildTimeout 30".to_owned(),
        "ConfluxEnabled 0".to_owned(),
        // The authorities hold what they list. A cache that a client asks before it has a new relay's descriptor is not
        // asked again until the next consensus, and with a handful of caches nobody is left.
        "FetchDirInfoEarly 1".to_owned(),
        // As in the live network, where a parameter asks for it. A stock relay that is told no Ed25519 identity, and
        // has not heard of that relay, opens one channel after the other to it, and closes the others later with their
        // circuits.
        "ExtendByEd25519ID 1".to_owned(),
    ]);
    lines.extend(shared.options.client_torrc.iter().cloned());
    text(&lines)
}

fn text(lines: &[String]) -> String {
    lines.join("\n") + "\n"
}
