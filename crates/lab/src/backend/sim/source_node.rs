//! A node with programs: an onion proxy with those that go over its circuits, or those that take the host's kernel.

use heddle_relay::RelayLanguage;
use heddle_seam::node::{Input, Node, Output, SocketId};
use heddle_seam::time::Instant;

use super::lines::{Lines, OverCircuits, OverKernel};
use super::programs::Programs;

/// Over what the programs of a node go.
pub(super) enum Carrier {
    Circuits(Box<OverCircuits>),
    Kernel(OverKernel),
}

impl Carrier {
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
                self.programs.go_on(now, self.carrier.lines());
            } else {
                let wakes = self.programs.wakes(now, self.carrier.lines());
                return Output::Timeout(due.into_iter().chain(wakes).min());
            }
        }
    }
}
