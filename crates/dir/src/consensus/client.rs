//! Fetching the consensus from the authorities, and keeping it on the disk.
//!
//! 1. At the start the cached files are read, so a restart asks nobody while they hold.
//! 2. When [`DirectoryClient::is_due`] says so, [`DirectoryClient::fetch`] asks one authority
//!    after the other, in random order, until one gives a newer consensus that verifies.
//! 3. If the certificates of its signers are not known, the same authority is asked for them.
//! 4. The microdescriptors that are missing follow, in requests of at most 92, from the same
//!    authority and then from the others.
//! 5. A directory that is too slow for all that, and a round of fetches that takes too long, are given up; what came
//!    by then is used ([`FetchLimits`]).
//! 6. Everything is written to `cached-microdesc-consensus`, `cached-certs` and
//!    `cached-microdescs`, as stock Tor names and writes them.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64ct::{Base64Unpadded, Encoding};
use heddle_seam::rng::Rng;

use super::documents::CERTS_BYTES_MAX;
use super::schedule::FetchSchedule;
use super::{AuthorityCerts, CONSENSUS_BYTES_MAX, Consensus, ConsensusError, Microdescs};
use crate::authority::DirAuthority;
use crate::disk;
use crate::http::{self, Directory, HttpError, HttpLimits};

const CONSENSUS_FILE: &str = "cached-microdesc-consensus";
const CERTS_FILE: &str = "cached-certs";
const MICRODESCS_FILE: &str = "cached-microdescs";
/// Where stock Tor appends microdescriptors before it rewrites the other file.
const MICRODESCS_JOURNAL_FILE: &str = "cached-microdescs.new";

/// The longest file of microdescriptors that is read, in bytes.
const MICRODESCS_BYTES_MAX: usize = 64 << 20;

/// How many microdescriptors one request asks for (dir-spec, section 4.4).
const MICRODESCS_PER_REQUEST: usize = 92;

const MICRODESCS_ANSWER_BYTES_MAX: usize = 2 << 20;

/// How long fetches may take, so that no directory can hold up the relay's knowledge of the network for long by
/// answering slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchLimits {
    /// One request and its answer.
    pub request: Duration,
    /// All requests to one directory for a consensus and certificates, and again all for microdescriptors. Of the
    /// public network's 3 MB, deflated to about 1 MB, and 90 requests for microdescriptors, a directory that gives
    /// 50 KB/s sends what is asked in less.
    pub directory: Duration,
    /// All requests of one round, to all directories.
    pub round: Duration,
}

impl Default for FetchLimits {
    fn default() -> Self {
        FetchLimits {
            request: Duration::from_secs(60),
            directory: Duration::from_secs(120),
            round: Duration::from_secs(600),
        }
    }
}

/// Follows the consensus. The calls that fetch block; one thread owns this.
pub struct DirectoryClient {
    cache_directory: PathBuf,
    authorities: Vec<DirAuthority>,
    source: Option<IpAddr>,
    certs: AuthorityCerts,
    microdescs: Microdescs,
    consensus: Option<Arc<Consensus>>,
    schedule: FetchSchedule,
    limits: FetchLimits,
}

/// Why there is no newer consensus.
#[derive(Debug)]
pub enum FetchError {
    /// There is nobody to ask: no `DirAuthority` line names a voting authority.
    NoAuthorities,
    /// An authority could not be asked.
    Http(HttpError),
    /// An authority refused.
    Refused { status: u16, reason: String },
    /// What came is not to be believed.
    Consensus(ConsensusError),
    /// What came ended long ago, or is no newer than what we have.
    NotNewer,
    /// The answer is no text.
    NotText,
    /// Reading what came panicked, which is a fault of ours; where, stands in the string.
    Panicked(String),
    /// It could not be written to the disk.
    Write { path: PathBuf, source: io::Error },
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FetchError::NoAuthorities => {
                f.write_str("no DirAuthority line has a v3ident: there is nobody to believe")
            }
            FetchError::Http(error) => error.fmt(f),
            FetchError::Refused { status, reason } => {
                write!(f, "the directory refused: {status} {reason}")
            }
            FetchError::Consensus(error) => error.fmt(f),
            FetchError::NotNewer => f.write_str("the directory has no newer consensus"),
            FetchError::NotText => f.write_str("the directory's answer is no text"),
            FetchError::Panicked(what) => write!(f, "what the directory sent could not be read: {what}"),
            FetchError::Write { path, source } => {
                write!(f, "{} can't be written: {source}", path.display())
            }
        }
    }
}

impl std::error::Error for FetchError {}

impl From<HttpError> for FetchError {
    fn from(error: HttpError) -> Self {
        FetchError::Http(error)
    }
}

impl From<ConsensusError> for FetchError {
    fn from(error: ConsensusError) -> Self {
        FetchError::Consensus(error)
    }
}

