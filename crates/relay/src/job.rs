//! Work that is too slow for the data path and runs on a worker thread.

use core::fmt;
use heddle_proto::channel::{Done, Work};
use heddle_proto::crypto::onionskin::{
    self, Answer, CongestionOffer, HandshakeType, OnionKeys, OnionskinError,
};
use heddle_seam::rng::Seed;
use std::sync::Arc;

/// A piece of work. It owns all that it needs, randomness included, so that it gives the same
/// result on any thread at any time.
pub enum Job {
    /// Answer a circuit handshake.
    Onionskin {
        keys: Arc<OnionKeys>,
        handshake: HandshakeType,
        onionskin: Vec<u8>,
        congestion: Option<CongestionOffer>,
        seed: Seed,
    },
    /// Do what a channel wants done.
    Channel(Work),
}

/// What came of a [`Job`].
pub enum JobResult {
    Onionskin(Result<Answer, OnionskinError>),
    Channel(Done),
}

impl heddle_seam::language::Job for Job {
    type Result = JobResult;

    fn kind(&self) -> &'static str {
        match self {
            Job::Onionskin { .. } => "onionskin",
            Job::Channel(_) => "channel",
        }
    }

    fn run(self) -> JobResult {
        match self {
            Job::Onionskin { keys, handshake, onionskin, congestion, seed } => {
                let mut rng = seed.rng();
                JobResult::Onionskin(onionskin::answer(&keys, handshake, &onionskin, congestion, &mut rng))
            }
            Job::Channel(work) => JobResult::Channel(work()),
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Job::Onionskin { handshake, .. } => write!(f, "Onionskin({handshake:?})"),
            Job::Channel(_) => f.write_str("Channel"),
        }
    }
}

impl fmt::Debug for JobResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobResult::Onionskin(result) => {
                write!(f, "Onionskin({})", if result.is_ok() { "answered" } else { "refused" })
            }
            JobResult::Channel(_) => f.write_str("Channel"),
        }
    }
}
