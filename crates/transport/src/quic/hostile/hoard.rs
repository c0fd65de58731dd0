//! A peer that leaves a hole in each of its flows: what comes behind it can be read by nobody.

use super::Table;
use crate::quic::window::BASE_MIN;
use heddle_proto::endpoint::Endpoint;
use quinn_proto::congestion::CubicConfig;
use quinn_proto::{Dir, Side, StreamId, TransportConfig};
use std::sync::Arc;

/// How a peer sends that takes no packet for lost and has no window of its own.
pub(super) fn unpaced() -> TransportConfig {
    let mut cubic = CubicConfig::default();
    cubic.initial_window(1 << 40);
    let mut transport = TransportConfig::default();
    transport.packet_threshold(u32::MAX).congestion_controller_factory(Arc::new(cubic));
    transport
}

/// A connection whose peer has so many flows, of each of which the first byte was lost and `behind` came after it, and
/// how much of that the connection's window took. Time stands still, so nothing is sent again.
fn with_holes(flows: u32, behind: &[u8]) -> (Table, usize) {
    let mut table = Table::of(flows, unpaced()).prove();
    let mut taken = 0;
    for _ in 0..flows {
        // Room grows as it is used, until the window is full.
        let Some(id) = table.peer.connection.streams().open(Dir::Bi) else { break };
        let mut stream = table.peer.connection.send_stream(id);
        taken += stream.write(&[0]).unwrap_or(0);
        table.losing = 1;
        table.exchange();
        table.losing = 0;
        taken += table.peer.connection.send_stream(id).write(behind).unwrap_or(0);
        table.exchange_all();
    }
    (table, taken)
}

/// A connection whose peer has so many flows, of each of which the first byte was lost, and so many pieces of a byte
/// each came that do not touch.
pub(super) fn with_pieces(flows: u32, pieces: usize) -> Table {
    let (mut table, _) = with_holes(flows, &[0]);
    let ids: Vec<_> = (0..flows).map(|number| StreamId::new(Side::Client, Dir::Bi, number.into())).collect();
    for _ in 0..pieces {
        for id in &ids {
            let mut stream = table.peer.connection.send_stream(*id);
            stream.write(&[0]).expect("the window is not full");
        }
        table.losing = usize::MAX;
        table.exchange();
        table.losing = 0;
        for id in &ids {
            table.peer.connection.send_stream(*id).write(&[0]).expect("the window is not full");
        }
        table.exchange();
    }
    table
}

/// The peer holds up itself, and all that we keep is counted.
#[test]
fn holes_hold_no_more_than_the_connection_s_window() {
    let (table, taken) = with_holes(300, &[0; 20_000]);
    let held = table.ours.buffered_bytes();
    // The proof had 32 bytes.
    assert_eq!(taken as u64 + 32, BASE_MIN);
    assert!((taken - 300..taken + taken / 3).contains(&held), "{held} of {taken}");
    assert_eq!(table.cells, []);
}
