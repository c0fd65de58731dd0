//! What nodes and drivers tell each other beside bytes.

use core::convert::Infallible;
use core::fmt::Debug;

/// What a kind of node is told and tells beside bytes and time. It is a name for these types, and has no values.
pub trait Language: Debug + Sized + 'static {
    /// What the operator or the control plane wants ([`Input::Control`](crate::node::Input::Control)).
    type Control: Debug + Send + 'static;
    /// What logs, metrics or tests want to know ([`Output::Event`](crate::node::Output::Event)).
    type Event: Debug + Send + 'static;
    /// What one shard of a node says to another.
    type Message: Debug + Send + 'static;
    /// Work that is too slow for the data path.
    type Job: Job;
}

/// A piece of work for a worker thread. It owns all that it needs, randomness included, so that it gives the same
/// result on any thread at any time.
pub trait Job: Debug + Send + 'static {
    /// What comes of it.
    type Result: Debug + Send + 'static;

    /// Which kind of work this is, for drivers that charge by it.
    fn kind(&self) -> &'static str;

    /// Does the work.
    fn run(self) -> Self::Result;
}

impl Job for Infallible {
    type Result = Infallible;

    fn kind(&self) -> &'static str {
        match *self {}
    }

    fn run(self) -> Infallible {
        self
    }
}

/// The language of nodes that know of bytes and time alone. Their control is a nudge that says nothing: it has the node
/// look around and say what it wants.
#[derive(Debug)]
pub enum Plain {}

impl Language for Plain {
    type Control = ();
    type Event = Infallible;
    type Message = Infallible;
    type Job = Infallible;
}
