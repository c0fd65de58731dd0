//! Says what to fetch of the consensus and what belongs to it, and keeps what came.
//!
//! 1. At the start the cached files are read, so a restart asks nobody while they hold.
//! 2. When the schedule says so, [`DirectoryClient::poll`] begins a round: it asks one authority after the other, in
//!    random order, until one gives a newer consensus that verifies.
//! 3. If the certificates of its signers are not known, the same authority is asked for them.
//! 4. The microdescriptors that are missing follow, in requests of at most 92, from the same
//!    authority and then from the others.
//! 5. A directory that is too slow for all that, and a round of fetches that takes too long, are given up; what came
//!    by then is used ([`ROUND_MAX`]).
//! 6. Microdescriptors that are missing even so, or were lost from the disk, are asked for again by and by, of one
//!    authority at a time.
//! 7. Everything is written to `cached-microdesc-consensus`, `cached-certs` and
//!    `cached-microdescs`, as stock Tor names and writes them.
//!
//! Whoever owns the sockets carries out each [`Request`], one at a time, and gives what came of it to
//! [`DirectoryClient::on_answer`].

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use heddle_seam::rng::Rng;
use heddle_seam::time::Instant;

use super::documents::CERTS_BYTES_MAX;
use super::round::{Missing, Round, Stage};
pub use super::round::{REQUEST_MAX, ROUND_MAX};
use super::schedule::FetchSchedule;
use super::{AuthorityCerts, CONSENSUS_BYTES_MAX, Consensus, ConsensusError, Microdescs};
use crate::authority::DirAuthority;
use crate::files::Files;
use crate::guard::guarded;
use crate::http::{HttpError, HttpResponse, Request};

const CONSENSUS_FILE: &str = "cached-microdesc-consensus";
const CERTS_FILE: &str = "cached-certs";
const MICRODESCS_FILE: &str = "cached-microdescs";
/// Where stock Tor appends microdescriptors before it rewrites the other file.
const MICRODESCS_JOURNAL_FILE: &str = "cached-microdescs.new";

/// The longest file of microdescriptors that is read, in bytes.
const MICRODESCS_BYTES_MAX: usize = 64 << 20;

/// Follows the consensus.
pub struct DirectoryClient {
    files: Arc<dyn Files>,
    cache_directory: PathBuf,
    authorities: Vec<DirAuthority>,
    certs: AuthorityCerts,
    microdescs: Microdescs,
    consensus: Option<Arc<Consensus>>,
    schedule: FetchSchedule,
    /// When to ask for what is missing of the consensus' microdescriptors; `None` while nothing is.
    gaps: Option<FetchSchedule>,
    round: Option<Round>,
    /// The words of a panic that nobody has heard of yet.
    panic: Option<String>,
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
    /// What came is no newer than what we have.
    NotNewer,
    /// It is newer than ours, and does not hold now, nor about now.
    OfAnotherTime,
    /// The answer is no text.
    NotText,
    /// The certificates that came are not those of the signers.
    NoCerts,
    /// Reading what came panicked, which is a fault of ours, with these words.
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
            FetchError::OfAnotherTime => f.write_str(
                "the directory's consensus is more than a day from holding; look whether this machine's clock is right",
            ),
            FetchError::NotText => f.write_str("the directory's answer is no text"),
            FetchError::NoCerts => {
                f.write_str("the directory lacks certificates of those who signed the consensus")
            }
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
    /// don't verify are as good as absent.
    pub fn new(
        files: Arc<dyn Files>,
        cache_directory: impl Into<PathBuf>,
        authorities: Vec<DirAuthority>,
        now_unix_s: u64,
        rng: &mut Rng,
    ) -> Self {
        let mut client = DirectoryClient {
            files,
            cache_directory: cache_directory.into(),
            authorities,
            certs: AuthorityCerts::default(),
            microdescs: Microdescs::default(),
            consensus: None,
            schedule: FetchSchedule::new(now_unix_s),
            gaps: None,
            round: None,
            panic: None,
        };
        client.load(now_unix_s, rng);
        client
    }

    /// The newest consensus, which may have ended; `None` before the first.
    pub fn consensus(&self) -> Option<&Arc<Consensus>> {
        self.consensus.as_ref()
    }

    /// Whether a round is under way.
    pub fn is_fetching(&self) -> bool {
        self.round.is_some()
    }

    /// What to ask now, once; `None` while nothing is due or an answer is waited for. To be called about once a second,
    /// and after each answer.
    ///
    /// # Errors
    /// When a round is due and there is nobody to ask; the next try is later.
    pub fn poll(
        &mut self,
        now: Instant,
        now_unix_s: u64,
        rng: &mut Rng,
    ) -> Result<Option<Request>, FetchError> {
        if self.round.is_none() && self.schedule.is_due(now_unix_s) {
            match Round::start(self.shuffled_directories(rng), now) {
                Some(mut round) => {
                    round.ask_for_consensus(now, self.known_unix_s());
                    self.round = Some(round);
                }
                None => {
                    self.schedule.on_failure(now_unix_s, rng);
                    return Err(FetchError::NoAuthorities);
                }
            }
        }
        if self.round.is_none() && self.gaps.is_some_and(|gaps| gaps.is_due(now_unix_s)) {
            self.round = self.fill_gaps(now, now_unix_s, rng);
        }
        Ok(self.round.as_mut().and_then(Round::take_ask))
    }

