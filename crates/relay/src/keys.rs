//! How the parts of a shard name circuits, lanes and links to one another.

slotmap::new_key_type! {
    /// A circuit of this shard.
    pub(super) struct CircuitKey;

    /// A link of this shard.
    pub(super) struct LinkKey;
}

/// One of the two directions in which a circuit leaves us. With the circuit's key it names a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    /// Towards the client.
    Prev,
    /// Away from the client.
    Next,
}

impl Side {
    pub fn opposite(self) -> Side {
        match self {
            Side::Prev => Side::Next,
            Side::Next => Side::Prev,
        }
    }
}
