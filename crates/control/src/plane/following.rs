//! The consensus: fetching it, and what it says for the shards.

use crate::options::ControlOptions;
use heddle_dir::authority::DirAuthority;
use heddle_dir::consensus::client::{DirectoryClient, FetchError};
use heddle_dir::consensus::{Consensus, Relay};
use heddle_dir::files::Files;
use heddle_dir::http::{HttpError, HttpResponse, Request};
use heddle_proto::ids::{Ed25519Id, RsaId};
use heddle_proto::params::NetworkParams;
use heddle_relay::{ListedRelay, Relays};
use heddle_seam::rng::Rng;
use heddle_seam::time::{Duration, Instant};
use std::sync::Arc;

/// What the relay can do, in the words of tor-spec ("Subprotocol versioning"); nothing that is not
/// implemented.
pub const PROTOCOLS: &str = "Cons=2 Desc=2 FlowCtrl=1-2 Link=4-5 LinkAuth=3 Microdesc=2 Relay=2-4";
/// Between two warnings of troubles with directories.
const COMPLAIN_EVERY: Duration = Duration::from_secs(3600);

pub(crate) struct Following {
    client: DirectoryClient,
    complained_at: Option<Instant>,
    /// What the network asks of relays and we lack, as it was last logged.
    missing: Option<String>,
}

impl Following {
    pub fn new(options: &ControlOptions, files: Arc<dyn Files>, now_unix_s: u64, rng: &mut Rng) -> Self {
        let (directory, authorities) = (&options.cache_directory, options.authorities.clone());
        let client = DirectoryClient::new(files, directory, authorities, now_unix_s, rng);
        Following { client, complained_at: None, missing: None }
    }

    /// The newest consensus, which may have ended.
    pub fn consensus(&self) -> Option<&Consensus> {
        self.client.consensus().map(|consensus| &**consensus)
    }

    /// Whether a round of fetches is under way.
    pub fn is_fetching(&self) -> bool {
        self.client.is_fetching()
    }

    pub fn params(&self) -> Arc<NetworkParams> {
        let params = self.consensus().map(|consensus| consensus.params.clone());
        Arc::new(NetworkParams(params.unwrap_or_default()))
    }

    /// Which relays there are, and where they and the authorities listen.
    pub fn peers(&self, authorities: &[DirAuthority]) -> Arc<Relays> {
        let listed = |relay: &Relay| ListedRelay {
            rsa: RsaId(relay.rsa_id),
            ed25519: relay.ed25519_id.map(Ed25519Id),
            or_addrs: relay.or_addresses.clone(),
        };
        let relays = self.consensus().into_iter().flat_map(|consensus| &consensus.relays).map(listed);
        Arc::new(Relays::new(relays, authorities.iter().flat_map(DirAuthority::ports)))
    }

    /// What to ask a directory now, if anything.
    pub fn poll(&mut self, now: Instant, now_unix_s: u64, rng: &mut Rng) -> Option<Request> {
        self.client.poll(now, now_unix_s, rng).unwrap_or_else(|error| {
            self.on_trouble(now, now_unix_s, &error);
            None
        })
    }

    /// What came of the last request. Says whether there is a new consensus, or more is known of the one there is.
    pub fn on_answer(
        &mut self,
        now: Instant,
        now_unix_s: u64,
        answer: Result<HttpResponse, HttpError>,
        rng: &mut Rng,
    ) -> bool {
        let before = self.client.consensus().cloned();
        match self.client.on_answer(now, now_unix_s, answer, rng) {
            None | Some(Ok(())) => {}
            Some(Err(error)) => self.on_trouble(now, now_unix_s, &error),
        }
        if let Some(panic) = self.client.take_panic() {
            log::error!("What a directory sent could not be read, which is a fault of ours: {panic}");
        }
        let is_new = self.client.consensus() != before.as_ref();
        if is_new {
            self.complained_at = None;
            self.tell_relays();
            self.tell_missing();
        }
        is_new
    }

    fn tell_relays(&self) {
        let relays = self.consensus().map_or(&[][..], |consensus| &consensus.relays);
        let unknown = relays.iter().filter(|relay| relay.ed25519_id.is_none()).count();
        match unknown {
            0 => log::info!("The consensus lists {} relays", relays.len()),
            _ => log::info!(
                "The consensus lists {} relays; the keys of {unknown} are not known yet",
                relays.len()
            ),
        }
    }

    /// Warns of a trouble with directories, at most once an hour: tries come more often. While there is a live
    /// consensus only one that is our own, such as a disk that is full, is worth a warning.
    fn on_trouble(&mut self, now: Instant, now_unix_s: u64, error: &FetchError) {
        let is_live = self.consensus().is_some_and(|consensus| consensus.is_live(now_unix_s));
        if is_live && !matches!(error, FetchError::Write { .. }) {
            log::debug!("No newer consensus: {error}");
        } else if self.complained_at.is_none_or(|at| now.since(at) >= COMPLAIN_EVERY) {
            self.complained_at = Some(now);
            log::warn!("The directory: {error}");
        }
    }

    /// Says what the network recommends or requires of relays and Heddle does not have yet. Stock Tor
    /// stops when it is too old for the network; Heddle is not too old, and goes on with what it has.
    fn tell_missing(&mut self) {
        let missing = self.consensus().and_then(|consensus| consensus.missing_protocols(PROTOCOLS));
        let missing = missing.map(|missing| missing.explanation);
        if missing != self.missing {
            if let Some(explanation) = &missing {
                log::info!("Not all that the network asks of relays is implemented: {explanation}");
            }
            self.missing = missing;
        }
    }
}
