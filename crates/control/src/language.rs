//! What a control plane is told and wants beside bytes.

use core::convert::Infallible;
use heddle_dir::consensus::RelayFlags;
use heddle_relay::{Control, Event};
use heddle_seam::language::Language;

/// The language of [`ControlPlane`](crate::ControlPlane).
#[derive(Debug)]
pub enum ControlLanguage {}

impl Language for ControlLanguage {
    type Control = Told;
    type Event = Wanted;
    type Message = Infallible;
    type Job = Infallible;
}

/// What the rest of the relay tells the control plane.
#[derive(Debug)]
pub enum Told {
    /// Somebody else's channel to our ORPort carried our own probe.
    Reachable,
    /// A reachability probe failed.
    ProbeFailed,
    /// Memory was short, and circuits with so many cells were closed.
    MemoryPressure { freed_cells: u32 },
    /// All bytes that the relay's sockets have carried so far.
    Carried { read: u64, written: u64 },
    /// Whether names can be resolved.
    NameServers { known: bool },
    /// The relay ends: what is to be kept is to be written now.
    Ending,
}

impl Told {
    /// What an event of a shard is to the control plane, if it is anything.
    pub fn of(event: &Event) -> Option<Self> {
        match event {
            Event::Reachable => Some(Told::Reachable),
            Event::ProbeFailed => Some(Told::ProbeFailed),
            Event::MemoryPressure { freed_cells } => Some(Told::MemoryPressure { freed_cells: *freed_cells }),
            _ => None,
        }
    }
}

/// What the control plane wants of the rest of the relay.
#[derive(Debug)]
pub enum Wanted {
    /// Tell a shard. One that is full or has ended misses it; the next renewal repeats what matters.
    Tell { shard: u16, control: Control },
    /// Say how much was carried: [`Told::Carried`].
    Carried,
    /// Say whether names can be resolved: [`Told::NameServers`]. First, if `reload`, the list of name servers is read again.
    NameServers { reload: bool },
    /// What whoever watches the relay may hear of the control plane has changed.
    Facts(Facts),
}

/// What the control plane knows and metrics tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Our flags in the consensus; `None` when it does not list us.
    pub flags: Option<RelayFlags>,
    /// Relays of the consensus whose both identities are known.
    pub relays: u64,
    /// When the certificate of the signing key ends, in seconds since 1970.
    pub signing_expires_unix_s: u64,
    /// Cells of circuits that were closed because memory was short.
    pub freed_cells: u64,
}
