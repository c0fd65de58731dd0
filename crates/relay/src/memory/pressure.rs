//! What ends when the memory for cells is used up (`MaxMemInQueues`): that of the pool, what flows keep in endpoints,
//! what connections and flows take there themselves, circuits and channels here and their questions with the resolver,
//! and what waits in sockets' buffers.
//!
//! - *Bytes*: as in stock Tor, whoever holds the oldest cell goes first, and not whoever holds the most: cells of those
//!   who read move on, cells of a hoard grow old, however many circuits it is spread over (Jansen and others, "The
//!   Sniper Attack", NDSS 2014).
//! - *Buffers* of sockets, when they take more than a quarter of the memory: no circuit's end frees them, so those
//!   channels and connections end whose bytes are oldest, until they take less.
//! - *State* of circuits, connections, flows and channels, when it takes more than half of the memory: bytes of a
//!   circuit that carries nothing do not grow old, so who has more than its [share](crate::memory::shares()) loses
//!   circuits, flows and channels, those first that have been idle longest. Before them circuits go that hold more than
//!   an equal part of that share because of what they ask the resolver.

use crate::keys::CircuitKey;
use core::cmp::Reverse;
use heddle_proto::cell::CircId;
use heddle_proto::endpoint::ConnId;
use heddle_seam::node::SocketId;
use heddle_seam::time::Instant;

/// Of memory that was full, one part in so many is free afterwards, as in stock Tor. So the search for the oldest,
/// which looks at every circuit, is paid for by many cells.
pub(crate) const FREED_PART: u32 = 10;
/// Of memory one part in so many is for sockets' buffers before any socket ends for them: honest peers that stall for a
/// moment are few and have little.
pub(crate) const BUFFERS_PART: usize = 4;

/// Who holds cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    Circuit(CircuitKey),
    /// A connection that is owed data by a stream that is over.
    Connection(SocketId),
    /// A flow, by its port: of a circuit, or of none if its first cell has not come.
    Flow(usize, ConnId, CircId),
}

/// Since when, how much, and who. The first in order is the first to end.
pub(crate) type Holding<H> = (Instant, Reverse<usize>, H);

/// Ends those that come first, until it is enough.
pub(crate) fn end_in_order<T, H: Ord>(
    on: &mut T,
    mut holders: Vec<Holding<H>>,
    is_enough: impl Fn(&T) -> bool,
    end: impl Fn(&mut T, H),
) {
    holders.sort_unstable();
    for (_, _, holder) in holders {
        if is_enough(on) {
            break;
        }
        end(on, holder);
    }
}
