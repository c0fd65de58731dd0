//! The rate of an interface.

/// How many bits an interface takes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// Packets pass at once.
    #[default]
    Unlimited,
    /// Packets pass one after the other; at least 1.
    BitsPerS(u64),
}
