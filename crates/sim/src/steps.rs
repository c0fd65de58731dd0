//! Scenarios as data.

use crate::simulation::{HostId, Simulation};
use core::fmt;
use heddle_netem::DirectionOptions;
use heddle_proto::relay::Control;
use heddle_proto::time::Duration;

/// One step of a scenario; [`Simulation::play`] takes them in order.
pub enum Step {
    /// Time passes.
    Run(Duration),
    /// Time passes until the condition holds; the scenario fails when it does not in time.
    Until { what: &'static str, time_max: Duration, holds: Box<dyn FnMut(&mut Simulation) -> bool> },
    /// A wire changes.
    Conditions { between: (HostId, HostId), wire: Box<DirectionOptions> },
    /// A firewall drops all datagrams between two hosts, or lets them pass again.
    BlockDatagrams { between: (HostId, HostId), block: bool },
    /// A host's process dies.
    Kill(HostId),
    /// A shard gets an order.
    Control { host: HostId, shard: usize, control: Control },
    /// Something is checked, or done to a node.
    Check(Box<dyn FnOnce(&mut Simulation)>),
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Run(time) => write!(f, "Run({time:?})"),
            Step::Until { what, .. } => write!(f, "Until({what})"),
            Step::Conditions { between, wire } => write!(f, "Conditions({between:?}, {wire:?})"),
            Step::BlockDatagrams { between, block } => write!(f, "BlockDatagrams({between:?}, {block})"),
            Step::Kill(host) => write!(f, "Kill({host:?})"),
            Step::Control { host, shard, control } => write!(f, "Control({host:?}, {shard}, {control:?})"),
            Step::Check(_) => f.write_str("Check"),
        }
    }
}

impl Simulation {
    /// Takes the steps of a scenario, each of which goes into the trace.
    ///
    /// # Panics
    ///
    /// When a condition does not come to hold in time.
    pub fn play(&mut self, steps: impl IntoIterator<Item = Step>) {
        for (number, step) in steps.into_iter().enumerate() {
            self.note(&step);
            match step {
                Step::Run(time) => self.run_for(time),
                Step::Until { what, time_max, holds } => {
                    assert!(self.run_until(time_max, holds), "step {number}: {what} did not come to hold");
                }
                Step::Conditions { between: (a, b), wire } => self.set_wire(a, b, *wire),
                Step::BlockDatagrams { between: (a, b), block } => self.block_datagrams(a, b, block),
                Step::Kill(host) => self.kill(host),
                Step::Control { host, shard, control } => self.control(host, shard, control),
                Step::Check(check) => check(self),
            }
        }
    }
}
