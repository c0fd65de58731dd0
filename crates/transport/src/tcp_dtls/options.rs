//! What may be chosen about `tcp-dtls`.

use crate::connections::setup::{EndpointSetup, InvalidOptions, TransportOption};
use crate::dtls::options::SessionOptions;
use core::time::Duration;
use heddle_utcp::compact::MuxOptions;
use heddle_utcp::{Algorithm, Options};
use std::time::Instant;

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
    /// Where its `pool_bytes_max` are used up, flows take no cells, and segments are dropped as if the wire had lost
    /// them.
    pub session: SessionOptions,
    pub congestion: CongestionControl,
    /// The options of every flow's TCP. Segment size, unit and what else follows from the framing is set by it.
    pub flow: Options,
}

impl AsRef<SessionOptions> for DtlsOptions {
    fn as_ref(&self) -> &SessionOptions {
        &self.session
    }
}

/// Which congestion control, in torrc.
pub(super) const CONGESTION_CONTROL: TransportOption =
    TransportOption { name: "HeddleTCPCongestionControl", values: &["shared", "cubic", "reno"] };

impl DtlsOptions {
    pub(super) fn from_setup(setup: &EndpointSetup<'_>) -> Self {
        let all = [CongestionControl::Shared, CongestionControl::Cubic, CongestionControl::Reno];
        let congestion = all[setup.choice(&CONGESTION_CONTROL)];
        DtlsOptions { congestion, ..DtlsOptions::over(SessionOptions::from_setup(setup)) }
    }

    /// The defaults, with the driver's anchor.
    pub fn new(anchor: Instant) -> Self {
        DtlsOptions::over(SessionOptions::new(anchor))
    }

    /// The defaults over such sessions.
    fn over(session: SessionOptions) -> Self {
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
        DtlsOptions { session, congestion: CongestionControl::default(), flow }
    }

    /// Says what cannot be done as it is asked.
    pub fn validate(&self) -> Result<(), InvalidOptions> {
        self.session.validate()?;
        self.flow.validate().map_err(|why| InvalidOptions(why.0))
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
        let session = SessionOptions { pool_bytes_max: 1000, ..good.session.clone() };
        let poor = DtlsOptions { session, ..good.clone() };
        assert_eq!(poor.validate(), Err(InvalidOptions("flows share 1 MiB at least")));
        let flow = Options { ack_delay_ns: u64::MAX, ..good.flow.clone() };
        assert!(DtlsOptions { flow, ..good }.validate().is_err());
    }
}
