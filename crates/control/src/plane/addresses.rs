//! Our addresses: the machine's, and what authorities say where it does not know the one at which others reach it.
//!
//! 1. What the operator says, and an address of the machine itself that others can reach, is taken as it is.
//! 2. Behind a translation of addresses neither is there. An authority is dialled then: in its NETINFO it says from
//!    which address we came (tor-spec, "NETINFO cells").
//! 3. Authorities are believed and nobody else, where they are known to be and not where a circuit may have us dial
//!    them, and only about addresses that others can reach and that are not their own. So does stock Tor.
//! 4. They are asked again from time to time, because such addresses change. Another one counts when a second answer
//!    says the same, of another authority if another one answers.
//! 5. The driver looks once a minute whether the machine's own are others, because these change, too; two looks that
//!    find the same count. What the operator fixed is the same each time. One that others cannot reach sends us to the
//!    authorities, as at the start.

use crate::language::Wanted;
use crate::options::ControlOptions;
use heddle_dir::authority::DirAuthority;
use heddle_dir::consensus::{Consensus, Relay};
use heddle_proto::ids::{Ed25519Id, RelayIds, RsaId};
use heddle_proto::policy::is_global;
use heddle_relay::Control;
use heddle_seam::rng::Rng;
use heddle_seam::time::{Duration, Instant};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Between an answer and the next question: stock Tor's `DUMMY_DOWNLOAD_INTERVAL`, but it asks no more once it knows.
const ASK_EVERY: Duration = Duration::from_secs(20 * 60);
/// Between a question that nobody answered, or an answer that needs a second one, and the next. It doubles.
const ASK_AGAIN: Duration = Duration::from_secs(60);
const DOUBLINGS_MAX: u32 = 4;
/// Questions to authorities other than the one that told another address.
const ANOTHERS_TRIES: u32 = 2;
/// So long after an answer, or a warning, one is missed.
const MISSED_AFTER: Duration = Duration::from_secs(3600);
/// Between two looks at the machine's own addresses: stock Tor's `CHECK_DESCRIPTOR_INTERVAL`.
const LOOK_EVERY: Duration = Duration::from_secs(60);

pub(crate) struct Addresses {
    /// As the driver found it; 0.0.0.0 stands for what is to be learnt.
    found: Vec<SocketAddr>,
    /// When the driver was asked last, or when the relay started.
    looked_at: Option<Instant>,
    /// What it found last, if that is something else and it has found it once.
    found_once: Option<Vec<SocketAddr>>,
    /// Whether the driver has found others since the start.
    have_changed: bool,
    learnt: Option<Ipv4Addr>,
    /// Another one, and which authority said so.
    next: Option<(Ipv4Addr, RsaId)>,
    /// The same as was found with what was learnt, and without what was not.
    advertised: Vec<SocketAddr>,
    ask_at: Option<Instant>,
    /// Questions since the last answer.
    unanswered: u32,
    missed_at: Option<Instant>,
}

