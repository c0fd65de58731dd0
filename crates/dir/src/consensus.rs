//! The consensus: what the authorities agree on about the network.
//!
//! Relays follow the `microdesc` flavour (dir-spec, section 3.9.2). This file turns its text
//! into [`Consensus`] after checking the authorities' signatures; [`client`] fetches and keeps
//! it.

pub mod client;
mod documents;
mod round;
mod schedule;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

use heddle_proto::channel::Target;
use heddle_proto::ids::{Ed25519Id, RsaId};
use tor_checkable::{ExternallySigned, TimeBound};
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::doc::netstatus::{
    MdConsensus, MdRouterStatus, ProtoStatus, RelayWeight, UnvalidatedMdConsensus,
};
use tor_netdoc::types::relay_flags::RelayFlag;

pub use documents::{AuthorityCerts, Microdesc, Microdescs};

use crate::authority::DirAuthority;
use crate::iso_time;
use crate::keys::DAY_S;
use crate::publish::Listing;

/// The longest consensus that is read, in bytes; the public network's has about 3 million.
pub(crate) const CONSENSUS_BYTES_MAX: usize = 16 << 20;

/// Signatures of one authority that a consensus may have: one is usual, of each algorithm and key that there is.
const SIGNATURES_OF_ONE_MAX: usize = 4;
/// And of authorities that we do not know, which are not checked.
const SIGNATURES_OF_OTHERS_MAX: usize = 100;

/// For how long before its beginning and after its end a consensus is still better than none (dir-spec, section 5.1).
const REASONABLY_LIVE_S: u64 = DAY_S;

/// A verified consensus.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Consensus {
    /// From when it holds, in seconds since 1970.
    pub valid_after_unix_s: u64,
    /// Until when there is no newer one.
    pub fresh_until_unix_s: u64,
    /// Until when it holds.
    pub valid_until_unix_s: u64,
    /// The network parameters (param-spec).
    pub params: BTreeMap<String, i32>,
    /// How much a relay's bandwidth counts in a position of a path, by its flags: `Wgg` and so on (dir-spec, section
    /// 3.8.3).
    pub bandwidth_weights: BTreeMap<String, i32>,
    /// The relays that are running, in order of their RSA identities.
    pub relays: Vec<Relay>,
    relay_protocols: ProtoStatus,
}

/// Subprotocols that the authorities want of relays and this one lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolsMissing {
    /// Whether they are required, so that the relay must stop; otherwise they are recommended.
    pub required: bool,
    /// A sentence that names them.
    pub explanation: String,
}

/// A relay as a consensus lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relay {
    /// Its nickname, which proves nothing.
    pub nickname: String,
    /// The SHA-1 of its RSA identity key.
    pub rsa_id: [u8; 20],
    /// Its Ed25519 identity; `None` until its microdescriptor is known.
    pub ed25519_id: Option<[u8; 32]>,
    /// Its ntor onion key; `None` until its microdescriptor is known.
    pub ntor_onion_key: Option<[u8; 32]>,
    /// The SHA-256 of its microdescriptor.
    pub microdesc_digest: [u8; 32],
    /// Its ORPorts, the one over IPv4 first.
    pub or_addresses: Vec<SocketAddr>,
    /// Its flags.
    pub flags: RelayFlags,
    /// Its bandwidth in kilobytes per second, as the authorities measured it, or as it says itself.
    pub bandwidth: u32,
    /// The ports that it lets out to most IPv4 addresses, first and last of each range; empty until its microdescriptor
    /// is known.
    pub exit_ports: Vec<(u16, u16)>,
    /// Its subprotocol versions, `Link=4-5 Relay=2-4` for instance.
    pub protocols: String,
}

/// The flags that a consensus gives a relay (dir-spec, section 3.4.2). Those listed are running
/// and valid by being listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "they are flags by name")]
pub struct RelayFlags {
    /// It is a directory authority.
    pub authority: bool,
    /// It must not be used as an exit.
    pub bad_exit: bool,
    /// It lets many ports out.
    pub exit: bool,
    /// It carries high-bandwidth circuits.
    pub fast: bool,
    /// It is fit to be a client's entry.
    pub guard: bool,
    /// It keeps onion service descriptors.
    pub hs_dir: bool,
    /// It is fit for long-lived circuits.
    pub stable: bool,
    /// The authorities want a new descriptor from it.
    pub stale_desc: bool,
    /// It answers directory requests.
    pub v2_dir: bool,
}

/// Why a text is not a consensus to believe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsensusError {
    /// It is no microdesc consensus; the parser says why.
    Malformed(String),
    /// These authorities' certificates are needed to check it, by their voting identities.
    CertsMissing(Vec<[u8; 20]>),
    /// It is not signed by more than half of the authorities.
    Unsigned,
}

