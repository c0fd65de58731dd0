//! What may be chosen about `sctp-dtls`.

use crate::circuits::FLOW_CELL_LEN;
use crate::dtls::{DATAGRAM_BYTES_MIN, SessionOptions};
use crate::setup::{EndpointSetup, InvalidOptions, Timeouts, TransportOption};
use core::time::Duration;
use heddle_sctp::Options;
use heddle_sctp::wire::HEADER_LEN;
use heddle_sctp::wire::data::I_DATA_HEAD_LEN;
use std::time::Instant;

/// The least that connections share.
const POOL_BYTES_MIN: usize = 1024 * 1024;

/// What acknowledgements wait for a second packet at most. It looks like a queue to the peer, and is less than one.
pub(super) const ACK_DELAY: Duration = Duration::from_millis(1);

/// What stands for both ports of a packet: IANA's for SCTP in other things (RFC 6951). Its first byte has its lowest
/// bit clear, by which records tell it from the session's own.
const PORT: u16 = 9899;
const _: () = assert!(PORT >> 8 & 1 == 0);

/// What is in a datagram with one cell and nothing else, in whole fours.
pub(super) const LONE_CELL_BYTES: usize = (HEADER_LEN + I_DATA_HEAD_LEN + FLOW_CELL_LEN).next_multiple_of(4);

/// How the association follows what the path bears.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionControl {
    /// The controller of QUIC and of tcp-dtls.
    #[default]
    Shared,
    /// That of RFC 9260: one Reno for all circuits.
    Reno,
}

/// What may be chosen about an endpoint of `sctp-dtls`.
#[derive(Clone, Debug)]
pub struct SctpOptions {
    /// The instant of the system's clock that [`heddle_seam::time::Instant::ZERO`] stands for. dimpl wants the system's
    /// type, which only a driver can make.
    pub anchor: Instant,
    pub congestion: CongestionControl,
    /// Bytes that messages of all connections may take.
    pub pool_bytes_max: usize,
    /// The longest datagram, without headers of UDP and IP. Where a path does not carry it, 1350 and 1200 are tried.
    pub datagram_bytes_max: u16,
    /// The most datagrams in one [`heddle_seam::datagrams::Transmit`]; one where the system cannot cut them.
    pub batch_datagrams_max: usize,
    /// Whether routers may mark our datagrams in the place of dropping them (ECN).
    pub marks_ecn: bool,
    /// How long the first flight of a handshake waits for its answer before it is sent again.
    pub initial_rto: Duration,
    pub timeouts: Timeouts,
    /// Records under one key, after which DTLS changes it; as for tcp-dtls.
    pub key_records_max: u64,
}

/// Which congestion control, in torrc.
pub(super) const CONGESTION_CONTROL: TransportOption =
    TransportOption { name: "HeddleSCTPCongestionControl", values: &["shared", "reno"] };

impl SctpOptions {
    /// Of what the shard may hold in queues, flows take half at most: what the relay holds of their circuits is to find
    /// memory, too.
    pub(super) fn from_setup(setup: &EndpointSetup<'_>) -> Self {
        let defaults = match setup.offload {
            true => SctpOptions::new(setup.anchor),
            false => SctpOptions::plain(setup.anchor),
        };
        let all = [CongestionControl::Shared, CongestionControl::Reno];
        SctpOptions {
            congestion: all[setup.choice(&CONGESTION_CONTROL)],
            pool_bytes_max: (setup.queue_bytes_max / 2).clamp(POOL_BYTES_MIN, defaults.pool_bytes_max),
            ..defaults
        }
    }

    /// The defaults, with the driver's anchor.
    pub fn new(anchor: Instant) -> Self {
        SctpOptions {
            anchor,
            congestion: CongestionControl::default(),
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
        SctpOptions {
            datagram_bytes_max: 1350,
            batch_datagrams_max: 1,
            marks_ecn: false,
            ..SctpOptions::new(anchor)
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

    /// How the DTLS session of a connection is to behave.
    pub(super) fn session(&self) -> SessionOptions {
        SessionOptions {
            anchor: self.anchor,
            datagram_bytes_max: self.datagram_bytes_max,
            initial_rto: self.initial_rto,
            timeouts: self.timeouts,
            key_records_max: self.key_records_max,
        }
    }

    /// How the association is to behave. `room_bytes` is what a record carries. What DTLS' session knows of the path,
    /// and asks for, it need not find out itself.
    pub(super) fn association(&self, room_bytes: u16, streams_max: u16) -> Options {
        Options {
            ports: [PORT, PORT],
            packet_bytes_max: room_bytes,
            streams_max,
            receive_bytes_max: 0,
            message_bytes_max: FLOW_CELL_LEN,
            interleaves: true,
            wants_extensions: true,
            zero_checksum: true,
            ack_delay: ACK_DELAY,
            rto_initial: self.initial_rto,
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(10),
            init_retries_max: 8,
            timeouts_max: None,
            heartbeat: None,
            control_bytes_min: u16::try_from(LONE_CELL_BYTES).unwrap_or(u16::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "an anchor can be had no other way")]
    fn the_defaults_are_valid_and_faults_are_named() {
        let good = SctpOptions::new(Instant::now());
        assert_eq!(good.validate(), Ok(()));
        assert_eq!(SctpOptions::plain(good.anchor).validate(), Ok(()));
        let short = SctpOptions { datagram_bytes_max: 1199, ..good.clone() };
        assert_eq!(short.validate(), Err(InvalidOptions("a datagram has 1200 to 9000 bytes")));
        assert!(SctpOptions { pool_bytes_max: 1000, ..good }.validate().is_err());
    }
}