impl DirectoryClient {
    /// Follows the consensus of `authorities`, with its files in `cache_directory`
    /// (`CacheDirectory`, in stock Tor the `DataDirectory`). Cached files that can't be read or
    /// don't verify are as good as absent. Requests come from `source` if it is given.
    pub fn new(
        cache_directory: impl Into<PathBuf>,
        authorities: Vec<DirAuthority>,
        source: Option<IpAddr>,
        now_unix_s: u64,
        rng: &mut Rng,
    ) -> Self {
        let mut client = DirectoryClient {
            cache_directory: cache_directory.into(),
            authorities,
            source,
            certs: AuthorityCerts::default(),
            microdescs: Microdescs::default(),
            consensus: None,
            schedule: FetchSchedule::new(now_unix_s),
            limits: FetchLimits::default(),
        };
        client.load(now_unix_s, rng);
        client
    }

    /// The same client with other limits.
    #[must_use]
    pub fn with_limits(self, limits: FetchLimits) -> Self {
        DirectoryClient { limits, ..self }
    }

    /// The newest consensus, which may have ended; `None` before the first.
    pub fn consensus(&self) -> Option<&Arc<Consensus>> {
        self.consensus.as_ref()
    }

    /// Whether it is time to call [`DirectoryClient::fetch`].
    pub fn is_due(&self, now_unix_s: u64) -> bool {
        self.schedule.is_due(now_unix_s)
    }

    /// Fetches a newer consensus and what it needs. On failure the next time is later, and the
    /// error is the last authority's. After [`FetchError::Write`] the new consensus is in use
    /// all the same.
    pub fn fetch(&mut self, now_unix_s: u64, rng: &mut Rng) -> Result<(), FetchError> {
        match self.fetch_newer(now_unix_s, rng) {
            Ok((text, consensus)) => {
                self.schedule.on_consensus(&consensus, now_unix_s, rng);
                let valid_after_unix_s = consensus.valid_after_unix_s;
                self.consensus = Some(Arc::new(consensus));
                self.store(&text, valid_after_unix_s)
            }
            Err(error) => {
                self.schedule.on_failure(now_unix_s, rng);
                Err(error)
            }
        }
    }

    /// [`DirectoryClient::fetch`] did not run or did not return: the next time is later, as after an error of its own.
    pub fn give_up(&mut self, now_unix_s: u64, rng: &mut Rng) {
        self.schedule.on_failure(now_unix_s, rng);
    }

