//! The sending half: what is under way, what of it is lost, how fast more may follow.

mod acknowledge;
mod counts;
mod grant;
mod pacer;
mod prr;
mod rack;
mod recovery;
mod rtt;
mod scoreboard;
mod sender;
mod sent;
mod timers;

pub(crate) use acknowledge::AckInput;
pub use counts::Counts;
pub(crate) use grant::Report;
pub use pacer::Pacer;
pub(crate) use rack::{clock_ms, is_before};
pub(crate) use sender::{Permission, Sender};
pub(crate) use sent::Sent;
pub(crate) use timers::Expired;
