//! The consensus, followed on a thread of its own for each round of fetches, so that directories that are slow, and
//! answers that bring the reading of them to a panic, cost the relay nothing but that round.

use super::background::Background;
use heddle_dir::consensus::Consensus;
use heddle_dir::consensus::client::{DirectoryClient, FetchError};
use heddle_dir::http::HttpError;
use heddle_seam::rng::Rng;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(super) struct Follower {
    /// Locked by a round for as long as it lasts.
    client: Arc<Mutex<DirectoryClient>>,
    /// The newest, also while a round is under way.
    consensus: Option<Arc<Consensus>>,
    round: Option<Background<Result<(), FetchError>>>,
}

impl Follower {
    pub fn new(client: DirectoryClient) -> Self {
        let consensus = client.consensus().cloned();
        Follower { client: Arc::new(Mutex::new(client)), consensus, round: None }
    }

    pub fn consensus(&self) -> Option<&Consensus> {
        self.consensus.as_deref()
    }

    #[cfg(test)]
    pub fn is_fetching(&self) -> bool {
        self.round.is_some()
    }

    /// Starts a round when it is due, and tells what the last one came to, once. Never waits.
    pub fn poll(&mut self, now_unix_s: u64, rng: &mut Rng) -> Option<Result<(), FetchError>> {
        let Some(round) = &self.round else {
            let is_due = lock(&self.client).is_due(now_unix_s);
            return if is_due {
                self.start(now_unix_s, rng, DirectoryClient::fetch).err().map(Err)
            } else {
                None
            };
        };
        let result = round.poll()?;
        self.round = None;
        let mut client = lock(&self.client);
        self.consensus = client.consensus().cloned();
        Some(result.unwrap_or_else(|panic| {
            client.give_up(now_unix_s, rng);
            Err(FetchError::Panicked(panic))
        }))
    }

    pub(super) fn start(
        &mut self,
        now_unix_s: u64,
        rng: &mut Rng,
        fetch: impl FnOnce(&mut DirectoryClient, u64, &mut Rng) -> Result<(), FetchError> + Send + 'static,
    ) -> Result<(), FetchError> {
        let (client, mut round_rng) = (self.client.clone(), rng.split());
        let round = move || fetch(&mut lock(&client), now_unix_s, &mut round_rng);
        match Background::start("directory", round) {
            Ok(round) => self.round = Some(round),
            Err(error) => {
                lock(&self.client).give_up(now_unix_s, rng);
                return Err(HttpError::Io(error).into());
            }
        }
        Ok(())
    }
}

/// A client whose last round panicked is whole: it takes documents one by one, each when it has been read.
fn lock(client: &Mutex<DirectoryClient>) -> MutexGuard<'_, DirectoryClient> {
    client.lock().unwrap_or_else(PoisonError::into_inner)
}
