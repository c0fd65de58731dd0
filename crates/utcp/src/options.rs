//! The options of a connection. The defaults are Linux', but for pacing, which Linux leaves to a queueing discipline.

use crate::time::{MS, S};
use core::fmt;

/// Which algorithm sets the congestion window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// CUBIC (RFC 9438) with HyStart++ (RFC 9406).
    #[default]
    Cubic,
    /// Reno (RFC 5681) with appropriate byte counting (RFC 3465).
    Reno,
    /// None: the session's [`SessionController`](crate::congestion::SessionController) grants what may leave. Of use in
    /// a [`Mux`](crate::compact::Mux) alone, which sets it.
    Granted,
}

/// When a connection without traffic asks whether its peer is still there (RFC 9293, section 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// How long nothing came before the first question. Linux: 2 hours.
    pub idle_ns: u64,
    /// Between two questions. Linux: 75 s.
    pub interval_ns: u64,
    /// After how many unanswered questions the connection is over. Linux: 9.
    pub probes_max: u32,
}

/// What one connection is set to. Both ends may differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The longest payload to send and to offer, in bytes without options. The timestamps option takes 12 bytes of it
    /// in every segment. From 64 to 65,000. Default: 1460.
    pub mss_bytes: u16,
    /// Segments are cut at multiples of this many bytes, counted from the first byte of the stream, wherever the
    /// application wrote whole multiples: cells are not torn. Larger than a segment it has no effect. Default: 1.
    pub unit_bytes: u16,
    /// The congestion window at the start, in segments (RFC 6928). Default: 10.
    pub initial_window_segments: u16,
    /// Which algorithm sets the congestion window. Default: CUBIC.
    pub algorithm: Algorithm,
    /// Spreads segments over the round trip: twice the window's rate in slow start and 1.2 times after it, as Linux
    /// does under `fq`. Default: on.
    pub pacing: bool,
    /// A window that was not used for a time-out shrinks towards the initial one (RFC 5681, section 4.1; Linux'
    /// `tcp_slow_start_after_idle`). Traffic in bursts is faster without; pacing then keeps bursts off the wire.
    /// Default: on.
    pub slow_start_after_idle: bool,
    /// Offers SACK. Without it on both sides losses are found by three duplicate acknowledgements or the timer.
    /// Default: on.
    pub sack: bool,
    /// Offers timestamps (RFC 7323). They tell an acknowledgement of a retransmission from one of the original.
    /// Default: on.
    pub timestamps: bool,
    /// Offers ECN (RFC 3168). Default: off, as Linux when it opens connections.
    pub ecn: bool,
    /// Small pieces wait until everything before is acknowledged (RFC 9293, section 3.7.4). Default: off.
    pub nagle: bool,
    /// Puts waiting data into the SYN, and takes data from one. Only where the peer's address is proved by something
    /// else, because the SYN of a stranger would cause work (RFC 7413 has cookies for that). Default: off.
    pub syn_data: bool,
    /// The most bytes that wait to be sent or acknowledged. The buffer grows towards it with the congestion window.
    /// Default: 4 MiB (Linux: `tcp_wmem`).
    pub send_buffer_max_bytes: u32,
    /// The receive buffer at the start, all of which is offered as window. Default: 64 KiB.
    pub receive_buffer_initial_bytes: u32,
    /// The most bytes that wait to be read or reassembled. The buffer grows towards it with what the application reads
    /// in a round trip. Default: 6 MiB (Linux: `tcp_rmem`).
    pub receive_buffer_max_bytes: u32,
    /// After how many full segments an acknowledgement is sent at once. More than two stretches acknowledgements; the
    /// peer must count bytes then, as this crate and Linux do. Default: 2.
    pub ack_every_segments: u8,
    /// The longest an acknowledgement waits. At most 500 ms (RFC 9293, section 3.8.6.3). Default: 40 ms.
    pub ack_delay_ns: u64,
    /// The lowest retransmission time-out beyond the round trip. Default: 200 ms (RFC 6298 says 1 s, Linux 200 ms).
    pub rto_min_ns: u64,
    /// The highest retransmission time-out. Default: 120 s.
    pub rto_max_ns: u64,
    /// The retransmission time-out before the first measurement. Default: 1 s.
    pub rto_initial_ns: u64,
    /// How often a SYN is repeated. Default: 6.
    pub syn_retries_max: u32,
    /// How often one segment's timer may expire before the connection is over. Default: 15.
    pub retries_max: u32,
    /// How long TIME-WAIT lasts (two maximum segment lifetimes). Default: 60 s.
    pub time_wait_ns: u64,
    /// Questions to a silent peer. Default: none.
    pub keep_alive: Option<KeepAlive>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            mss_bytes: 1460,
            unit_bytes: 1,
            initial_window_segments: 10,
            algorithm: Algorithm::Cubic,
            pacing: true,
            slow_start_after_idle: true,
            sack: true,
            timestamps: true,
            ecn: false,
            nagle: false,
            syn_data: false,
            send_buffer_max_bytes: 4 << 20,
            receive_buffer_initial_bytes: 64 << 10,
            receive_buffer_max_bytes: 6 << 20,
            ack_every_segments: 2,
            ack_delay_ns: 40 * MS,
            rto_min_ns: 200 * MS,
            rto_max_ns: 120 * S,
            rto_initial_ns: S,
            syn_retries_max: 6,
            retries_max: 15,
            time_wait_ns: 60 * S,
            keep_alive: None,
        }
    }
}

