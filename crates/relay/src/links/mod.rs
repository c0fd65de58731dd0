//! Where circuits' lanes lead: channels, connections with flows and other shards, and how a circuit comes to one.

mod answers;
mod channels;
mod crossing;
mod dial;
mod farewells;
mod flows;
mod late;
mod link;
mod outlet;
mod unanswered;

pub(crate) use answers::Answer;
pub(crate) use channels::Channels;
pub(crate) use crossing::Crossings;
pub(crate) use dial::Dials;
pub(crate) use farewells::UNCOUNTED_MAX;
pub(crate) use flows::{Flows, HELD_QUEUE_HIGH_CELLS, HELD_QUEUE_LOW_CELLS};
pub(crate) use link::{FlowLink, Link, LinkKind};
pub(crate) use outlet::{Outlet, destroy};
