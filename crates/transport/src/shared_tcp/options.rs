//! What may be chosen about TCP connections that circuits share.

use super::frame::UNIT_BYTES;
use crate::connections::setup::{EndpointSetup, InvalidOptions, TransportOption};
use crate::dtls::options::SessionOptions;
use heddle_utcp::compact::MuxOptions;
use heddle_utcp::{Algorithm, Options};
use std::time::Instant;

/// Connections of a session, at most.
const CONNECTIONS_MAX: usize = 16;

/// What may be chosen about an endpoint of `torchestra-dtls` or `imux-dtls`.
#[derive(Clone, Debug)]
pub struct SharedTcpOptions {
    pub session: SessionOptions,
    /// Connections of each session with `imux-dtls`; 16 at most.
    pub connections: usize,
    /// The options of every connection's TCP. Segment size, unit and what else follows from the framing is set by it.
    pub flow: Options,
}

/// How many connections a session has with IMUX, in torrc.
pub(super) const CONNECTIONS: TransportOption =
    TransportOption { name: "HeddleIMUXConnections", values: &["4", "2", "8", "16"] };

impl AsRef<SessionOptions> for SharedTcpOptions {
    fn as_ref(&self) -> &SessionOptions {
        &self.session
    }
}

impl SharedTcpOptions {
    pub(super) fn from_setup(setup: &EndpointSetup<'_>) -> Self {
        let connections = [4, 2, 8, 16][setup.choice(&CONNECTIONS)];
        SharedTcpOptions { connections, ..SharedTcpOptions::over(SessionOptions::from_setup(setup)) }
    }

    /// The defaults, with the driver's anchor.
    pub fn new(anchor: Instant) -> Self {
        SharedTcpOptions::over(SessionOptions::new(anchor))
    }

    /// Buffers may be as large as Linux lets them grow, about.
    fn over(session: SessionOptions) -> Self {
        let flow = Options {
            algorithm: Algorithm::Cubic,
            receive_buffer_max_bytes: 4 * 1024 * 1024,
            send_buffer_max_bytes: 4 * 1024 * 1024,
            ..Options::default()
        };
        SharedTcpOptions { session, connections: 4, flow }
    }

    /// Says what cannot be done as it is asked.
    pub fn validate(&self) -> Result<(), InvalidOptions> {
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return Err(InvalidOptions("a session has 1 to 16 connections"));
        }
        self.session.validate()?;
        self.flow.validate().map_err(|why| InvalidOptions(why.0))
    }

    /// How the connections of one session are to behave. `room_bytes` is what a record carries.
    pub(super) fn mux(&self, room_bytes: u16) -> MuxOptions {
        MuxOptions {
            unit_bytes: UNIT_BYTES,
            datagram_bytes_max: room_bytes,
            // One more, so that we hear of it.
            flows_max: CONNECTIONS_MAX + 1,
            flow: self.flow.clone(),
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
        let good = SharedTcpOptions::new(Instant::now());
        assert_eq!(good.validate(), Ok(()));
        for connections in [0, 17] {
            let bad = SharedTcpOptions { connections, ..good.clone() };
            assert_eq!(bad.validate(), Err(InvalidOptions("a session has 1 to 16 connections")));
        }
        let session = SessionOptions { pool_bytes_max: 1000, ..good.session.clone() };
        assert!(SharedTcpOptions { session, ..good }.validate().is_err());
    }
}