    fn fetch_newer(&mut self, now_unix_s: u64, rng: &mut Rng) -> Result<(String, Consensus), FetchError> {
        let directories = self.shuffled_directories(rng);
        let round = Deadline::after(self.limits.round);
        let mut last_error = FetchError::NoAuthorities;
        for (index, directory) in directories.iter().enumerate() {
            if round.has_passed() {
                break;
            }
            match self.fetch_consensus(*directory, round, now_unix_s) {
                Ok((text, mut consensus)) => {
                    self.fetch_microdescs(&consensus, &directories[index..], round);
                    consensus.apply_microdescs(&self.microdescs);
                    return Ok((text, consensus));
                }
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    fn ask(&self, directory: Directory, round: Deadline) -> Asked {
        let until = Deadline(round.0.min(Deadline::after(self.limits.directory).0));
        Asked { directory, until, request: self.limits.request }
    }

    /// The voting authorities in random order (Fisher and Yates).
    fn shuffled_directories(&self, rng: &mut Rng) -> Vec<Directory> {
        let voters = self.authorities.iter().filter(|a| a.v3_ident.is_some());
        let source = self.source;
        let mut directories: Vec<Directory> =
            voters.map(|a| Directory { address: a.dir_address.into(), source }).collect();
        for last in (1..directories.len()).rev() {
            let other = rng.below(last as u64 + 1);
            directories.swap(last, other as usize);
        }
        directories
    }

    /// Fetches and verifies a consensus that is newer than ours.
    fn fetch_consensus(
        &mut self,
        directory: Directory,
        round: Deadline,
        now_unix_s: u64,
    ) -> Result<(String, Consensus), FetchError> {
        let path = "/tor/status-vote/current/consensus-microdesc";
        let known_unix_s = self.consensus.as_ref().map(|known| known.valid_after_unix_s);
        let asked = self.ask(directory, round);
        let text = asked.get_text(path, known_unix_s, CONSENSUS_BYTES_MAX)?;
        let consensus = match Consensus::parse(&text, &self.authorities, &self.certs) {
            Err(ConsensusError::CertsMissing(_)) => {
                let certs = asked.get_text("/tor/keys/all", None, CERTS_BYTES_MAX)?;
                self.certs.add(&certs, &self.authorities, now_unix_s);
                Consensus::parse(&text, &self.authorities, &self.certs)?
            }
            parsed => parsed?,
        };
        let is_newer = known_unix_s.is_none_or(|known| consensus.valid_after_unix_s > known);
        if !is_newer || !consensus.is_reasonably_live(now_unix_s) {
            return Err(FetchError::NotNewer);
        }
        Ok((text, consensus))
    }

    /// Fetches the microdescriptors that are missing, and forgets those that nobody lists. What
    /// can't be had stays missing: the consensus is of use without.
    fn fetch_microdescs(&mut self, consensus: &Consensus, directories: &[Directory], round: Deadline) {
        let listed: BTreeSet<[u8; 32]> =
            consensus.relays.iter().map(|relay| relay.microdesc_digest).collect();
        self.microdescs.retain(|digest| listed.contains(digest));
        for directory in directories {
            let asked = self.ask(*directory, round);
            let missing: Vec<&[u8; 32]> =
                listed.iter().filter(|digest| self.microdescs.get(digest).is_none()).collect();
            for some in missing.chunks(MICRODESCS_PER_REQUEST) {
                let digests: Vec<String> =
                    some.iter().map(|digest| Base64Unpadded::encode_string(*digest)).collect();
                let path = format!("/tor/micro/d/{}", digests.join("-"));
                let Ok(text) = asked.get_text(&path, None, MICRODESCS_ANSWER_BYTES_MAX) else {
                    break;
                };
                self.microdescs.add(&text, |digest| some.contains(&digest));
            }
        }
    }

    fn load(&mut self, now_unix_s: u64, rng: &mut Rng) {
        if let Some(certs) = self.read_text(CERTS_FILE, CERTS_BYTES_MAX) {
            self.certs.add(&certs, &self.authorities, now_unix_s);
        }
        let Some(text) = self.read_text(CONSENSUS_FILE, CONSENSUS_BYTES_MAX) else {
            return;
        };
        let parsed = Consensus::parse(&text, &self.authorities, &self.certs).ok();
        let Some(mut consensus) = parsed.filter(|c| c.is_reasonably_live(now_unix_s)) else {
            return;
        };
        let listed: BTreeSet<[u8; 32]> =
            consensus.relays.iter().map(|relay| relay.microdesc_digest).collect();
        for name in [MICRODESCS_FILE, MICRODESCS_JOURNAL_FILE] {
            if let Some(text) = self.read_text(name, MICRODESCS_BYTES_MAX) {
                self.microdescs.add(&text, |digest| listed.contains(digest));
            }
        }
        consensus.apply_microdescs(&self.microdescs);
        self.schedule.on_consensus(&consensus, now_unix_s, rng);
        self.consensus = Some(Arc::new(consensus));
    }

    /// The text of a cached file. One that can't be read is fetched again, and the error, if it
    /// lasts, shows when it is written.
    fn read_text(&self, name: &str, bytes_max: usize) -> Option<String> {
        let bytes = disk::read(&self.cache_directory.join(name), bytes_max).ok()??;
        String::from_utf8(bytes.to_vec()).ok()
    }

    fn store(&self, consensus: &str, last_listed_unix_s: u64) -> Result<(), FetchError> {
        let directory = &self.cache_directory;
        disk::create_private_dir(directory)
            .map_err(|source| FetchError::Write { path: directory.clone(), source })?;
        let microdescs = self.microdescs.to_text(last_listed_unix_s);
        for (name, text) in [
            (CERTS_FILE, self.certs.to_text().as_str()),
            (MICRODESCS_FILE, &microdescs),
            (CONSENSUS_FILE, consensus),
        ] {
            let path = self.cache_directory.join(name);
            disk::write(&path, text.as_bytes()).map_err(|source| FetchError::Write { path, source })?;
        }
        Ok(())
    }
}

/// When time is up.
#[derive(Clone, Copy)]
struct Deadline(Instant);

impl Deadline {
    fn after(time: Duration) -> Self {
        Deadline(Instant::now() + time)
    }

    fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    fn has_passed(self) -> bool {
        self.left().is_zero()
    }
}

/// A directory that is asked, and the time that it has for all requests.
#[derive(Clone, Copy)]
struct Asked {
    directory: Directory,
    until: Deadline,
    request: Duration,
}

impl Asked {
    fn get_text(
        &self,
        path: &str,
        newer_than_unix_s: Option<u64>,
        body_bytes_max: usize,
    ) -> Result<String, FetchError> {
        let limits = HttpLimits { timeout: self.request.min(self.until.left()), body_bytes_max };
        let response = http::get(self.directory, path, newer_than_unix_s, limits)?;
        match response.status {
            200 => String::from_utf8(response.body).map_err(|_| FetchError::NotText),
            304 => Err(FetchError::NotNewer),
            status => Err(FetchError::Refused { status, reason: response.reason }),
        }
    }
}
