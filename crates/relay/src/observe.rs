//! What can be seen of a shard by whoever analyses it: families of its structures, each with numbers about it.
//!
//! Nothing is kept for this. A shard that is asked looks at what it has then ([`Control::Observe`](crate::Control)),
//! and one that is told to force observations at a place ([`Control::Force`](crate::Control)) makes one each time that
//! it comes by there. Neither has addresses, identities or anything that circuits carry in it, but numbers of circuits
//! and links, by which they are told apart as long as they exist.

use heddle_spe::{Family, Field, Snapshot};

/// The families, each at the place of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Observees {
    /// Circuits' queues on links.
    Lanes,
    Circuits,
    Streams,
    /// Channels over TLS.
    Channels,
    /// Connections with a flow for each circuit.
    Connections,
    /// The shard itself: its pool and what it holds.
    Shards,
}

impl Observees {
    /// All of them.
    pub const ALL: [Observees; 6] = [
        Observees::Lanes,
        Observees::Circuits,
        Observees::Streams,
        Observees::Channels,
        Observees::Connections,
        Observees::Shards,
    ];

    /// The family of that name.
    pub fn named(name: &str) -> Option<Observees> {
        Observees::ALL.into_iter().find(|observees| observees.family().name == name)
    }

    /// What is to be seen of them.
    pub fn family(self) -> &'static Family {
        match self {
            Observees::Lanes => &LANES,
            Observees::Circuits => &CIRCUITS,
            Observees::Streams => &STREAMS,
            Observees::Channels => &CHANNELS,
            Observees::Connections => &CONNECTIONS,
            Observees::Shards => &SHARDS,
        }
    }
}

/// A place of the relay where observations can be forced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Before a cell is queued on a lane, of that lane.
    BeforePush,
    /// Before a channel is given cells and its bytes go to the socket, of that channel.
    BeforeWrite,
}

impl Place {
    /// All of them.
    pub const ALL: [Place; 2] = [Place::BeforePush, Place::BeforeWrite];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Place::BeforePush => "before-push",
            Place::BeforeWrite => "before-write",
        }
    }

    /// The place of that name.
    pub fn named(name: &str) -> Option<Place> {
        Place::ALL.into_iter().find(|place| place.name() == name)
    }

    /// Whose observations it forces.
    pub fn observees(self) -> Observees {
        match self {
            Place::BeforePush => Observees::Lanes,
            Place::BeforeWrite => Observees::Channels,
        }
    }
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The number of the request, or of the place that forced it.
    pub why: Why,
    /// What, and when in the shard's time.
    pub snapshot: Snapshot,
}

/// Why somebody looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Asked by the request of that number.
    Asked(u64),
    /// The program came by.
    Forced(Place),
}

const fn field(name: &'static str, unit: &'static str) -> Field {
    Field { name, unit }
}

const LANES: Family = Family {
    name: "lanes",
    about: "a circuit's queue on one of its two links",
    fields: &[
        field("cells", "cells"),
        field("oldest_ns", "ns"),
        field("circuit", "1"),
        field("link", "1"),
        field("towards_client", "1"),
        field("blocked", "1"),
        field("held", "1"),
    ],
};

const CIRCUITS: Family = Family {
    name: "circuits",
    about: "a circuit, with its lanes and streams",
    fields: &[
        field("cells", "cells"),
        field("streams", "1"),
        field("questions", "1"),
        field("goes_on", "1"),
        field("between_shards", "1"),
        field("unused_ns", "ns"),
    ],
};

const STREAMS: Family = Family {
    name: "streams",
    about: "what a connection beyond the exit is owed",
    fields: &[field("cells", "cells"), field("oldest_ns", "ns"), field("is_over", "1")],
};

const CHANNELS: Family = Family {
    name: "channels",
    about: "a channel over TLS, open or not",
    fields: &[
        field("writable_bytes", "B"),
        field("circuits", "1"),
        field("destroys", "1"),
        field("has_output", "1"),
        field("open", "1"),
        field("to_relay", "1"),
        field("initiator", "1"),
    ],
};

const CONNECTIONS: Family = Family {
    name: "connections",
    about: "a connection to a relay with a flow for each circuit",
    fields: &[
        field("queued_cells", "cells"),
        field("capacity_cells", "cells"),
        field("window_bytes", "B"),
        field("rtt_ns", "ns"),
        field("circuits", "1"),
        field("transport", "1"),
        field("sent_bytes", "B"),
        field("received_bytes", "B"),
        field("sent_packets", "1"),
        field("lost_packets", "1"),
        field("cells_in", "cells"),
        field("cells_out", "cells"),
    ],
};

const SHARDS: Family = Family {
    name: "shards",
    about: "a shard: its pool of cells and how much it holds of what",
    fields: &[
        field("slots_used", "cells"),
        field("slots_used_max", "cells"),
        field("slots_max", "cells"),
        field("cells_in_lanes", "cells"),
        field("cells_of_streams", "cells"),
        field("buffer_bytes", "B"),
        field("flow_bytes", "B"),
        field("circuits", "1"),
        field("channels", "1"),
        field("connections", "1"),
        field("streams", "1"),
        field("questions", "1"),
        field("onionskins", "1"),
        field("dials", "1"),
        field("turns", "1"),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_spe::FIELDS_MAX;

    #[test]
    fn families_and_places_are_found_by_name_and_fit() {
        for (place, observees) in Observees::ALL.into_iter().enumerate() {
            let family = observees.family();
            assert_eq!((Observees::named(family.name), observees as usize), (Some(observees), place));
            assert!(family.fields.len() <= FIELDS_MAX);
        }
        assert!(Place::ALL.into_iter().all(|place| Place::named(place.name()) == Some(place)));
        assert_eq!((Observees::named("none"), Place::named("none")), (None, None));
    }
}
