//! What happened in a run, as one hash.
//!
//! A record is the virtual time, the host, its shard, what happened, and with which socket and how
//! many bytes. Bytes themselves count only at the edges of the network, where they are plain:
//! ciphertext differs between runs wherever a library draws its own keys.

use core::fmt;
use heddle_seam::time::Instant;
use sha2::{Digest, Sha256};

/// The hash of everything that happened so far.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceHash(pub [u8; 32]);

impl fmt::Display for TraceHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TraceHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a record is about; the numbers go into the hash.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Timeout = 1,
    Accepted,
    Connected,
    Failed,
    Read,
    Writable,
    Eof,
    Resolved,
    Computed,
    FromShard,
    Control,
    Send,
    Connect,
    Interest,
    ShutdownWrite,
    Close,
    Abort,
    Resolve,
    Compute,
    ToShard,
    Event,
    Killed,
    StartedAnew,
    Note,
    SendDatagrams,
    Datagrams,
    StopResolving,
    SendPackets,
    Packets,
}

/// A run's records, hashed as they come.
pub(crate) struct Trace {
    hash: Sha256,
}

impl Trace {
    /// Of a run of which nothing is known beforehand, its seed included: two runs have one hash if the same happened in
    /// both.
    pub fn new() -> Self {
        Trace { hash: Sha256::new() }
    }

    /// Adds a record; `subject` is the socket or other number, `amount` the bytes, `detail` the rest.
    pub fn record(
        &mut self,
        now: Instant,
        actor: usize,
        kind: Kind,
        subject: u64,
        amount: u64,
        detail: &[u8],
    ) {
        // At once, because each update costs as much as hashing some.
        let mut head = [0; 41];
        head[..8].copy_from_slice(&now.as_nanos().to_be_bytes());
        head[8..16].copy_from_slice(&(actor as u64).to_be_bytes());
        head[16] = kind as u8;
        head[17..25].copy_from_slice(&subject.to_be_bytes());
        head[25..33].copy_from_slice(&amount.to_be_bytes());
        head[33..].copy_from_slice(&(detail.len() as u64).to_be_bytes());
        self.hash.update(head);
        self.hash.update(detail);
    }

    pub fn hash(&self) -> TraceHash {
        TraceHash(self.hash.clone().finalize().into())
    }
}
