//! What may be chosen about `tcp-dtls`.

use crate::dtls::{DATAGRAM_BYTES_MIN, SessionOptions};
use crate::setup::{EndpointSetup, InvalidOptions, Timeouts, TransportOption};
use core::time::Duration;
use heddle_utcp::compact::MuxOptions;
use heddle_utcp::{Algorithm, Options};
use std::time::Instant;

/// The least that flows share.
pub(crate) const POOL_BYTES_MIN: usize = 1024 * 1024;

/// What sequence numbers of flows count: a third of a cell with its command, of which eight fill a datagram.
pub(super) const UNIT_BYTES: u16 = 170;

/// What acknowledgements wait for a second segment at most. It looks like a queue to the peer, and is less than one.
/// Where segments come faster, every second one is acknowledged.
pub(super) const ACK_DELAY: Duration = Duration::from_millis(1);

/// How flows follow what the path bears.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionControl {
    /// All flows of a connection share one window, whose controller stands for as many connections as there are busy
    /// circuits, up to the consensus' ceiling of at most eight, and keeps the wire's queue short. It is the one of
    /// QUIC.
    #[default]
    Shared,
    /// CUBIC (RFC 9438), each flow for itself.
    Cubic,
    /// Reno (RFC 5681), each flow for itself.
    Reno,
}

/// What may be chosen about an endpoint of `tcp-dtls`.
#[derive(Clone, Debug)]
pub struct DtlsOptions {
    /// The instant of the system's clock that [`heddle_seam::time::Instant::ZERO`] stands for. dimpl wants the system's
    /// type, which only a driver can make.
    pub anchor: Instant,
    pub congestion: CongestionControl,
    /// The options of every flow's TCP. Segment size, unit and what else follows from the framing is set by it.
    pub flow: Options,
    /// Bytes that wait in the flows of all connections, to be acknowledged, put in order or read. Where they are used
    /// up, flows take no cells, and segments are dropped as if the wire had lost them.
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
    pub timeouts: Timeouts,
    /// Records under one key, after which DTLS changes it. dimpl's default; AES-GCM bears 2^24.5 full records (RFC
    /// 9147, section 4.5.3).
    pub key_records_max: u64,
}

/// Which congestion control, in torrc.
pub(super) const CONGESTION_CONTROL: TransportOption =
    TransportOption { name: "HeddleTCPCongestionControl", values: &["shared", "cubic", "reno"] };

impl DtlsOptions {
    /// Of what the shard may hold in queues, flows take half at most: what the relay holds of their circuits is to find
    /// memory, too.
    pub(super) fn from_setup(setup: &EndpointSetup<'_>) -> Self {
        let defaults = match setup.offload {
            true => DtlsOptions::new(setup.anchor),
            false => DtlsOptions::plain(setup.anchor),
        };
        let all = [CongestionControl::Shared, CongestionControl::Cubic, CongestionControl::Reno];
        DtlsOptions {
            congestion: all[setup.choice(&CONGESTION_CONTROL)],
            pool_bytes_max: (setup.queue_bytes_max / 2).clamp(POOL_BYTES_MIN, defaults.pool_bytes_max),
            ..defaults
        }
    }

    /// The defaults, with the driver's anchor.
    pub fn new(anchor: Instant) -> Self {
        let flow = Options {
            // A circuit sends in bursts, which pacing spreads; the time-out since the last one says nothing of the
            // path.
            slow_start_after_idle: false,
            ack_delay_ns: u64::try_from(ACK_DELAY.as_nanos()).unwrap_or(u64::MAX),
            receive_buffer_initial_bytes: 64 * 1024,
            receive_buffer_max_bytes: 1024 * 1024,
            send_buffer_max_bytes: 1024 * 1024,
            ..Options::default()
        };
        DtlsOptions {
            anchor,
            congestion: CongestionControl::default(),
            flow,
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
        DtlsOptions {
            datagram_bytes_max: 1350,
            batch_datagrams_max: 1,
            marks_ecn: false,
            ..DtlsOptions::new(anchor)
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
        self.timeouts.validate()?;
        self.flow.validate().map_err(|why| InvalidOptions(why.0))
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

    /// How the flows of one connection are to behave. `room_bytes` is what a record carries.
    pub(super) fn mux(&self, room_bytes: u16, flows_max: u32) -> MuxOptions {
        // The peer may have opened a flow before it heard that another of its own had ended here.
        let slack = flows_max / 4 + 64;
        let algorithm = match self.congestion {
            CongestionControl::Reno => Algorithm::Reno,
            CongestionControl::Cubic | CongestionControl::Shared => Algorithm::Cubic,
        };
        MuxOptions {
            unit_bytes: UNIT_BYTES,
            datagram_bytes_max: room_bytes,
            flows_max: usize::try_from(flows_max.saturating_add(slack)).unwrap_or(usize::MAX),
            flow: Options { algorithm, ..self.flow.clone() },
            ..MuxOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "an anchor can be had no other way")]
    fn the_defaults_are_valid_and_faults_are_named() {
        let good = DtlsOptions::new(Instant::now());
        assert_eq!(good.validate(), Ok(()));
        assert_eq!(DtlsOptions::plain(good.anchor).validate(), Ok(()));
        let short = DtlsOptions { datagram_bytes_max: 1199, ..good.clone() };
        assert_eq!(short.validate(), Err(InvalidOptions("a datagram has 1200 to 9000 bytes")));
        let poor = DtlsOptions { pool_bytes_max: 1000, ..good };
        assert!(poor.validate().is_err());
    }
}
