//! For whom what is held, kind by kind.

use super::crowd::Claim;
use super::party::{Class, Holder, Key, Party};
use crate::relay::circuit::CircuitKey;
use crate::relay::link::LinkKey;

/// A channel is its peer's.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChannelClaim(pub Party);

impl Claim for ChannelClaim {
    type Id = LinkKey;

    fn class(&self) -> Class {
        self.0.class()
    }

    fn key(&self) -> Key {
        self.0.key()
    }

    fn holders(&self) -> impl Iterator<Item = Holder> {
        self.0.holders()
    }
}

/// A circuit is its previous neighbour's.
#[derive(Clone, Copy, Debug)]
pub(super) struct CircuitClaim(pub Party);

impl Claim for CircuitClaim {
    type Id = CircuitKey;

    fn class(&self) -> Class {
        self.0.class()
    }

    fn key(&self) -> Key {
        self.0.key()
    }

    fn holders(&self) -> impl Iterator<Item = Holder> {
        self.0.holders()
    }
}
