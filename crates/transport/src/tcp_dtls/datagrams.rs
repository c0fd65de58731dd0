//! DATAGRAM cells: they go beside the flows, in packets of their own, and are neither repeated nor put in order.
//!
//! A packet of them begins with a byte that no segment of the flows has: it would open its flow, end and reset it.
//! Numbers are big-endian.
//!
//! ```text
//! byte 0      bit 7  C  connector: the sender of this packet chose the port id
//!             bits 6–0  0x7e
//! bytes 1–3   port id of the flow whose circuit it is
//! bytes 4–512 the cell's body
//! ```
//!
//! and so on to the end of the packet, whatever bit C is of each.

use crate::connections::circuits::Lent;
use heddle_proto::cell::{BODY_LEN, Body, CircId, Command};
use heddle_utcp::compact::FlowId;
use std::collections::VecDeque;

const KIND: u8 = 0x7e;
const CONNECTOR: u8 = 1 << 7;
const HEAD_LEN: usize = 4;
const CELL_LEN: usize = HEAD_LEN + BODY_LEN;

/// Cells that wait for the UDP port at most, or for the relay; more are dropped.
const WAITING_MAX: usize = 1024;

/// Those that wait, of all flows of a session.
#[derive(Default)]
pub(super) struct DatagramCells {
    to_send: VecDeque<(FlowId, Box<Body>)>,
    came: VecDeque<(FlowId, Box<Body>)>,
    /// Packets of these and of the flows leave in turns, and cells are lent in turns: neither waits for all that there
    /// is of the other.
    pub(super) leaving: Turn,
    pub(super) coming: Turn,
}

/// Every other time it is the datagrams' turn.
#[derive(Default)]
pub(super) struct Turn {
    is_datagrams: bool,
}

impl Turn {
    /// Whether it is theirs now.
    pub(super) fn take(&mut self) -> bool {
        self.is_datagrams = !self.is_datagrams;
        self.is_datagrams
    }
}

impl DatagramCells {
    pub(super) fn send(&mut self, id: FlowId, body: &Body) {
        if self.to_send.len() < WAITING_MAX {
            self.to_send.push_back((id, Box::new(*body)));
        }
    }

    /// Appends a packet of what waits to be sent, of at most so many bytes. False when nothing does.
    pub(super) fn poll_packet(&mut self, bytes_max: usize, out: &mut Vec<u8>) -> bool {
        let cells_max = bytes_max / CELL_LEN;
        let cells = self.to_send.len().min(cells_max);
        for (id, body) in self.to_send.drain(..cells) {
            let first = KIND | if id.is_ours { CONNECTOR } else { 0 };
            let [_, port @ ..] = id.port.to_be_bytes();
            out.push(first);
            out.extend_from_slice(&port);
            out.extend_from_slice(&body[..]);
        }
        cells > 0
    }

    /// The cells of a packet, if it is one of these.
    pub(super) fn parse(packet: &[u8]) -> Option<impl Iterator<Item = (FlowId, &Body)>> {
        let is_ours = |first: &u8| first & !CONNECTOR == KIND;
        packet.first().filter(|first| is_ours(first))?;
        Some(packet.chunks_exact(CELL_LEN).map_while(move |cell| {
            let (&[first, a, b, c], body) = cell.split_first_chunk::<HEAD_LEN>()?;
            let id = FlowId { is_ours: first & CONNECTOR == 0, port: u32::from_be_bytes([0, a, b, c]) };
            Some((id, body.first_chunk()?)).filter(|_| is_ours(&first))
        }))
    }

    /// A cell of an open flow came for the relay.
    pub(super) fn take_in(&mut self, id: FlowId, body: &Body) {
        if self.came.len() < WAITING_MAX {
            self.came.push_back((id, Box::new(*body)));
        }
    }

    pub(super) fn has_come(&self) -> bool {
        !self.came.is_empty()
    }

    /// Lends one that came. `circuit_of` is the circuit of an open flow: a flow may have ended since, and its circuit's
    /// name may be another's by now.
    pub(super) fn lend(
        &mut self,
        lent: &mut Lent,
        mut circuit_of: impl FnMut(FlowId) -> Option<CircId>,
    ) -> Option<(CircId, Command)> {
        loop {
            let (id, body) = self.came.pop_front()?;
            if let Some(circ_id) = circuit_of(id) {
                lent.datagram(&body);
                return Some((circ_id, Command::DATAGRAM));
            }
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let places = self.to_send.capacity() + self.came.capacity();
        places * size_of::<(FlowId, Box<Body>)>() + (self.to_send.len() + self.came.len()) * BODY_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cells_come_back_as_the_other_sides(
            cells in prop::collection::vec((any::<bool>(), 0u32..1 << 24, any::<u8>()), 1..9),
            bytes_max in CELL_LEN..3000,
        ) {
            let mut waiting = DatagramCells::default();
            cells.iter().for_each(|(is_ours, port, fill)| {
                waiting.send(FlowId { is_ours: *is_ours, port: *port }, &[*fill; BODY_LEN]);
            });
            let mut packet = Vec::new();
            let mut came = Vec::new();
            while waiting.poll_packet(bytes_max, &mut packet) {
                prop_assert!(packet.len() <= bytes_max);
                let parsed = DatagramCells::parse(&packet).expect("it is one of these");
                came.extend(parsed.map(|(id, body)| (!id.is_ours, id.port, body[7])));
                packet.clear();
            }
            prop_assert_eq!(came, cells);
        }

        #[test]
        fn any_packet_is_read_or_left(packet: Vec<u8>) {
            let cells = DatagramCells::parse(&packet).map(Iterator::count);
            let is_ours = packet.first().is_some_and(|first| first & 0x7f == 0x7e);
            prop_assert_eq!(cells.is_some(), is_ours);
        }
    }

    #[test]
    fn what_nobody_takes_is_bounded() {
        let mut waiting = DatagramCells::default();
        for number in 0..5000 {
            waiting.send(FlowId { is_ours: true, port: number }, &[0; BODY_LEN]);
            waiting.take_in(FlowId { is_ours: false, port: number }, &[0; BODY_LEN]);
        }
        assert!(waiting.heap_bytes() < 2 * WAITING_MAX * (BODY_LEN + 100), "{}", waiting.heap_bytes());
    }
}
