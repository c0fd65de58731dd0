//! A packet and what travels with it.

use crate::time::Time;

/// What the driver sends: opaque, but with a length and with bits that a wire may flip.
pub trait Packet: Clone {
    /// The length on the wire in bytes, without framing. It must not change while the packet is inside.
    fn len_bytes(&self) -> usize;

    /// Flips bit `bit`, which is below eight times the length. A packet without contents may mark itself instead.
    fn flip_bit(&mut self, bit: usize);
}

impl Packet for Vec<u8> {
    fn len_bytes(&self) -> usize {
        self.len()
    }

    fn flip_bit(&mut self, bit: usize) {
        if let Some(byte) = self.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }
}

/// A host of a topology, by its place among the options' hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// A packet inside the topology.
#[derive(Clone, Debug)]
pub(crate) struct Transit<P> {
    pub packet: P,
    /// Its length without framing.
    pub len_bytes: u64,
    pub from: HostId,
    pub to: HostId,
    /// The direction that it takes, by its place in the topology.
    pub direction: u32,
    pub sent: Time,
    /// How long it waited in queues so far.
    pub queued_ns: u64,
    /// The offset to the delay that was drawn for it.
    pub jitter_ns: i64,
    /// How long it is held back to be overtaken.
    pub hold_ns: u64,
    pub corrupted: bool,
    pub copy: bool,
}

/// A packet that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// When it arrived.
    pub at: Time,
    /// When it was sent.
    pub sent: Time,
    pub from: HostId,
    pub to: HostId,
    /// How long it waited in queues, of the at most three that it met.
    pub queued_ns: u64,
    /// Whether a bit of it was flipped.
    pub corrupted: bool,
    /// Whether it is a copy that a wire made.
    pub copy: bool,
    pub packet: P,
}