/// An option outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionsError(pub &'static str);

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for OptionsError {}

impl Options {
    /// What a Linux host does by default: no pacing, Nagle's algorithm, windows limited by the default buffers.
    pub fn linux() -> Self {
        Options { pacing: false, nagle: true, ..Options::default() }
    }

    /// Whether every option is in its range.
    ///
    /// # Errors
    ///
    /// The first that is not.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let rules = [
            ((64..=65_000).contains(&self.mss_bytes), "mss_bytes is not from 64 to 65000"),
            (self.unit_bytes > 0, "unit_bytes is 0"),
            (
                (1..=1000).contains(&self.initial_window_segments),
                "initial_window_segments is not from 1 to 1000",
            ),
            (self.send_buffer_max_bytes >= 4096, "send_buffer_max_bytes is below 4096"),
            (self.send_buffer_max_bytes <= 1 << 30, "send_buffer_max_bytes is above 1 GiB"),
            (self.receive_buffer_initial_bytes >= 2048, "receive_buffer_initial_bytes is below 2048"),
            (
                self.receive_buffer_initial_bytes <= self.receive_buffer_max_bytes,
                "receive_buffer_initial_bytes is above receive_buffer_max_bytes",
            ),
            (self.receive_buffer_max_bytes <= 1 << 30, "receive_buffer_max_bytes is above 1 GiB"),
            (self.ack_every_segments > 0, "ack_every_segments is 0"),
            (self.ack_delay_ns <= 500 * MS, "ack_delay_ns is above 500 ms"),
            (self.rto_min_ns >= MS, "rto_min_ns is below 1 ms"),
            (self.rto_min_ns <= self.rto_initial_ns, "rto_min_ns is above rto_initial_ns"),
            (self.rto_initial_ns <= self.rto_max_ns, "rto_initial_ns is above rto_max_ns"),
        ];
        rules.iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, fault)| Err(OptionsError(fault)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_faults_are_named() {
        assert_eq!(Options::default().validate(), Ok(()));
        assert_eq!(Options::linux().validate(), Ok(()));
        let none = Options { ack_every_segments: 0, ..Options::default() };
        assert_eq!(none.validate(), Err(OptionsError("ack_every_segments is 0")));
        let crossed = Options { receive_buffer_initial_bytes: 8 << 20, ..Options::default() };
        assert!(crossed.validate().is_err());
    }
}
