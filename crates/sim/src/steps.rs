//! Scenarios as data.

use crate::simulation::{HostId, Simulation};
use core::fmt;
use heddle_netem::DirectionOptions;
use heddle_seam::language::Language;
use heddle_seam::time::Duration;

/// Whether the test has seen what it waits for.
pub type Condition<L> = Box<dyn FnMut(&mut Simulation<L>) -> bool>;

/// What a test does in between.
pub type Action<L> = Box<dyn FnOnce(&mut Simulation<L>)>;

/// One step of a scenario; [`Simulation::play`] takes them in order.
pub enum Step<L: Language> {
    /// Time passes.
    Run(Duration),
    /// Time passes until the condition holds; the scenario fails when it does not in time.
    Until { what: &'static str, time_max: Duration, holds: Condition<L> },
    /// A wire changes.
    Conditions { between: (HostId, HostId), wire: Box<DirectionOptions> },
    /// A firewall drops all datagrams between two hosts, or lets them pass again.
    BlockDatagrams { between: (HostId, HostId), block: bool },
    /// A host's process dies.
    Kill(HostId),
    /// A shard gets an order.
    Control { host: HostId, shard: usize, control: L::Control },
    /// Something is checked, or done to a node.
    Check(Action<L>),
}

impl<L: Language> fmt::Debug for Step<L> {
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

impl<L: Language> Simulation<L> {
    /// Takes the steps of a scenario, each of which goes into the trace.
    ///
    /// # Panics
    ///
    /// When a condition does not come to hold in time.
    pub fn play(&mut self, steps: impl IntoIterator<Item = Step<L>>) {
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
