//! What computing costs, where a host's processors are to be like real ones.

use heddle_seam::datagrams::Transmit;
use heddle_seam::language::Language;
use heddle_seam::node::{Input, Output, PortId, SocketId};
use heddle_seam::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

const PS_PER_NS: u64 = 1_000;

/// The processors of a host, and how its nodes use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processors {
    /// How many there are, at least one. A node runs on one at a time, and so does a job of its workers.
    pub cores: usize,
    /// What is charged.
    pub costs: Costs,
    /// After a turn that moved little, the next one begins no sooner than this after that one did: what `heddle-net`
    /// calls `turns_apart`. Zero: no turn is held up.
    pub turns_apart: Duration,
}

/// What operations cost that a driver sees without knowing what its node is. Picoseconds are for what is less than a
/// few nanoseconds; the sum of a round is rounded up to nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// A turn: a wait for news that ends, with what the loop and the node do however little there is.
    pub turn_ns: u64,
    /// A call for a stream: a receive, one send for each stream of a round, and whatever opens, accepts or ends one.
    pub stream_call_ns: u64,
    /// A byte that is received from a stream or sent on one, with all that the node does for it.
    pub stream_byte_ps: u64,
    /// A call for datagrams: one receive for each port of a round, and each send. Packets of stacks are datagrams here.
    pub datagram_call_ns: u64,
    /// A datagram that is received or sent.
    pub datagram_ns: u64,
    /// A byte of one.
    pub datagram_byte_ps: u64,
    /// A job, by its kind. Those of other kinds cost nothing.
    pub jobs_ns: BTreeMap<String, u64>,
}

/// What a round of a node has cost so far.
#[derive(Debug, Default)]
pub(crate) struct Bill {
    spent_ps: u64,
    /// Bytes that the node took in.
    pub bytes_in: u64,
    /// Bytes in both directions.
    pub moved_bytes: u64,
    /// What was sent on, or received from, in this round already.
    sent_on: BTreeSet<SocketId>,
    received_from: BTreeSet<PortId>,
}

impl Bill {
    /// All of it, in whole nanoseconds.
    pub fn spent_ns(&self) -> u64 {
        self.spent_ps.div_ceil(PS_PER_NS)
    }

    pub fn turn(&mut self, costs: &Costs) {
        self.add_ns(costs.turn_ns);
    }

    pub fn input<L: Language>(&mut self, costs: &Costs, input: &Input<L>) {
        match input {
            Input::Read { len, .. } => {
                self.bytes_in += *len as u64;
                self.stream(costs, *len, true);
            }
            Input::Eof { .. } | Input::Accepted { .. } | Input::Connected { .. } | Input::Failed { .. } => {
                self.stream(costs, 0, true);
            }
            Input::Datagrams { port, datagrams } => {
                let is_first = self.received_from.insert(*port);
                self.bytes_in += datagrams.data.len() as u64;
                self.datagrams(costs, datagrams.data.len(), datagrams.stride, is_first);
            }
            Input::Packets { packets, .. } => {
                self.bytes_in += packets.data.len() as u64;
                self.datagrams(costs, packets.data.len(), packets.stride, true);
            }
            _ => {}
        }
    }

    /// Of an output that has so many bytes.
    pub fn output<L: Language>(&mut self, costs: &Costs, output: &Output<L>, bytes: usize) {
        match output {
            Output::Send { socket } => {
                let is_first = self.sent_on.insert(*socket);
                self.stream(costs, bytes, is_first);
            }
            Output::Connect { .. }
            | Output::ShutdownWrite { .. }
            | Output::Close { .. }
            | Output::Abort { .. } => self.stream(costs, 0, true),
            Output::Datagrams { transmit: Transmit { stride, .. }, .. } | Output::Packets { stride, .. } => {
                self.datagrams(costs, bytes, *stride, true);
            }
            _ => {}
        }
    }

    fn stream(&mut self, costs: &Costs, bytes: usize, calls: bool) {
        self.add_ns(if calls { costs.stream_call_ns } else { 0 });
        self.add_bytes(costs.stream_byte_ps, bytes);
    }

    fn datagrams(&mut self, costs: &Costs, bytes: usize, stride: usize, calls: bool) {
        self.add_ns(if calls { costs.datagram_call_ns } else { 0 });
        let datagrams = bytes.div_ceil(stride.max(1)) as u64;
        self.add_ns(costs.datagram_ns.saturating_mul(datagrams));
        self.add_bytes(costs.datagram_byte_ps, bytes);
    }

    fn add_bytes(&mut self, byte_ps: u64, bytes: usize) {
        self.moved_bytes += bytes as u64;
        self.spent_ps = self.spent_ps.saturating_add(byte_ps.saturating_mul(bytes as u64));
    }

    fn add_ns(&mut self, ns: u64) {
        self.spent_ps = self.spent_ps.saturating_add(ns.saturating_mul(PS_PER_NS));
    }
}