impl fmt::Display for ConsensusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConsensusError::Malformed(problem) => write!(f, "the consensus is malformed: {problem}"),
            ConsensusError::CertsMissing(ids) => {
                write!(f, "the certificates of {} authorities are needed to check the consensus", ids.len())
            }
            ConsensusError::Unsigned => {
                f.write_str("fewer than half of the authorities have signed the consensus")
            }
        }
    }
}

impl std::error::Error for ConsensusError {}

impl Consensus {
    /// Parses `text`, and checks that more than half of the voting `authorities` have signed it.
    /// Its times are left for [`Consensus::is_live`] to judge.
    pub fn parse(
        text: &str,
        authorities: &[DirAuthority],
        certs: &AuthorityCerts,
    ) -> Result<Self, ConsensusError> {
        // One that several lines name, to be asked at several addresses, has one vote all the same.
        let voters: BTreeSet<[u8; 20]> =
            authorities.iter().filter_map(|authority| authority.v3_ident).collect();
        let voters: Vec<RsaIdentity> = voters.into_iter().map(RsaIdentity::from).collect();
        // Whoever sends it cannot have us check as many signatures as he likes: each that is wrong costs as much.
        let signatures = text.lines().filter(|line| line.starts_with("directory-signature ")).count();
        if signatures > voters.len() * SIGNATURES_OF_ONE_MAX + SIGNATURES_OF_OTHERS_MAX {
            return Err(ConsensusError::Malformed(format!("it has {signatures} signatures")));
        }
        let consensus = verify(unverified(text)?.set_n_authorities(voters.len()), &voters, certs)?;
        Ok(Self::from_parsed(&consensus))
    }

    /// What `text` says, whoever wrote it: for looking at a consensus, never for following it.
    pub fn parse_unverified(text: &str) -> Result<Self, ConsensusError> {
        Ok(Self::from_parsed(&unverified(text)?.dangerously_assume_wellsigned()))
    }

    fn from_parsed(consensus: &MdConsensus) -> Self {
        let lifetime = consensus.lifetime();
        let mut relays: Vec<Relay> = consensus.relays().iter().map(Relay::from_parsed).collect();
        relays.sort_by_key(|relay| relay.rsa_id);
        let params = consensus.params().iter();
        let weights = consensus.bandwidth_weights().iter();
        Consensus {
            valid_after_unix_s: iso_time::from_system_time(lifetime.valid_after()),
            fresh_until_unix_s: iso_time::from_system_time(lifetime.fresh_until()),
            valid_until_unix_s: iso_time::from_system_time(lifetime.valid_until()),
            // Gathered into an ordered map, so the hash map's order does not get out.
            params: params.map(|(name, value)| (name.clone(), *value)).collect(),
            bandwidth_weights: weights.map(|(name, value)| (name.clone(), *value)).collect(),
            relays,
            relay_protocols: consensus.relay_protocol_status().clone(),
        }
    }

    /// What a relay that speaks the subprotocols `supported` lacks, if anything (tor-spec,
    /// section 9; dir-spec, section 3.4.1 "required-relay-protocols").
    pub fn missing_protocols(&self, supported: &str) -> Option<ProtocolsMissing> {
        // A malformed list supports nothing.
        let supported = supported.parse().unwrap_or_default();
        let missing = self.relay_protocols.check_protocols(&supported).err()?;
        Some(ProtocolsMissing { required: missing.should_shutdown(), explanation: missing.to_string() })
    }

    /// Whether it holds now.
    pub fn is_live(&self, now_unix_s: u64) -> bool {
        (self.valid_after_unix_s..=self.valid_until_unix_s).contains(&now_unix_s)
    }

    /// Whether it holds, ended less than a day ago, or begins in less than one, so that it may serve for want of
    /// another.
    pub fn is_reasonably_live(&self, now_unix_s: u64) -> bool {
        let start = self.valid_after_unix_s.saturating_sub(REASONABLY_LIVE_S);
        let end = self.valid_until_unix_s.saturating_add(REASONABLY_LIVE_S);
        (start..=end).contains(&now_unix_s)
    }

    /// The relay with the RSA identity `rsa_id`.
    pub fn relay(&self, rsa_id: &[u8; 20]) -> Option<&Relay> {
        let index = self.relays.binary_search_by_key(rsa_id, |relay| relay.rsa_id).ok()?;
        self.relays.get(index)
    }

