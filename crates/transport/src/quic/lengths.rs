//! How long datagrams are. A STREAM frame takes more bytes the further its stream is and the more streams there were,
//! so the length of a cell that travels alone would tell a circuit's first cell from its later ones, and an end from
//! either.
//!
//! quinn-proto pads a packet until the sample that protects its header lies within, and asks the key how long that is
//! before it writes any frame. A key that asks for a long sample therefore gets a long packet:
//!
//! ```text
//!   the connection ──▶ Lengths::begin ──▶ quinn-proto ──▶ LongHeader::sample_size ──▶ so much at least
//! ```
//!
//! What carries nothing but acknowledgements stays as it is: quinn-proto would count padding of it against the window
//! until the peer acknowledges something, which it may have no reason to do.

use super::gauge::Gauge;
use super::ids::{ID_LEN, ID_LEN_MAX};
use crate::connections::circuits::FLOW_CELL_LEN;
use quinn_proto::crypto::HeaderKey;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a packet spends besides frames: its first byte, the id, the longest packet number, and the tag.
const PACKET_LEN: usize = 1 + ID_LEN + 4 + 16;
/// What a STREAM frame spends besides data, while its stream is below 2^30 and shorter than 2^62 bytes.
const STREAM_LEN: usize = 1 + 4 + 8 + 2;
/// Room for an acknowledgement without many gaps, or for what tells the peer of a window or of an end.
const REST_LEN: usize = 42;

/// Datagrams with a cell or less, or the end of a circuit, and with two cells or less. More cells are as long as they
/// come: what begins a circuit is a cell at a time, and padding the last datagram of each batch of a busy one cost
/// several percent.
const ONE_CELL_LEN: usize = PACKET_LEN + STREAM_LEN + FLOW_CELL_LEN + REST_LEN;
const TWO_CELLS_LEN: usize = PACKET_LEN + 2 * (STREAM_LEN + FLOW_CELL_LEN) + REST_LEN;

/// The shortest datagram that every path carries (RFC 9000, section 14), and a probe for something lost is never
/// longer.
const EVERY_PATH_LEN: usize = 1200;

/// A peer may ask for longer ids from one packet to the next, and no packet may outgrow its datagram.
const ID_SLACK: usize = ID_LEN_MAX - ID_LEN;

/// How long the packets of one connection are to be.
#[derive(Debug)]
pub(super) struct Lengths {
    gauge: Arc<Gauge>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How long a packet is to be; 0 while none is padded.
    wanted: usize,
    /// Whether what does not ask for the window may be a probe.
    may_probe: bool,
    /// How often the window had been asked for when the latest packet was begun.
    asked: u32,
    /// What the packet was begun with that is being written.
    begun: Option<usize>,
    /// Whether the peer's ids are as long as ours. Where they are not, nothing is padded.
    has_other_ids: bool,
    /// How many keys the session made: the first are those of its handshake.
    keys: u32,
}

impl Lengths {
    pub(super) fn new(gauge: Arc<Gauge>) -> Self {
        const { assert!(TWO_CELLS_LEN + ID_SLACK <= EVERY_PATH_LEN) }
        Lengths { gauge, state: Mutex::default() }
    }

    /// quinn-proto is about to make datagrams of this.
    pub(super) fn begin(&self, content: Content, may_probe: bool) {
        // What was lost counts as long as it was, but for a part of what a packet spends.
        let wanted = match content {
            Content::Handshake | Content::Cells { bytes: 0, has_ends: false } => 0,
            Content::Cells { bytes, .. } if bytes <= ONE_CELL_LEN => ONE_CELL_LEN,
            Content::Cells { bytes, .. } if bytes <= TWO_CELLS_LEN => TWO_CELLS_LEN,
            Content::Cells { .. } => 0,
        };
        let mut state = self.state();
        let wanted = if state.has_other_ids { 0 } else { wanted };
        let asked = self.gauge.asked();
        *state = State { wanted, may_probe, asked, begun: None, ..*state };
    }

    /// The key of packet headers that the session made.
    pub(super) fn header_key(lengths: &Arc<Lengths>, inner: Box<dyn HeaderKey>) -> Box<dyn HeaderKey> {
        let mut state = lengths.state();
        state.keys += 1;
        Box::new(LongHeader { inner, lengths: lengths.clone(), is_handshake: state.keys == 1 })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What waits to leave.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    Handshake,
    /// So many bytes of cells, and perhaps ends of circuits.
    Cells {
        bytes: usize,
        has_ends: bool,
    },
}

/// A key that makes packets longer; all else is its own.
struct LongHeader {
    inner: Box<dyn HeaderKey>,
    lengths: Arc<Lengths>,
    is_handshake: bool,
}

impl HeaderKey for LongHeader {
    fn decrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        self.inner.decrypt(pn_offset, packet);
    }

    fn encrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        self.inner.encrypt(pn_offset, packet);
        if self.is_handshake {
            return;
        }
        let mut state = self.lengths.state();
        state.begun = None;
        // Those of one batch are as long as its first.
        state.wanted = state.wanted.min(packet.len());
        state.has_other_ids |= pn_offset != 1 + ID_LEN;
    }

    fn sample_size(&self) -> usize {
        let mut state = self.lengths.state();
        if self.is_handshake {
            // What shares a datagram with a packet of the handshake has no room.
            state.wanted = 0;
            return self.inner.sample_size();
        }
        // It is asked again when the packet is written.
        if let Some(begun) = state.begun {
            return begun;
        }
        let asked = self.lengths.gauge.asked();
        let is_extra = core::mem::replace(&mut state.asked, asked) == asked;
        let len = if is_extra && !state.may_probe { 0 } else { state.wanted };
        // The sample begins four bytes behind the beginning of the packet number (RFC 9001, section 5.4.2).
        let sample = self.inner.sample_size().max(len.saturating_sub(1 + ID_LEN + 4));
        state.begun = Some(sample);
        sample
    }
}