    /// Begins to ask one authority for the microdescriptors that are missing.
    fn fill_gaps(&mut self, now: Instant, now_unix_s: u64, rng: &mut Rng) -> Option<Round> {
        // Whatever comes of it, the next try is later.
        self.gaps.as_mut()?.on_failure(now_unix_s, rng);
        let mut missing = Box::new(Missing::new(None, Consensus::clone(self.consensus.as_ref()?)));
        let one = self.shuffled_directories(rng).into_iter().take(1).collect();
        let mut round = Round::start(one, now)?;
        missing.ask(&mut round, now, &self.microdescs).then(|| {
            round.stage = Stage::Microdescs(missing);
            round
        })
    }

    /// What came of the last request, at the latest when its time is up. `None` means that more is to be asked;
    /// otherwise the round is over. On failure the next one is later, and the error is the last authority's. After
    /// [`FetchError::Write`] the new consensus is in use all the same.
    pub fn on_answer(
        &mut self,
        now: Instant,
        now_unix_s: u64,
        answer: Result<HttpResponse, HttpError>,
        rng: &mut Rng,
    ) -> Option<Result<(), FetchError>> {
        let mut round = self.round.take()?;
        let text = text_of(answer);
        let ended = match round.stage.take() {
            Stage::Consensus => match text.map(|text| (self.believe(&text, now_unix_s), text)) {
                Ok((Err(FetchError::Consensus(ConsensusError::CertsMissing(_))), text)) => {
                    round.ask(now, "/tor/keys/all", None, CERTS_BYTES_MAX);
                    round.stage = Stage::Certs { consensus: text };
                    None
                }
                Ok((believed, text)) => self.go_on(&mut round, now, believed.map(|it| (text, it))),
                Err(error) => self.go_on(&mut round, now, Err(error)),
            },
            Stage::Certs { consensus } => {
                let believed = text.and_then(|certs| {
                    let DirectoryClient { certs: known, authorities, .. } = self;
                    match read(|| known.add(&certs, authorities, now_unix_s))? {
                        // The consensus would be read for nothing.
                        0 => Err(FetchError::NoCerts),
                        _ => self.believe(&consensus, now_unix_s),
                    }
                });
                self.go_on(&mut round, now, believed.map(|it| (consensus, it)))
            }
            Stage::Microdescs(missing) => {
                let wanted = |digest: &[u8; 32]| missing.asked.contains(digest);
                let added = text.and_then(|text| read(|| self.microdescs.add(&text, wanted)));
                if let Err(error) = added {
                    self.note(&error);
                    round.leave_directory(now);
                }
                self.complete(&mut round, now, missing)
            }
        };
        match ended {
            None => self.round = Some(round),
            Some(Err(_)) => self.schedule.on_failure(now_unix_s, rng),
            Some(Ok(_)) => {}
        }
        Some(ended?.and_then(|(text, consensus)| self.adopt(text.as_deref(), consensus, now_unix_s, rng)))
    }

    /// The words of a panic over what a directory sent, once. It counts as that directory's error, and is a fault of
    /// ours.
    pub fn take_panic(&mut self) -> Option<String> {
        self.panic.take()
    }

    fn note(&mut self, error: &FetchError) {
        if let FetchError::Panicked(words) = error {
            self.panic = Some(words.clone());
        }
    }

    fn known_unix_s(&self) -> Option<u64> {
        self.consensus.as_ref().map(|known| known.valid_after_unix_s)
    }

    /// The voting authorities in random order (Fisher and Yates).
    fn shuffled_directories(&self, rng: &mut Rng) -> Vec<SocketAddr> {
        let voters = self.authorities.iter().filter(|authority| authority.v3_ident.is_some());
        let mut directories: Vec<SocketAddr> = voters.map(DirAuthority::download_address).collect();
        for last in (1..directories.len()).rev() {
            let other = rng.below(last as u64 + 1);
            directories.swap(last, other as usize);
        }
        directories
    }

    /// Verifies a consensus, which has to be newer than ours.
    fn believe(&self, text: &str, now_unix_s: u64) -> Result<Consensus, FetchError> {
        let consensus = read(|| Consensus::parse(text, &self.authorities, &self.certs))??;
        let is_newer = self.known_unix_s().is_none_or(|known| consensus.valid_after_unix_s > known);
        match (is_newer, consensus.is_reasonably_live(now_unix_s)) {
            (true, true) => Ok(consensus),
            (true, false) => Err(FetchError::OfAnotherTime),
            (false, _) => Err(FetchError::NotNewer),
        }
    }

