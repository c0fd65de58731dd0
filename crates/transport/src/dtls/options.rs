//! What may be chosen about an endpoint of sessions, whatever they carry.

use super::DATAGRAM_BYTES_MIN;
use crate::Ciphers;
use crate::connections::setup::{EndpointSetup, InvalidOptions, Timeouts};
use core::time::Duration;
use std::time::Instant;

/// The least that flows share.
pub(crate) const POOL_BYTES_MIN: usize = 1024 * 1024;

/// What may be chosen about an endpoint of DTLS sessions.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The instant of the system's clock that [`heddle_seam::time::Instant::ZERO`] stands for. dimpl wants the system's
    /// type, which only a driver can make.
    pub anchor: Instant,
    pub ciphers: Ciphers,
    /// Bytes that wait in the flows of all connections, to be acknowledged, put in order or read.
    pub pool_bytes_max: usize,
    /// The longest datagram, without headers of UDP and IP. Where a path does not carry it, 1350 and 1200 are tried.
    pub datagram_bytes_max: u16,
    /// The most datagrams in one [`heddle_seam::datagrams::Transmit`]; one where the system cannot cut them.
    pub batch_datagrams_max: usize,
    /// Whether routers may mark our datagrams in the place of dropping them (ECN). Marks that come are told to the peer
    /// in any case.
    pub marks_ecn: bool,
    /// How long the first flight of a handshake waits for its answer before it is sent again.
    pub initial_rto: Duration,
    /// DTLS itself tries as long as the longer one of dialler and listener; the session's deadline comes first.
    pub timeouts: Timeouts,
    /// Records under one key, after which DTLS changes it. dimpl's default; AES-GCM bears 2^24.5 full records (RFC
    /// 9147, section 4.5.3).
    pub key_records_max: u64,
}

impl SessionOptions {
    /// Of what the shard may hold in queues, flows take half at most: what the relay holds of their circuits is to find
    /// memory, too.
    pub(crate) fn from_setup(setup: &EndpointSetup<'_>) -> Self {
        let defaults = match setup.offload {
            true => SessionOptions::new(setup.anchor),
            false => SessionOptions::plain(setup.anchor),
        };
        let pool_bytes_max = (setup.queue_bytes_max / 2).clamp(POOL_BYTES_MIN, defaults.pool_bytes_max);
        SessionOptions { ciphers: setup.ciphers, pool_bytes_max, ..defaults }
    }

    /// The defaults, with the driver's anchor.
    pub fn new(anchor: Instant) -> Self {
        SessionOptions {
            anchor,
            ciphers: Ciphers::default(),
            pool_bytes_max: 256 * 1024 * 1024,
            datagram_bytes_max: 1452,
            batch_datagrams_max: 32,
            marks_ecn: true,
            initial_rto: Duration::from_millis(500),
            timeouts: Timeouts::default(),
            key_records_max: 1 << 23,
        }
    }

    /// For systems that cut no batches and mark no datagrams, and paths that carry no more than 1350 bytes.
    pub fn plain(anchor: Instant) -> Self {
        SessionOptions {
            datagram_bytes_max: 1350,
            batch_datagrams_max: 1,
            marks_ecn: false,
            ..SessionOptions::new(anchor)
        }
    }

    /// Says what cannot be done as it is asked.
    pub fn validate(&self) -> Result<(), InvalidOptions> {
        if !(DATAGRAM_BYTES_MIN..=9000).contains(&self.datagram_bytes_max) {
            return Err(InvalidOptions("a datagram has 1200 to 9000 bytes"));
        }
        if !(1..=64).contains(&self.batch_datagrams_max) {
            return Err(InvalidOptions("a batch has 1 to 64 datagrams"));
        }
        if self.pool_bytes_max < POOL_BYTES_MIN {
            return Err(InvalidOptions("flows share 1 MiB at least"));
        }
        if self.initial_rto.is_zero() {
            return Err(InvalidOptions("times are not zero"));
        }
        if self.key_records_max == 0 {
            return Err(InvalidOptions("a key serves one record at least"));
        }
        self.timeouts.validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "an anchor can be had no other way")]
    fn the_defaults_are_valid_and_faults_are_named() {
        let good = SessionOptions::new(Instant::now());
        assert_eq!(good.validate(), Ok(()));
        assert_eq!(SessionOptions::plain(good.anchor).validate(), Ok(()));
        let faulty = |fault: fn(&mut SessionOptions)| {
            let mut options = good.clone();
            fault(&mut options);
            options.validate().map_err(|why| why.to_string())
        };
        let named = |what: &str| Err(what.to_owned());
        assert_eq!(
            faulty(|options| options.datagram_bytes_max = 1199),
            named("a datagram has 1200 to 9000 bytes")
        );
        assert_eq!(faulty(|options| options.batch_datagrams_max = 0), named("a batch has 1 to 64 datagrams"));
        assert_eq!(faulty(|options| options.pool_bytes_max = 1000), named("flows share 1 MiB at least"));
        assert_eq!(faulty(|options| options.initial_rto = Duration::ZERO), named("times are not zero"));
        assert_eq!(faulty(|options| options.timeouts.dial = Duration::ZERO), named("times are not zero"));
        assert_eq!(faulty(|options| options.key_records_max = 0), named("a key serves one record at least"));
    }
}
