//! The rate of a link.

/// How many bits a link takes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// Packets pass at once.
    #[default]
    Unlimited,
    /// Packets pass one after the other; at least 1.
    BitsPerS(u64),
}
