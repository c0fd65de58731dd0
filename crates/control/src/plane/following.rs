//! The consensus: fetching it, and telling the shards what it says.

use super::{ControlPlane, Purpose};
use crate::exchanges::Request;
use crate::guard::guarded;
use heddle_dir::authority::DirAuthority;
use heddle_dir::consensus::client::FetchError;
use heddle_dir::consensus::{Consensus, Relay};
use heddle_dir::http::{HttpError, HttpResponse};
use heddle_proto::ids::{Ed25519Id, RsaId};
use heddle_proto::params::NetworkParams;
use heddle_relay::{Control, ListedRelay, Relays};
use heddle_seam::time::{Duration, Instant};
use std::sync::Arc;

/// What the relay can do, in the words of tor-spec ("Subprotocol versioning"); nothing that is not
/// implemented.
pub(super) const PROTOCOLS: &str = "Cons=2 Desc=2 FlowCtrl=1-2 Link=4-5 LinkAuth=3 Microdesc=2 Relay=2-4";
/// Between two warnings of troubles with directories.
const COMPLAIN_EVERY: Duration = Duration::from_secs(3600);

impl ControlPlane {
    /// Asks a directory if that is due.
    pub(super) fn fetch(&mut self, now: Instant) {
        let now_unix_s = self.unix_s(now);
        match self.directory.poll(now, now_unix_s, &mut self.rng) {
            Ok(None) => {}
            Ok(Some(ask)) => {
                let request = Request {
                    to: ask.to,
                    bytes: ask.request,
                    body_bytes_max: ask.body_bytes_max,
                    within: ask.within,
                };
                self.ask(now, request, Purpose::Fetch);
            }
            Err(error) => self.on_round(now, Err(error)),
        }
    }

    pub(super) fn on_fetched(&mut self, now: Instant, answer: Result<HttpResponse, HttpError>) {
        let now_unix_s = self.unix_s(now);
        // A directory client takes documents one by one, each when it has been read, so a panic leaves it whole.
        let result = guarded(|| self.directory.on_answer(now, now_unix_s, answer, &mut self.rng));
        let result = result.unwrap_or_else(|panic| {
            self.directory.give_up(now_unix_s, &mut self.rng);
            Some(Err(FetchError::Panicked(panic)))
        });
        match result {
            None => self.fetch(now),
            Some(result) => self.on_round(now, result),
        }
    }

    fn on_round(&mut self, now: Instant, result: Result<(), FetchError>) {
        match result {
            Ok(()) => self.complained_at = None,
            // The consensus is in use all the same.
            Err(error @ FetchError::Write { .. }) => self.complain(now, &error),
            Err(error) => {
                let now_unix_s = self.unix_s(now);
                let is_live = |consensus: &Arc<Consensus>| consensus.is_live(now_unix_s);
                return match self.directory.consensus().is_some_and(is_live) {
                    true => log::debug!("No newer consensus: {error}"),
                    false => self.complain(now, &error),
                };
            }
        }
        let relays = self.directory.consensus().map_or(0, |consensus| consensus.relays.len());
        log::info!("A new consensus lists {relays} relays");
        self.tell_missing();
        self.tell_params();
        self.tell_peers();
    }

    /// Warns of a trouble with directories, at most once an hour: tries come more often.
    fn complain(&mut self, now: Instant, error: &FetchError) {
        if self.complained_at.is_none_or(|at| now.since(at) >= COMPLAIN_EVERY) {
            self.complained_at = Some(now);
            log::warn!("The directory: {error}");
        }
    }

    /// Says what the network recommends or requires of relays and Heddle does not have yet. Stock Tor
    /// stops when it is too old for the network; Heddle is not too old, and goes on with what it has.
    fn tell_missing(&mut self) {
        let missing = self.directory.consensus().and_then(|consensus| consensus.missing_protocols(PROTOCOLS));
        let missing = missing.map(|missing| missing.explanation);
        if missing != self.missing {
            if let Some(explanation) = &missing {
                log::info!("Not all that the network asks of relays is implemented: {explanation}");
            }
            self.missing = missing;
        }
    }

    pub(super) fn tell_params(&mut self) {
        let params = self.directory.consensus().map(|consensus| consensus.params.clone()).unwrap_or_default();
        let params = Arc::new(NetworkParams(params));
        self.tell(|| Control::Params(params.clone()));
        let padding = heddle_assembly::padding(&params);
        if padding != self.padding {
            self.padding = padding;
            self.replace_transports();
        }
    }

    /// Says which relays there are, and where they and the authorities listen.
    pub(super) fn tell_peers(&mut self) {
        let consensus = self.directory.consensus().cloned();
        let listed = |relay: &Relay| ListedRelay {
            rsa: RsaId(relay.rsa_id),
            ed25519: relay.ed25519_id.map(Ed25519Id),
            or_addrs: relay.or_addresses.clone(),
        };
        let relays = consensus.iter().flat_map(|consensus| &consensus.relays).map(listed);
        let ports = self.options.authorities.iter().flat_map(DirAuthority::ports);
        let peers = Arc::new(Relays::new(relays, ports));
        let ours = self.identity.keys.rsa_id();
        self.tell_facts(|facts| {
            let Some(consensus) = consensus else { return };
            let known = consensus.relays.iter().filter(|relay| relay.ed25519_id.is_some());
            facts.flags = consensus.relay(&ours).map(|relay| relay.flags);
            facts.relays = known.count() as u64;
        });
        self.tell(|| Control::Peers(peers.clone()));
    }
}
