//! What an open channel keeps of what its peer began and never ends: a cell, and a message inside TLS. Resident memory
//! is the process's, so this test is alone in its program.

mod support;

use heddle_proto::cell::Command;
use heddle_proto::channel::{Channel, ChannelError, StreamTransport};
use heddle_seam::time::{Duration, Instant, UnixTime};
use heddle_transport::tls::TlsOptions;
use std::net::SocketAddr;
use support::client::{self, APPLICATION_DATA, HANDSHAKE, Sealer};

const UNIX_S: u64 = 1_798_000_000;
const CHANNELS: usize = 300;
/// Longer than one answer of a listener waits for the next.
const ANSWER_TURN: Duration = Duration::from_millis(10);
/// The longest plaintext of a record.
const RECORD_LEN: usize = 16_384;
/// Of the longest record and two reads of 4,096 bytes rustls keeps 26 KiB, and of a cell the framer keeps 2,055 bytes,
/// each in a vector that doubles.
const UNFINISHED_BYTES_MAX: usize = 32 * 1024 + 4 * 1024;

#[test]
fn an_open_channel_keeps_little_of_what_never_ends() {
    let addr: SocketAddr = "127.0.0.1:9001".parse().expect("an address");
    let wall = UnixTime { ns: UNIX_S * 1_000_000_000 };
    let mut listener = support::transport(TlsOptions::default(), Some(support::relay_identity(1, UNIX_S)), 2);
    let mut now = Instant::ZERO;
    let mut open = || -> (Box<dyn Channel>, Sealer) {
        now += ANSWER_TURN;
        let mut channel = listener.accept(now, wall, addr, addr);
        let sealer = client::open(&mut *channel, now);
        (channel, sealer)
    };
    let mut channels: Vec<_> = (0..CHANNELS).map(|_| open()).collect();
    let before = support::resident_bytes();
    let ends: Vec<_> = channels.iter_mut().map(|(channel, sealer)| begin(&mut **channel, sealer)).collect();
    let each = support::resident_bytes().saturating_sub(before) / CHANNELS;
    assert!(each <= UNFINISHED_BYTES_MAX, "{each} bytes, and the last one ended with {:?}", ends.last());
    let endless = "a message of TLS that is no data does not end";
    assert!(ends.iter().all(|end| *end == Err(ChannelError::PeerMisbehaved(endless))), "{:?}", ends[0]);
}

/// A cell of VPADDING of 16 KB that lacks a byte, then a message of TLS that claims 65,000 bytes and never ends.
fn begin(channel: &mut dyn Channel, sealer: &mut Sealer) -> Result<bool, ChannelError> {
    let now = Instant::from_nanos(u64::MAX / 2);
    let mut cell = vec![0, 0, 0, 0, Command::VPADDING.0, 0x40, 0];
    cell.resize(RECORD_LEN, 0);
    client::read(channel, now, &sealer.record(APPLICATION_DATA, &cell))?;
    const KEY_UPDATE: u8 = 24;
    let mut message = vec![KEY_UPDATE, 0, 0xfd, 0xe8];
    message.resize(60_000, 0);
    for part in message.chunks(RECORD_LEN) {
        client::read(channel, now, &sealer.record(HANDSHAKE, part))?;
    }
    Ok(true)
}