    /// Whether it lists a relay with both identities. A relay whose microdescriptor is not known
    /// yet counts by its RSA identity alone.
    pub fn contains(&self, rsa_id: &[u8; 20], ed25519_id: &[u8; 32]) -> bool {
        self.relay(rsa_id).is_some_and(|relay| relay.ed25519_id.is_none_or(|known| known == *ed25519_id))
    }

    /// How it lists the relay `rsa_id`, for [`crate::publish::PublishSchedule`].
    pub fn listing(&self, rsa_id: &[u8; 20]) -> Listing {
        match self.relay(rsa_id) {
            None => Listing::Unlisted,
            Some(relay) if relay.flags.stale_desc => Listing::Stale { since_unix_s: self.valid_after_unix_s },
            Some(_) => Listing::Listed,
        }
    }

    /// The SHA-256 of the microdescriptors that it lists.
    pub(crate) fn microdesc_digests(&self) -> BTreeSet<[u8; 32]> {
        self.relays.iter().map(|relay| relay.microdesc_digest).collect()
    }

    /// Fills in what the microdescriptors say of the relays, and says whether all of them are known.
    pub fn apply_microdescs(&mut self, microdescs: &Microdescs) -> bool {
        let mut is_whole = true;
        for relay in &mut self.relays {
            let Some(microdesc) = microdescs.get(&relay.microdesc_digest) else {
                is_whole = false;
                continue;
            };
            relay.ed25519_id = Some(microdesc.ed25519_id);
            relay.ntor_onion_key = Some(microdesc.ntor_onion_key);
            relay.exit_ports.clone_from(&microdesc.exit_ports);
        }
        is_whole
    }
}

impl Relay {
    /// Where a circuit is extended to, and with which ntor key; `None` until its microdescriptor is known.
    pub fn hop(&self) -> Option<(Target, [u8; 32])> {
        let ed25519 = Some(Ed25519Id(self.ed25519_id?));
        let target = Target { rsa: RsaId(self.rsa_id), ed25519, addrs: self.or_addresses.clone() };
        Some((target, self.ntor_onion_key?))
    }

    fn from_parsed(status: &MdRouterStatus) -> Self {
        let has = |flag| status.flags().contains(flag);
        Relay {
            nickname: status.nickname().to_owned(),
            rsa_id: status.rsa_identity().to_bytes(),
            ed25519_id: None,
            ntor_onion_key: None,
            microdesc_digest: *status.md_digest(),
            or_addresses: status.addrs().collect(),
            flags: RelayFlags {
                authority: has(RelayFlag::Authority),
                bad_exit: has(RelayFlag::BadExit),
                exit: has(RelayFlag::Exit),
                fast: has(RelayFlag::Fast),
                guard: has(RelayFlag::Guard),
                hs_dir: has(RelayFlag::HSDir),
                stable: has(RelayFlag::Stable),
                stale_desc: has(RelayFlag::StaleDesc),
                v2_dir: has(RelayFlag::V2Dir),
            },
            bandwidth: match *status.weight() {
                RelayWeight::Measured(bandwidth) | RelayWeight::Unmeasured(bandwidth) => bandwidth,
                _ => 0,
            },
            exit_ports: Vec::new(),
            protocols: status.protovers().to_string(),
        }
    }
}

fn unverified(text: &str) -> Result<UnvalidatedMdConsensus, ConsensusError> {
    let (_, _, unchecked) =
        MdConsensus::parse(text).map_err(|error| ConsensusError::Malformed(error.to_string()))?;
    Ok(unchecked.dangerously_assume_timely())
}

/// Checks the signatures of `unverified` by the authorities `voters`.
fn verify(
    unverified: UnvalidatedMdConsensus,
    voters: &[RsaIdentity],
    certs: &AuthorityCerts,
) -> Result<MdConsensus, ConsensusError> {
    let voters: Vec<&RsaIdentity> = voters.iter().collect();
    if !unverified.authorities_are_correct(&voters) {
        return Err(ConsensusError::Unsigned);
    }
    // Only our authorities' certificates may count; others are never put into `certs`, and
    // are left out here once more.
    let trusted = certs.of(&voters);
    if unverified.key_is_correct(&trusted).is_err() {
        // An authority may have signed with several keys.
        let missing: BTreeSet<[u8; 20]> = unverified
            .signing_cert_ids()
            .filter(|id| voters.contains(&&id.id_fingerprint))
            .filter(|id| !trusted.iter().any(|cert| cert.key_ids() == *id))
            .map(|id| id.id_fingerprint.to_bytes())
            .collect();
        return Err(ConsensusError::CertsMissing(missing.into_iter().collect()));
    }
    unverified.check_signature(&trusted).map_err(|_| ConsensusError::Unsigned)
}
