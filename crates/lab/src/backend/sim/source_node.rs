//! A node with programs: an onion proxy with those that go over its circuits, or those that take the host's kernel.

use std::net::SocketAddr;

use heddle_client::CircuitNumber;
use heddle_relay::RelayLanguage;
use heddle_seam::node::{Input, Node, Output, SocketId};
use heddle_seam::time::Instant;

use super::lines::{OverCircuits, OverKernel};
use super::programs::Programs;
use crate::traffic::lines::{Lines, WayId};

/// Over what the programs of a node go.
pub(super) enum Carrier {
    Circuits(Box<OverCircuits>),
    Kernel(OverKernel),
}

impl Carrier {
    /// A way to an address; over an onion proxy it takes a circuit.
    pub(super) fn add_way(&mut self, circuit: Option<CircuitNumber>, to: SocketAddr) -> Option<WayId> {
        match (self, circuit) {
            (Carrier::Circuits(circuits), Some(circuit)) => Some(circuits.add_way(circuit, to)),
            (Carrier::Kernel(kernel), None) => Some(kernel.add_way(to)),
            _ => None,
        }
    }

    /// Lets leave what was written before and can leave now. Kernels do that by themselves.
    fn pump(&mut self, now: Instant) {
        if let Carrier::Circuits(circuits) = self {
            circuits.pump(now);
        }
    }

    /// When something can leave that time alone holds back.
    fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        match self {
            Carrier::Circuits(circuits) => circuits.poll_timeout(now),
            Carrier::Kernel(_) => None,
        }
    }

    fn lines(&mut self) -> &mut dyn Lines {
        match self {
            Carrier::Circuits(circuits) => &mut **circuits,
            Carrier::Kernel(kernel) => kernel,
        }
    }
}

/// A node with programs.
pub(super) struct SourceNode {
    pub(super) carrier: Carrier,
    pub(super) programs: Programs,
    /// Whether something has happened since programs went on.
    is_fresh: bool,
}

impl SourceNode {
    pub(super) fn new(carrier: Carrier) -> SourceNode {
        SourceNode { carrier, programs: Programs::default(), is_fresh: false }
    }

    /// Has programs go on with what was asked of them from outside.
    pub(super) fn refresh(&mut self) {
        self.is_fresh = true;
    }

    /// The onion proxy and what goes over it.
    pub(super) fn circuits(&mut self) -> Option<&mut OverCircuits> {
        match &mut self.carrier {
            Carrier::Circuits(circuits) => Some(circuits),
            Carrier::Kernel(_) => None,
        }
    }

    /// The next thing that the carrier wants; `Err` is its time-out.
    fn poll_carrier(
        &mut self,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Result<Output<RelayLanguage>, Option<Instant>> {
        match &mut self.carrier {
            Carrier::Circuits(circuits) => {
                match Node::<RelayLanguage>::poll_output(&mut circuits.proxy, now, buf) {
                    Output::Timeout(due) => {
                        circuits.hear(now);
                        Err(due)
                    }
                    output => Ok(output),
                }
            }
            Carrier::Kernel(kernel) => kernel.poll_output(buf).ok_or(None),
        }
    }
}

impl Node<RelayLanguage> for SourceNode {
    fn recv_buf(&mut self, socket: SocketId) -> &mut [u8] {
        match &mut self.carrier {
            Carrier::Circuits(circuits) => Node::<RelayLanguage>::recv_buf(&mut circuits.proxy, socket),
            Carrier::Kernel(kernel) => kernel.recv_buf(),
        }
    }

    fn handle_input(&mut self, now: Instant, input: Input<RelayLanguage>) {
        match &mut self.carrier {
            Carrier::Circuits(circuits) => {
                Node::<RelayLanguage>::handle_input(&mut circuits.proxy, now, input);
                circuits.hear(now);
            }
            Carrier::Kernel(kernel) => kernel.handle_input(&input),
        }
        self.is_fresh = true;
    }

    fn poll_output(&mut self, now: Instant, buf: &mut Vec<u8>) -> Output<RelayLanguage> {
        loop {
            let due = match self.poll_carrier(now, buf) {
                Ok(output) => {
                    // What left made room, perhaps.
                    self.is_fresh = true;
                    return output;
                }
                Err(due) => due,
            };
            if std::mem::take(&mut self.is_fresh) {
                self.carrier.pump(now);
                self.programs.go_on(now, self.carrier.lines());
            } else {
                let wakes = self.programs.wakes().into_iter().chain(self.carrier.poll_timeout(now));
                return Output::Timeout(due.into_iter().chain(wakes).min());
            }
        }
    }
}
