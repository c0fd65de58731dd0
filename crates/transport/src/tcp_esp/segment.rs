//! What is looked at in a segment of TCP before it goes on.

use super::addresses::{CONTROL_PORT, FLOW_PORT};
use heddle_proto::pace::Rate;

/// Bytes of a header without options.
const HEADER_LEN: usize = 20;
const SYN: u8 = 2;
const ACK: u8 = 16;
/// Kernels connect from no port below this.
const PORT_CONNECTS_MIN: u16 = 1024;

pub(super) struct Segment {
    from: u16,
    to: u16,
    flags: u8,
    has_bytes: bool,
}

impl Segment {
    /// `None` for what is too short for one.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (head, _) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let [from, to] = [[head[0], head[1]], [head[2], head[3]]].map(u16::from_be_bytes);
        let has_bytes = bytes.len() > usize::from(head[12] >> 4) * 4;
        Some(Segment { from, to, flags: head[13], has_bytes })
    }

    /// Whether the peer acknowledges it, because it carries bytes or opens a connection.
    pub(super) fn is_question(&self) -> bool {
        self.has_bytes || self.flags & SYN != 0
    }

    /// Whether a kernel that gets it makes a connection of it.
    pub(super) fn opens(&self) -> bool {
        self.flags & (SYN | ACK) == SYN
    }

    /// Whether it is of the control stream or, where `flows` may be, of a flow: one end has the port on which that is
    /// dialled, and the other one a port from which kernels connect.
    pub(super) fn is_ours(&self, flows: bool) -> bool {
        let is_dialled = |port| port == CONTROL_PORT || (flows && port == FLOW_PORT);
        let ends = [(self.from, self.to), (self.to, self.from)];
        ends.into_iter().any(|(one, other)| is_dialled(one) && other >= PORT_CONNECTS_MIN)
    }
}

/// Connections that a peer may begin of which no circuit came: so many at once and, in the long run, as many in a
/// second. The kernel keeps each that it does not complete for some seconds, and has one queue of those for all peers.
/// One whose first cell came is a circuit, which other limits bound. An honest peer that begins more tries again a
/// second later. If they were counted anew in each second, the end of one and the beginning of the next would let
/// through twice as many at once.
pub(super) const CONNECTIONS_BEGUN: Rate = Rate { per_s: 1000, burst: 1000 };
