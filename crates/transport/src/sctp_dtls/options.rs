//! What may be chosen about `sctp-dtls`.

use crate::connections::circuits::FLOW_CELL_LEN;
use crate::connections::setup::{EndpointSetup, TransportOption};
use crate::dtls::options::SessionOptions;
use core::time::Duration;
use heddle_sctp::Options;
use heddle_sctp::wire::HEADER_LEN;
use heddle_sctp::wire::data::I_DATA_HEAD_LEN;
use std::time::Instant;

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
    pub session: SessionOptions,
    pub congestion: CongestionControl,
}

impl AsRef<SessionOptions> for SctpOptions {
    fn as_ref(&self) -> &SessionOptions {
        &self.session
    }
}

/// Which congestion control, in torrc.
pub(super) const CONGESTION_CONTROL: TransportOption =
    TransportOption { name: "HeddleSCTPCongestionControl", values: &["shared", "reno"] };

impl SctpOptions {
    pub(super) fn from_setup(setup: &EndpointSetup<'_>) -> Self {
        let all = [CongestionControl::Shared, CongestionControl::Reno];
        let congestion = all[setup.choice(&CONGESTION_CONTROL)];
        SctpOptions { session: SessionOptions::from_setup(setup), congestion }
    }

    /// The defaults, with the driver's anchor.
    pub fn new(anchor: Instant) -> Self {
        SctpOptions { session: SessionOptions::new(anchor), congestion: CongestionControl::default() }
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
            rto_initial: self.session.initial_rto,
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(10),
            init_retries_max: 8,
            timeouts_max: None,
            heartbeat: None,
            control_bytes_min: u16::try_from(LONE_CELL_BYTES).unwrap_or(u16::MAX),
        }
    }
}
