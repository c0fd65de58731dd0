//! What may be chosen about QUIC, and how quinn-proto is told.

use super::gauge::{Gauge, GaugedFactory};
use super::shared::SharedFactory;
use super::stamps::STAMPS_BYTES;
use super::window::BASE_MIN;
use crate::Ciphers;
use crate::congestion::Ceiling;
use crate::connections::setup::{EndpointSetup, InvalidOptions, Timeouts, TransportOption};
use core::time::Duration;
use quinn_proto::congestion::{BbrConfig, ControllerFactory, CubicConfig};
use quinn_proto::{AckFrequencyConfig, MtuDiscoveryConfig, TransportConfig, VarInt};
use std::sync::Arc;
use std::time::Instant;

/// What peers are asked to put acknowledgements off by at most, because it looks like a queue.
pub(super) const ACK_DELAY: Duration = Duration::from_millis(5);

/// How a connection's sending rate follows what the path bears.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionControl {
    /// Ours, which stands for as many connections as there are busy circuits, up to the consensus' ceiling of at most
    /// eight, and keeps the wire's queue short.
    #[default]
    Shared,
    /// CUBIC of quinn-proto (RFC 8312): one connection gets what one TCP connection would, however many circuits it
    /// carries.
    Cubic,
    /// BBR of quinn-proto. It draws the system's randomness, so runs of one seed differ.
    Bbr,
}

/// What may be chosen about an endpoint of QUIC.
#[derive(Clone, Debug)]
pub struct QuicOptions {
    /// The instant of the system's clock that [`heddle_seam::time::Instant::ZERO`] stands for. quinn-proto wants the
    /// system's type, which only a driver can make.
    pub anchor: Instant,
    pub ciphers: Ciphers,
    pub congestion: CongestionControl,
    /// Bytes that a peer may send on one flow beyond what was read: what a circuit's reader that stops leaves here.
    /// Less than the bandwidth-delay product of a circuit slows that circuit.
    pub stream_receive_window_bytes: u32,
    /// What a peer may send on all flows of a connection beyond what was read, however little is read.
    pub receive_window_bytes_min: u32,
    /// What peers of all connections may send together beyond what was read, beside that for each. Where a rate is used
    /// up, honest peers fill it.
    pub shared_receive_window_bytes: usize,
    /// The longest datagram that is tried, without headers of UDP and IP. Paths are found out from 1200 upwards.
    pub datagram_bytes_max: u16,
    /// The most datagrams in one [`heddle_seam::datagrams::Transmit`]; one where the system cannot cut them.
    pub batch_datagrams_max: usize,
    /// The round trip that is assumed before the first is measured.
    pub initial_rtt: Duration,
    pub timeouts: Timeouts,
    /// Packets that must overtake one before it counts as lost, and the share of a round trip that must pass
    /// (RFC 9002, section 6.1). Higher values bear more reordering and find losses later.
    pub packet_threshold: u32,
    pub time_threshold: f32,
    /// Flows that a peer may open at first. The number doubles whenever half of them are used, up to the connection's
    /// own limit, because quinn-proto spends some 80 bytes on each flow that is permitted. Circuits beyond it go over
    /// TLS.
    pub flows_first: u32,
}

/// Which congestion control, in torrc.
pub(super) const CONGESTION_CONTROL: TransportOption =
    TransportOption { name: "HeddleQUICCongestionControl", values: &["shared", "cubic", "bbr"] };

impl QuicOptions {
    /// Of what the shard may hold in queues, half at most is what peers may send beyond what was read: what the relay
    /// holds of their circuits is to find memory, too.
    pub(super) fn from_setup(setup: &EndpointSetup<'_>) -> Self {
        let defaults = match setup.offload {
            true => QuicOptions::new(setup.anchor),
            false => QuicOptions::plain(setup.anchor),
        };
        let all = [CongestionControl::Shared, CongestionControl::Cubic, CongestionControl::Bbr];
        QuicOptions {
            ciphers: setup.ciphers,
            congestion: all[setup.choice(&CONGESTION_CONTROL)],
            shared_receive_window_bytes: setup.queue_bytes_max / 2,
            ..defaults
        }
    }