impl Addresses {
    pub fn new(options: &ControlOptions) -> Self {
        let mut addresses = Addresses {
            found: kept(&options.advertised),
            looked_at: None,
            found_once: None,
            have_changed: false,
            learnt: None,
            next: None,
            advertised: Vec::new(),
            ask_at: None,
            unanswered: 0,
            missed_at: None,
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

    /// Whether they are others than at the start, when shards heard of them.
    pub fn are_others(&self) -> bool {
        self.have_changed || self.learnt.is_some()
    }

    /// Whether all addresses are known.
    pub fn are_known(&self) -> bool {
        self.advertised.len() == self.found.len()
    }

    /// Has the driver look at the machine's addresses, when that is due.
    pub fn look(&mut self, now: Instant) -> Option<Wanted> {
        let looked_at = *self.looked_at.get_or_insert(now);
        if now.since(looked_at) < LOOK_EVERY {
            return None;
        }
        self.looked_at = Some(now);
        Some(Wanted::Addresses)
    }

    /// Where others dial us over IPv4, if that is known.
    pub fn ipv4(&self) -> Option<SocketAddr> {
        self.advertised.iter().copied().find(SocketAddr::is_ipv4)
    }

    /// The driver has found these. Says whether they are others than before, which they are when it has found them
    /// twice: an address that is gone for a moment costs no descriptor.
    pub fn on_found(&mut self, found: &[SocketAddr]) -> bool {
        let found = kept(found);
        if found == self.found || self.found_once.as_ref() != Some(&found) {
            self.found_once = Some(found).filter(|found| *found != self.found);
            return false;
        }
        let (before, were_known) = (shown(&self.advertised), self.are_known());
        (self.found, self.found_once, self.have_changed) = (found, None, true);
        if !self.is_any_learnt() {
            // Should one be learnt again later, that begins anew.
            (self.learnt, self.next, self.ask_at, self.unanswered) = (None, None, None, 0);
        }
        self.fill_in();
        if were_known && !self.are_known() {
            log::info!(
                "Our address changed from {before} to one at which others cannot reach us; directory authorities are \
                 asked for ours"
            );
        } else {
            log::info!("Our address changed from {before} to {}", shown(&self.advertised));
        }
        true
    }

    /// Has a shard ask an authority, when that is due and the consensus lists one.
    pub fn ask(
        &mut self,
        now: Instant,
        consensus: Option<&Consensus>,
        authorities: &[DirAuthority],
        rng: &mut Rng,
    ) -> Option<Wanted> {
        if !self.is_any_learnt() {
            return None;
        }
        self.complain(now);
        if self.ask_at.is_some_and(|at| now < at) {
            return None;
        }
        let relays = consensus.into_iter().flat_map(|consensus| &consensus.relays);
        let mut listed: Vec<_> = relays.filter_map(|relay| place(relay, authorities)).collect();
        let is_another = |(ids, _): &(RelayIds, _)| self.next.is_none_or(|(_, by)| ids.rsa != by);
        // If no other answers, the same may say it again.
        if self.unanswered < ANOTHERS_TRIES && listed.iter().any(is_another) {
            listed.retain(is_another);
        }
        let chosen = usize::try_from(rng.below(listed.len() as u64)).ok()?;
        let (authority, at) = (chosen < listed.len()).then(|| listed.swap_remove(chosen))?;
        self.ask_at = Some(now + ASK_AGAIN * (1 << self.unanswered.min(DOUBLINGS_MAX)));
        self.unanswered += 1;
        log::debug!("Asking the authority {} for our address", authority.rsa);
        Some(Wanted::Tell { shard: 0, control: Control::AskAddress { authority, at } })
    }

    /// A relay that was dialled at an address sees ours so. Says whether that is to count from now on.
    pub fn on_seen(
        &mut self,
        now: Instant,
        ours: IpAddr,
        (by, at): (RsaId, SocketAddr),
        authorities: &[DirAuthority],
    ) -> bool {
        let IpAddr::V4(seen) = ours else { return false };
        let is_believed = is_at(authorities, &by.0, at.ip()) && ours != at.ip() && is_global(ours);
        if !self.is_any_learnt() || !is_believed {
            return false;
        }
        (self.unanswered, self.missed_at) = (0, Some(now + MISSED_AFTER));
        self.ask_at = Some(now + ASK_EVERY);
        let next = self.next.take();
        if self.learnt == Some(seen) {
            return false;
        }
        if self.learnt.is_some() && next.is_none_or(|(next, _)| next != seen) {
            (self.next, self.ask_at) = (Some((seen, by)), Some(now + ASK_AGAIN));
            return false;
        }
        log::info!("The authority {by} sees us at {seen}, which is our address from now on");
        self.learnt = Some(seen);
        self.fill_in();
        true
    }

    /// Warns when nobody has told our address, or told it again.
    fn complain(&mut self, now: Instant) {
        let at = *self.missed_at.get_or_insert(now + ASK_AGAIN);
        if now < at {
            return;
        }
        self.missed_at = Some(now + MISSED_AFTER);
        match self.learnt {
            None => log::warn!(
                "No authority has told us our address yet, and without it nothing is published; if it does not change, \
                 a line such as `Address 192.0.2.1` says it"
            ),
            Some(ours) => {
                log::warn!("No authority has told us for an hour whether our address still is {ours}")
            }
        }
    }

    /// Whether there is an address that only authorities can tell.
    fn is_any_learnt(&self) -> bool {
        self.found.iter().any(|addr| addr.ip().is_unspecified())
    }

    fn fill_in(&mut self) {
        let learnt = self.learnt;
        let known = |addr: &SocketAddr| match addr.ip().is_unspecified() {
            true => Some(SocketAddr::from((learnt?, addr.port()))),
            false => Some(*addr),
        };
        self.advertised = self.found.iter().filter_map(known).collect();
    }
}

/// One IPv4 address is enough: none is learnt beside one that is known.
fn kept(found: &[SocketAddr]) -> Vec<SocketAddr> {
    let is_known = |addr: &SocketAddr| addr.is_ipv4() && !addr.ip().is_unspecified();
    let knows_ipv4 = found.iter().any(is_known);
    let kept = found.iter().filter(|addr| !knows_ipv4 || !addr.ip().is_unspecified());
    kept.copied().collect()
}

/// Addresses for the log. Several ports of one address stand beside one another.
fn shown(addrs: &[SocketAddr]) -> String {
    let mut ips: Vec<String> = addrs.iter().map(|addr| addr.ip().to_string()).collect();
    ips.dedup();
    if ips.is_empty() { "one that is not known".to_owned() } else { ips.join(" and ") }
}

/// Who a relay is and where it listens on IPv4, if it is an authority that listens there.
fn place(relay: &Relay, authorities: &[DirAuthority]) -> Option<(RelayIds, SocketAddr)> {
    let ids = RelayIds { rsa: RsaId(relay.rsa_id), ed25519: Ed25519Id(relay.ed25519_id?) };
    let at = *relay.or_addresses.iter().find(|addr| addr.is_ipv4())?;
    is_at(authorities, &relay.rsa_id, at.ip()).then_some((ids, at))
}

/// Whether the operator says that an authority of this identity is at this address.
fn is_at(authorities: &[DirAuthority], rsa_id: &[u8; 20], ip: IpAddr) -> bool {
    let ours = authorities.iter().filter(|authority| authority.rsa_id == *rsa_id);
    ours.flat_map(DirAuthority::ports).any(|addr| addr.ip() == ip)
}
