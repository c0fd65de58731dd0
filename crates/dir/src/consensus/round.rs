//! One round of fetches: whom is asked for what, in which order, and for how long.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

use base64ct::{Base64Unpadded, Encoding};
use heddle_seam::time::{Duration, Instant};

use super::{CONSENSUS_BYTES_MAX, Consensus, Microdescs};
use crate::http::{self, Request};

/// How many microdescriptors one request asks for (dir-spec, section 4.4).
const MICRODESCS_PER_REQUEST: usize = 92;

const MICRODESCS_ANSWER_BYTES_MAX: usize = 2 << 20;

/// How long one request and its answer may take. No directory can hold up the relay's knowledge of the network for long
/// by answering slowly.
pub const REQUEST_MAX: Duration = Duration::from_secs(60);
/// How long all requests to one directory for a consensus and certificates may take, and again all for
/// microdescriptors. Of the public network's 3 MB, deflated to about 1 MB, and 90 requests for microdescriptors, a
/// directory that gives 50 KB/s sends what is asked in less.
pub(crate) const DIRECTORY_MAX: Duration = Duration::from_secs(120);
/// How long all requests of one round, to all directories, may take.
pub const ROUND_MAX: Duration = Duration::from_secs(600);

pub(super) struct Round {
    /// Those that were not given up, the present one first.
    directories: VecDeque<SocketAddr>,
    ends: Instant,
    /// When the present directory has had its time.
    turn_ends: Instant,
    pub stage: Stage,
    /// Nobody has taken it yet.
    ask: Option<Request>,
}

/// What is waited for.
#[derive(Default)]
pub(super) enum Stage {
    #[default]
    Consensus,
    /// Of the signers of this consensus.
    Certs {
        consensus: String,
    },
    Microdescs(Box<Missing>),
}

impl Stage {
    pub fn take(&mut self) -> Stage {
        core::mem::take(self)
    }
}

impl Round {
    /// `None` without directories.
    pub fn start(directories: Vec<SocketAddr>, now: Instant) -> Option<Self> {
        let ends = now + ROUND_MAX;
        let mut round = Round {
            directories: directories.into(),
            ends,
            turn_ends: ends,
            stage: Stage::Consensus,
            ask: None,
        };
        round.begin_turn(now);
        (!round.directories.is_empty()).then_some(round)
    }

    /// The present directory has all the time that one has.
    pub fn begin_turn(&mut self, now: Instant) {
        self.turn_ends = self.ends.min(now + DIRECTORY_MAX);
    }

    /// The next directory's turn.
    pub fn leave_directory(&mut self, now: Instant) {
        self.directories.pop_front();
        self.begin_turn(now);
    }

    /// Leaves a directory that has had its time, and says whether there is somebody to ask and time for an answer.
    pub fn go_on(&mut self, now: Instant) -> bool {
        if self.turn_ends <= now {
            self.leave_directory(now);
        }
        !self.directories.is_empty() && now < self.ends
    }

    pub fn ask_for_consensus(&mut self, now: Instant, newer_than_unix_s: Option<u64>) {
        self.stage = Stage::Consensus;
        let path = "/tor/status-vote/current/consensus-microdesc";
        self.ask(now, path, newer_than_unix_s, CONSENSUS_BYTES_MAX);
    }

    /// Asks the present directory.
    pub fn ask(&mut self, now: Instant, path: &str, newer_than_unix_s: Option<u64>, body_bytes_max: usize) {
        self.ask = self.directories.front().map(|to| Request {
            to: *to,
            bytes: http::get(*to, path, newer_than_unix_s),
            body_bytes_max,
            within: REQUEST_MAX.min(self.turn_ends.since(now)),
        });
    }

    pub fn take_ask(&mut self) -> Option<Request> {
        self.ask.take()
    }
}

/// A consensus that is verified, and what is missing of its microdescriptors.
pub(super) struct Missing {
    /// What it was read from; `None` where that is kept already.
    pub text: Option<String>,
    pub consensus: Consensus,
    listed: BTreeSet<[u8; 32]>,
    /// Those of the request under way.
    pub asked: Vec<[u8; 32]>,
    /// The directory whose turn it is, and those that it was not asked for yet.
    left: Option<(SocketAddr, Vec<[u8; 32]>)>,
}

impl Missing {
    pub fn new(text: Option<String>, consensus: Consensus) -> Self {
        let listed = consensus.microdesc_digests();
        Missing { text, consensus, listed, asked: Vec::new(), left: None }
    }

    pub fn is_complete(&self, known: &Microdescs) -> bool {
        self.listed.iter().all(|digest| known.get(digest).is_some())
    }

    /// Asks the present directory for some that it was not asked for yet; false when there are none.
    pub fn ask(&mut self, round: &mut Round, now: Instant, known: &Microdescs) -> bool {
        let Some(directory) = round.directories.front().copied() else { return false };
        if self.left.as_ref().is_none_or(|(of, _)| *of != directory) {
            let missing = self.listed.iter().filter(|digest| known.get(digest).is_none());
            self.left = Some((directory, missing.copied().collect()));
        }
        let Some((_, left)) = &mut self.left else { return false };
        self.asked = left.split_off(left.len().saturating_sub(MICRODESCS_PER_REQUEST));
        if self.asked.is_empty() {
            return false;
        }
        let digests: Vec<String> =
            self.asked.iter().map(|digest| Base64Unpadded::encode_string(digest)).collect();
        let path = format!("/tor/micro/d/{}", digests.join("-"));
        round.ask(now, &path, None, MICRODESCS_ANSWER_BYTES_MAX);
        true
    }
}
