//! The states of RFC 9293, section 3.3.2, in its order, and the ways a connection ends.

use core::fmt;

/// The state of a connection. Listening is the business of whoever accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A SYN was sent; nothing came yet.
    SynSent,
    /// SYNs were exchanged; ours is not acknowledged.
    SynReceived,
    /// Both ends send.
    Established,
    /// We sent FIN.
    FinWait1,
    /// Our FIN is acknowledged; the peer still sends.
    FinWait2,
    /// The peer sent FIN; we still send.
    CloseWait,
    /// Both sent FIN; ours is not acknowledged.
    Closing,
    /// The peer sent FIN, then we.
    LastAck,
    /// Both are done; late segments are answered for a while.
    TimeWait,
    /// Over.
    Closed,
}

impl State {
    /// Whether the peer's sequence numbers are known.
    pub(crate) fn is_synchronized(self) -> bool {
        !matches!(self, State::SynSent | State::Closed)
    }

    /// Whether the application may write.
    pub(crate) fn may_write(self) -> bool {
        matches!(self, State::SynSent | State::SynReceived | State::Established | State::CloseWait)
    }

    /// Whether the peer may still send data.
    pub(crate) fn may_receive(self) -> bool {
        matches!(self, State::SynReceived | State::Established | State::FinWait1 | State::FinWait2)
    }
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Both ends sent FIN and everything was acknowledged.
    Finished,
    /// We aborted it.
    Aborted,
    /// The peer reset it. The code is what the framing carried, else zero.
    Reset {
        /// The peer's reason.
        code: u8,
    },
    /// The peer answered the SYN with a reset.
    Refused,
    /// The peer was silent for too long.
    TimedOut,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::Finished => f.write_str("both ends have finished"),
            CloseReason::Aborted => f.write_str("aborted by this end"),
            CloseReason::Reset { code } => write!(f, "reset by the peer, code {code}"),
            CloseReason::Refused => f.write_str("refused by the peer"),
            CloseReason::TimedOut => f.write_str("the peer is silent"),
        }
    }
}
