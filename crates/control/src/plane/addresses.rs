//! Our address, where the machine does not know the one at which others reach it.
//!
//! 1. What the operator says, and an address of the machine itself that others can reach, is taken as it is.
//! 2. Behind a translation of addresses neither is there. An authority is asked then, by a circuit to it alone: in its
//!    NETINFO it says from which address we came (tor-spec, "NETINFO cells").
//! 3. Authorities are believed and nobody else, and only about addresses that others can reach and that are not their
//!    own, as stock Tor does it.
//! 4. They are asked again from time to time, because such addresses change.

use crate::language::Wanted;
use crate::options::ControlOptions;
use heddle_dir::authority::DirAuthority;
use heddle_dir::consensus::Consensus;
use heddle_proto::ids::RsaId;
use heddle_proto::policy::is_global;
use heddle_relay::{Control, ProbeHop};
use heddle_seam::rng::Rng;
use heddle_seam::time::{Duration, Instant};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Between two questions, as in stock Tor (`DUMMY_DOWNLOAD_INTERVAL`).
const ASK_EVERY: Duration = Duration::from_secs(20 * 60);
/// The same while nobody has told it.
const ASK_AGAIN: Duration = Duration::from_secs(60);
/// Between two warnings that nobody has.
const COMPLAIN_EVERY: Duration = Duration::from_secs(3600);

pub(crate) struct Addresses {
    /// As the options have it; 0.0.0.0 stands for what is to be learnt.
    options: Vec<SocketAddr>,
    learnt: Option<Ipv4Addr>,
    /// The same with what was learnt, and without what was not.
    advertised: Vec<SocketAddr>,
    asked_at: Option<Instant>,
    complained_at: Option<Instant>,
}

impl Addresses {
    pub fn new(options: &ControlOptions) -> Self {
        let mut addresses = Addresses {
            options: options.advertised.clone(),
            learnt: None,
            advertised: Vec::new(),
            asked_at: None,
            complained_at: None,
        };
        addresses.fill_in();
        addresses
    }

    /// Where we are reached, as far as that is known.
    pub fn advertised(&self) -> &[SocketAddr] {
        &self.advertised
    }

    /// The same without ports.
    pub fn ips(&self) -> Vec<IpAddr> {
        self.advertised.iter().map(SocketAddr::ip).collect()
    }

    /// What authorities told.
    pub fn learnt(&self) -> Option<Ipv4Addr> {
        self.learnt
    }

    /// Whether all addresses are known.
    pub fn are_known(&self) -> bool {
        self.advertised.len() == self.options.len()
    }

    /// Has a shard ask an authority, when that is due and the consensus lists one.
    pub fn ask(
        &mut self,
        now: Instant,
        consensus: &Consensus,
        authorities: &[DirAuthority],
        rng: &mut Rng,
    ) -> Option<Wanted> {
        let every = if self.learnt.is_some() { ASK_EVERY } else { ASK_AGAIN };
        let is_due = self.asked_at.is_none_or(|at| now.since(at) >= every);
        if !self.is_learnt() || !is_due {
            return None;
        }
        let listed = consensus.relays.iter().filter(|relay| is_of(authorities, &relay.rsa_id));
        let mut hops: Vec<_> = listed.filter_map(|relay| relay.hop()).collect();
        let chosen = usize::try_from(rng.below(hops.len() as u64)).ok()?;
        let (target, ntor_key) = (chosen < hops.len()).then(|| hops.swap_remove(chosen))?;
        if self.asked_at.is_some() {
            self.complain(now);
        }
        self.asked_at = Some(now);
        log::debug!("Asking the authority {} for our address", target.rsa);
        let control = Control::AskAddress { authority: ProbeHop { target, ntor_key } };
        Some(Wanted::Tell { shard: 0, control })
    }

    /// A relay that was dialled at an address sees ours so. Says whether that is news.
    pub fn on_seen(&mut self, ours: IpAddr, by: RsaId, at: IpAddr, authorities: &[DirAuthority]) -> bool {
        let IpAddr::V4(seen) = ours else { return false };
        if !self.is_learnt() || !is_of(authorities, &by.0) || ours == at || !is_global(ours) {
            return false;
        }
        if self.learnt == Some(seen) {
            return false;
        }
        log::info!("The authority {by} reaches us at {seen}, which is our address from now on");
        self.learnt = Some(seen);
        self.fill_in();
        true
    }

    /// Warns when nobody has told our address, at most once an hour.
    fn complain(&mut self, now: Instant) {
        let is_due = self.complained_at.is_none_or(|at| now.since(at) >= COMPLAIN_EVERY);
        if self.learnt.is_none() && is_due {
            self.complained_at = Some(now);
            log::warn!(
                "No authority has told us our address yet, and without it nothing is published; if it does not change, \
                 a line such as `Address 192.0.2.1` says it"
            );
        }
    }

    /// Whether there is an address that only authorities can tell.
    fn is_learnt(&self) -> bool {
        self.options.iter().any(|addr| addr.ip().is_unspecified())
    }

    fn fill_in(&mut self) {
        let known = |addr: &SocketAddr| match addr.ip().is_unspecified() {
            true => Some(SocketAddr::from((self.learnt?, addr.port()))),
            false => Some(*addr),
        };
        self.advertised = self.options.iter().filter_map(known).collect();
    }
}

fn is_of(authorities: &[DirAuthority], rsa_id: &[u8; 20]) -> bool {
    authorities.iter().any(|authority| authority.rsa_id == *rsa_id)
}
