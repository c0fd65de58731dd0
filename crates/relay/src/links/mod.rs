//! Where circuits' lanes lead: channels, connections with flows and other shards, and how a circuit comes to one.

mod answers;
mod channel_link;
mod channels;
mod crossing;
mod dial;
mod farewells;
mod flow_link;
mod flows;
mod late;
mod link;
mod outlet;
mod unanswered;

pub(crate) use answers::{ANSWER_PATIENCE, Answer};
pub(crate) use channel_link::ChannelLink;
pub(crate) use channels::Channels;
pub(crate) use crossing::{Crossing, Crossings};
pub(crate) use dial::{DialKey, Dials, EndedDial};
pub(crate) use farewells::Farewells;
pub(crate) use flow_link::{FlowLink, ReadyConnection};
pub(crate) use flows::{Flows, HELD_QUEUE_HIGH_CELLS, HELD_QUEUE_LOW_CELLS, Hold};
pub(crate) use link::{Link, LinkKind};
pub(crate) use outlet::{Outlet, destroy};
pub(crate) use unanswered::Unanswered;