    /// The defaults, with the driver's anchor.
    pub fn new(anchor: Instant) -> Self {
        QuicOptions {
            anchor,
            ciphers: Ciphers::default(),
            congestion: CongestionControl::default(),
            stream_receive_window_bytes: 1024 * 1024,
            receive_window_bytes_min: BASE_MIN as u32,
            shared_receive_window_bytes: 128 * 1024 * 1024,
            datagram_bytes_max: 1452,
            batch_datagrams_max: 45,
            initial_rtt: Duration::from_millis(200),
            timeouts: Timeouts::default(),
            packet_threshold: 128,
            time_threshold: 1.25,
            flows_first: 256,
        }
    }

    /// For systems that cut no batches, and paths that carry no more than 1350 bytes.
    pub fn plain(anchor: Instant) -> Self {
        QuicOptions { datagram_bytes_max: 1350, batch_datagrams_max: 1, ..QuicOptions::new(anchor) }
    }

    /// Says what cannot be done as it is asked.
    pub fn validate(&self) -> Result<(), InvalidOptions> {
        if !(1200..=65_527).contains(&self.datagram_bytes_max) {
            return Err(InvalidOptions("a datagram has 1200 to 65527 bytes"));
        }
        if !(1..=64).contains(&self.batch_datagrams_max) {
            return Err(InvalidOptions("a batch has 1 to 64 datagrams"));
        }
        if self.stream_receive_window_bytes < 4096 {
            return Err(InvalidOptions("a flow's window has at least 4096 bytes"));
        }
        if self.receive_window_bytes_min < 4096 {
            return Err(InvalidOptions("a connection's window has at least 4096 bytes"));
        }
        if self.initial_rtt.is_zero() {
            return Err(InvalidOptions("times are not zero"));
        }
        if self.packet_threshold < 3 || self.time_threshold.is_nan() || self.time_threshold < 1.0 {
            return Err(InvalidOptions(
                "losses are told from reordering by 3 packets and one round trip at least",
            ));
        }
        if self.flows_first == 0 {
            return Err(InvalidOptions("a peer may open at least one flow"));
        }
        self.timeouts.validate()
    }

    /// How one connection is to behave. `flows_max` bounds what its peer opens.
    pub(super) fn transport(&self, gauge: &Arc<Gauge>, ceiling: &Ceiling, flows_max: u32) -> TransportConfig {
        let factory: Arc<dyn ControllerFactory + Send + Sync> = match self.congestion {
            CongestionControl::Shared => {
                let (gauge, ceiling) = (gauge.clone(), ceiling.clone());
                let time_threshold = self.time_threshold;
                Arc::new(SharedFactory { gauge, ceiling, time_threshold, ack_delay: ACK_DELAY })
            }
            CongestionControl::Cubic => Arc::new(CubicConfig::default()),
            CongestionControl::Bbr => Arc::new(BbrConfig::default()),
        };
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.upper_bound(self.datagram_bytes_max);
        let mut acks = AckFrequencyConfig::default();
        acks.max_ack_delay(Some(ACK_DELAY));
        let mut config = TransportConfig::default();
        config
            .max_concurrent_bidi_streams(VarInt::from_u32(self.flows_first.min(flows_max)))
            .max_concurrent_uni_streams(VarInt::from_u32(1))
            // The connection itself probes and gives up, by acknowledgements instead of any packet that comes.
            .max_idle_timeout(None)
            .keep_alive_interval(None)
            .stream_receive_window(VarInt::from_u32(self.stream_receive_window_bytes))
            // The connection raises it: a limit that stays would let one flow that is not read hold up all others.
            .receive_window(VarInt::from_u32(self.receive_window_bytes_min))
            // The connection sets it from its congestion window.
            .send_window(u64::MAX)
            .packet_threshold(self.packet_threshold)
            .time_threshold(self.time_threshold)
            .initial_rtt(self.initial_rtt)
            .mtu_discovery_config(Some(discovery))
            .ack_frequency_config(Some(acks))
            .allow_spin(false)
            .datagram_receive_buffer_size(Some(STAMPS_BYTES))
            .datagram_send_buffer_size(STAMPS_BYTES)
            .enable_segmentation_offload(self.batch_datagrams_max > 1)
            .congestion_controller_factory(Arc::new(GaugedFactory { factory, gauge: gauge.clone() }));
        config
    }
}
