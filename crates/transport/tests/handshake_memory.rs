//! What a TLS handshake holds that is not gone on with. The relay grants so many handshakes as fit its limit if each
//! holds 32 KB beside what came beyond 8 KB. Resident memory is the process's, so this test is alone in its program.

mod support;

use heddle_proto::channel::{Channel, StreamTransport, Target};
use heddle_seam::time::{Duration, Instant, UnixTime};
use heddle_transport::tls::TlsOptions;
use std::net::SocketAddr;

/// When the keys and certificates are made and all channels open: the end of 2026, as in the simulator.
const UNIX_S: u64 = 1_798_000_000;
const HANDSHAKES: usize = 300;
/// Longer than one answer of a listener waits for the next.
const ANSWER_TURN: Duration = Duration::from_millis(10);
/// What the relay takes a handshake to hold.
const HANDSHAKE_BYTES: usize = 32 * 1024;

/// How far a handshake goes.
#[derive(Clone, Copy, Debug)]
enum Stop {
    /// Nothing comes.
    Connected,
    /// Half a ClientHello comes.
    InHello,
    /// The hello comes, and the answer is not taken.
    Answered,
    /// The answer leaves.
    AnswerSent,
    /// After it most of a long record comes.
    InRecord,
}

#[test]
fn a_half_finished_handshake_holds_no_more_than_it_is_taken_to() {
    let addr: SocketAddr = "127.0.0.1:9001".parse().expect("an address");
    let wall = UnixTime { ns: UNIX_S * 1_000_000_000 };
    let identity = support::relay_identity(1, UNIX_S);
    let ids = identity.link.ids;
    // All are kept until the end, or the next would use the memory of those that are over.
    let mut held: Vec<Box<dyn Channel>> = Vec::new();
    for tls13 in [true, false] {
        let options = TlsOptions { tls13, ..TlsOptions::default() };
        let target = Target { rsa: ids.rsa, ed25519: Some(ids.ed25519), addrs: vec![addr] };
        let mut client = support::transport(options, None, 1).dial(Instant::ZERO, wall, &target, addr);
        let mut hello = Vec::new();
        client.handle_writable(Instant::ZERO, 64 << 10);
        client.poll_transmit(Instant::ZERO, &mut hello);
        for stop in [Stop::Connected, Stop::InHello, Stop::Answered, Stop::AnswerSent, Stop::InRecord] {
            let mut listener = support::transport(TlsOptions::default(), Some(identity.clone()), 2);
            let before = support::resident_bytes();
            let mut now = Instant::ZERO;
            for _ in 0..HANDSHAKES {
                let mut channel = listener.accept(now, wall, addr, addr);
                go_on(&mut *channel, now, &hello, stop);
                now += ANSWER_TURN;
                held.push(channel);
            }
            let each = support::resident_bytes().saturating_sub(before) / HANDSHAKES;
            assert!(each <= HANDSHAKE_BYTES, "TLS 1.3: {tls13}, {stop:?}: {each} bytes");
        }
    }
}

fn go_on(channel: &mut dyn Channel, now: Instant, hello: &[u8], stop: Stop) {
    let read = |channel: &mut dyn Channel, bytes: &[u8]| {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = channel.handle_read(now, rest).expect("nothing is wrong yet");
            support::work_off(channel, now).expect("nothing is wrong yet");
            assert!(channel.next_incoming(now).expect("nothing is wrong yet").is_none());
            rest = &rest[taken..];
        }
    };
    match stop {
        Stop::Connected => {}
        Stop::InHello => read(channel, &hello[..hello.len() / 2]),
        Stop::Answered => read(channel, hello),
        Stop::AnswerSent | Stop::InRecord => {
            read(channel, hello);
            let mut flight = Vec::new();
            channel.handle_writable(now, 64 << 10);
            channel.poll_transmit(now, &mut flight);
            assert!(flight.len() > 500, "ServerHello and certificates");
        }
    }
    if matches!(stop, Stop::InRecord) {
        // Application data of TLS 1.3, or a handshake's of 1.2, of 8,000 bytes; 7,000 of them come.
        let mut record = vec![0x17, 3, 3, 0x1f, 0x40];
        record.resize(7_000, 0);
        read(channel, &record);
    }
}
