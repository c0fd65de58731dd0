//! What a control plane is told and wants beside bytes.

use core::convert::Infallible;
use core::net::{IpAddr, SocketAddr};
use heddle_dir::consensus::RelayFlags;
use heddle_proto::ids::RsaId;
use heddle_relay::{Control, Event, RelayStats};
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
    /// A relay that was dialled for [`Control::AskAddress`] sees our address so.
    OurAddress { ours: IpAddr, by: RsaId, at: SocketAddr },
    /// Where the ORPort is reached from outside now, found as it was for [`ControlOptions`](crate::ControlOptions).
    Addresses(Vec<SocketAddr>),
    /// A relay's clock differs much from ours, which is so far ahead of it, or behind.
    ClockDiffers { by: RsaId, ahead_s: i64 },
    /// Memory was short, and circuits with so many cells were closed.
    MemoryPressure { freed_cells: u32 },
    /// All that the relay's sockets have carried so far.
    Carried(Carried),
    /// What a shard did: the answer to [`Control::Stats`].
    Stats { shard: u16, stats: Box<RelayStats> },
    /// What the driver knows, for metrics.
    Figures(Box<Figures>),
    /// Whether names can be resolved.
    NameServers { known: bool },
    /// A shard had too much to hear and missed what it was to be told.
    Missed { shard: u16 },
}

impl Told {
    /// What an event of a shard is to the control plane.
    ///
    /// # Errors
    /// The event, when it is nothing to it.
    pub fn of(shard: u16, event: Event) -> Result<Self, Event> {
        match event {
            Event::Reachable => Ok(Told::Reachable),
            Event::ProbeFailed => Ok(Told::ProbeFailed),
            Event::OurAddress { ours, by, at } => Ok(Told::OurAddress { ours, by: by.rsa, at }),
            Event::ClockDiffers { peer, ahead_s } => Ok(Told::ClockDiffers { by: peer.rsa, ahead_s }),
            Event::MemoryPressure { freed_cells } => Ok(Told::MemoryPressure { freed_cells }),
            Event::Stats(stats) => Ok(Told::Stats { shard, stats }),
            event => Err(event),
        }
    }
}

/// What the control plane wants of the rest of the relay.
#[derive(Debug)]
pub enum Wanted {
    /// Tell a shard. When it has too much to hear: [`Told::Missed`].
    Tell { shard: u16, control: Control },
    /// Say how much was carried: [`Told::Carried`].
    Carried,
    /// Say whether names can be resolved: [`Told::NameServers`]. First, if `reload`, the list of name servers is read
    /// again.
    NameServers { reload: bool },
    /// Say where the ORPort is reached from outside now, unless the machine has no line: [`Told::Addresses`].
    Addresses,
    /// Say what you know, for metrics: [`Told::Figures`].
    Figures,
}

/// Bytes read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    pub read: u64,
    pub written: u64,
}

/// What a driver knows of itself, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub carried: Carried,
    /// Sockets that are open, and how many there may be if that is limited.
    pub sockets: u64,
    pub sockets_max: Option<u64>,
    /// Families of its own, in the format of the [exposition](crate::metrics::Exposition).
    pub more: String,
}

/// What the control plane knows of the relay's standing, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Our flags in the consensus; `None` when it does not list us.
    pub flags: Option<RelayFlags>,
    /// Relays of the consensus whose both identities are known.
    pub relays: u64,
    /// When the certificate of the signing key ends, in seconds since 1970.
    pub signing_expires_unix_s: u64,
    /// Cells of circuits that were closed because memory was short.
    pub freed_cells: u64,
}
