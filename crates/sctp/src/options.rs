//! What may be chosen about an association, and what chance decides of it.

use core::time::Duration;

/// What chance decides. Whoever draws it draws anew for each association; a simulation draws it of its seed.
#[derive(Clone, Copy, Debug)]
pub struct Random {
    /// By which packets to us are known. Zero stands for one.
    pub tag: u32,
    /// Where TSNs begin.
    pub tsn: u32,
    /// What the peer has to send back before anything is believed of it.
    pub cookie: [u8; 32],
}

/// What may be chosen about an association.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The ports in packets, ours and the peer's. There is one association for each thing below, so they tell nothing
    /// apart. Default: 5000, as WebRTC has.
    pub ports: [u16; 2],
    /// The longest packet. Default: 1200.
    pub packet_bytes_max: u16,
    /// How many streams either side may use: numbers below that. Default: 65,535.
    pub streams_max: u16,
    /// Memory for what came and was not read. Default: 1 MiB.
    pub receive_bytes_max: usize,
    /// The longest message that is taken. Default: 256 KiB.
    pub message_bytes_max: usize,
    /// Whether messages may be interleaved (RFC 8260). Default: true.
    pub interleaves: bool,
    /// Whether a peer is refused that does not interleave messages or cannot reset streams (RFC 6525). Default: false.
    pub wants_extensions: bool,
    /// Whether checksums are left out where the peer permits it, because what is below keeps packets whole (RFC 9653:
    /// DTLS). Default: true.
    pub zero_checksum: bool,
    /// What acknowledgements wait for a second packet. Default: 20 ms; RFC 9260 has 200 ms, and 500 ms at most.
    pub ack_delay: Duration,
    /// The first time-out, before a round trip is known; what one has beyond the round trip at least; the longest.
    /// Default: 1 s, 200 ms, 10 s.
    pub rto_initial: Duration,
    pub rto_min: Duration,
    pub rto_max: Duration,
    /// How often the first packets are sent again before the peer is taken to be away. Default: 8.
    pub init_retries_max: u32,
    /// Time-outs in a row after which it is, once there is an association; never if what is below knows better.
    /// Default: 10.
    pub timeouts_max: Option<u32>,
    /// How often a peer is asked for an answer (HEARTBEAT); not if what is below does that. Default: 30 s.
    pub heartbeat: Option<Duration>,
    /// Packets that say of streams' resets, and have no message, are filled up to this with a chunk that says nothing
    /// (RFC 4820). Default: 0.
    pub control_bytes_min: u16,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            ports: [5000, 5000],
            packet_bytes_max: 1200,
            streams_max: 65_535,
            receive_bytes_max: 1 << 20,
            message_bytes_max: 256 * 1024,
            interleaves: true,
            wants_extensions: false,
            zero_checksum: true,
            ack_delay: Duration::from_millis(20),
            rto_initial: Duration::from_secs(1),
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(10),
            init_retries_max: 8,
            timeouts_max: Some(10),
            heartbeat: Some(Duration::from_secs(30)),
            control_bytes_min: 0,
        }
    }
}