    /// The present directory gave a consensus, or nothing that is of use: then the next one is asked.
    fn go_on(
        &mut self,
        round: &mut Round,
        now: Instant,
        result: Result<(String, Consensus), FetchError>,
    ) -> Option<Result<(Option<String>, Consensus), FetchError>> {
        match result {
            Ok((text, consensus)) => {
                let listed = consensus.microdesc_digests();
                self.microdescs.retain(|digest| listed.contains(digest));
                round.begin_turn(now);
                self.complete(round, now, Box::new(Missing::new(Some(text), consensus)))
            }
            Err(error) => {
                self.note(&error);
                round.leave_directory(now);
                if !round.go_on(now) {
                    return Some(Err(error));
                }
                round.ask_for_consensus(now, self.known_unix_s());
                None
            }
        }
    }

    /// Asks for microdescriptors that are missing. What can't be had stays missing: the consensus is of use without.
    fn complete(
        &mut self,
        round: &mut Round,
        now: Instant,
        mut missing: Box<Missing>,
    ) -> Option<Result<(Option<String>, Consensus), FetchError>> {
        while round.go_on(now) {
            if missing.ask(round, now, &self.microdescs) {
                round.stage = Stage::Microdescs(missing);
                return None;
            }
            if missing.is_complete(&self.microdescs) {
                break;
            }
            round.leave_directory(now);
        }
        Some(Ok((missing.text, missing.consensus)))
    }

    /// Takes a consensus into use, whose `text` is `None` where it is the one that we have and only microdescriptors
    /// came.
    fn adopt(
        &mut self,
        text: Option<&str>,
        mut consensus: Consensus,
        now_unix_s: u64,
        rng: &mut Rng,
    ) -> Result<(), FetchError> {
        let is_whole = consensus.apply_microdescs(&self.microdescs);
        if text.is_some() {
            self.schedule.on_consensus(&consensus, now_unix_s, rng);
            self.gaps = None;
        }
        // Gaps that were known before have their next try already.
        self.gaps = (!is_whole).then(|| {
            self.gaps.unwrap_or_else(|| {
                let mut gaps = FetchSchedule::new(now_unix_s);
                gaps.on_failure(now_unix_s, rng);
                gaps
            })
        });
        if text.is_none() && self.consensus.as_deref() == Some(&consensus) {
            return Ok(());
        }
        let valid_after_unix_s = consensus.valid_after_unix_s;
        self.consensus = Some(Arc::new(consensus));
        self.store(text, valid_after_unix_s)
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
        let listed = consensus.microdesc_digests();
        for name in [MICRODESCS_FILE, MICRODESCS_JOURNAL_FILE] {
            if let Some(text) = self.read_text(name, MICRODESCS_BYTES_MAX) {
                self.microdescs.add(&text, |digest| listed.contains(digest));
            }
        }
        if !consensus.apply_microdescs(&self.microdescs) {
            self.gaps = Some(FetchSchedule::new(now_unix_s));
        }
        self.schedule.on_consensus(&consensus, now_unix_s, rng);
        self.consensus = Some(Arc::new(consensus));
    }

    /// The text of a cached file. One that can't be read is fetched again, and the error, if it
    /// lasts, shows when it is written.
    fn read_text(&self, name: &str, bytes_max: usize) -> Option<String> {
        let bytes = self.files.read(&self.cache_directory.join(name), bytes_max).ok()??;
        String::from_utf8(bytes.to_vec()).ok()
    }

    fn store(&self, consensus: Option<&str>, last_listed_unix_s: u64) -> Result<(), FetchError> {
        let directory = &self.cache_directory;
        self.files
            .create_private_dir(directory)
            .map_err(|source| FetchError::Write { path: directory.clone(), source })?;
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            self.files.write(&path, text.as_bytes()).map_err(|source| FetchError::Write { path, source })
        };
        write(MICRODESCS_FILE, &self.microdescs.to_text(last_listed_unix_s))?;
        if let Some(consensus) = consensus {
            write(CERTS_FILE, &self.certs.to_text())?;
            write(CONSENSUS_FILE, consensus)?;
        }
        Ok(())
    }
}

/// Reads what a directory sent. A document that makes the reading of it panic is as good as one that is malformed: all
/// that is changed by reading are lists of documents, each of which is taken when it has been read.
fn read<T>(reading: impl FnOnce() -> T) -> Result<T, FetchError> {
    guarded(reading).map_err(FetchError::Panicked)
}

fn text_of(answer: Result<HttpResponse, HttpError>) -> Result<String, FetchError> {
    let response = answer?;
    match response.status {
        200 => String::from_utf8(response.body).map_err(|_| FetchError::NotText),
        304 => Err(FetchError::NotNewer),
        status => Err(FetchError::Refused { status, reason: response.reason }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_of_the_directory() {
        assert!(matches!(read(|| panic!("as the test wants")), Err::<(), _>(FetchError::Panicked(_))));
        assert!(matches!(read(|| 7), Ok(7)));
    }
}
