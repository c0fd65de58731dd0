//! A bulk sender that is `utcp` instead of a host's kernel.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use heddle_netem::{Instant as Time, Seed};
use heddle_utcp::{Algorithm, BufferPool, ConnectionId, Host, HostLimits, Instant, Options, State};

use crate::emulator::Stack;

/// When a sender had the first data to send, once it had.
pub(super) type Begun = Arc<OnceLock<std::time::Instant>>;

/// The clock of `utcp` is so much ahead of the emulation's, because its zero stands for "never".
const AHEAD_NS: u64 = 1_000_000_000;
/// What one call writes.
const WRITE: [u8; 16 << 10] = [0; 16 << 10];

/// Sends zeros to one peer as fast as TCP lets it.
pub(super) struct UtcpSender {
    host: Host,
    from: SocketAddr,
    to: SocketAddr,
    connection: Option<ConnectionId>,
    begun: Begun,
}

impl UtcpSender {
    /// A sender of `congestion_control`, by the name that the kernel has for it; `None` when `utcp` does not have it.
    /// The seed makes its ports and sequence numbers.
    pub(super) fn new(
        congestion_control: &str,
        buffer_max_bytes: u32,
        [from, to]: [SocketAddr; 2],
        seed: &Seed,
        begun: &Begun,
    ) -> Option<UtcpSender> {
        let options = Options {
            algorithm: algorithm(congestion_control)?,
            send_buffer_max_bytes: buffer_max_bytes,
            receive_buffer_max_bytes: buffer_max_bytes,
            ..Options::default()
        };
        let mut rng = seed.rng();
        let random = Box::new(move || rng.next_u64());
        // Half of the pool is for what is received, and a chunk is given back when all of it is acknowledged.
        let pool = BufferPool::new(4 * buffer_max_bytes as usize);
        let host = Host::new(options, pool, HostLimits::default(), random);
        Some(UtcpSender { host, from, to, connection: None, begun: Begun::clone(begun) })
    }

    fn write(&mut self, now: Instant) {
        if self.connection.is_none() {
            self.connection = self.host.connect(now, self.from, self.to);
        }
        let Some(connection) = self.connection.and_then(|id| self.host.get_mut(id)) else { return };
        if connection.state() == State::Established {
            self.begun.get_or_init(std::time::Instant::now);
        }
        while connection.write(&WRITE) > 0 {}
    }
}

/// The algorithm that the kernel calls by this name.
fn algorithm(congestion_control: &str) -> Option<Algorithm> {
    match congestion_control {
        "cubic" => Some(Algorithm::Cubic),
        "reno" => Some(Algorithm::Reno),
        _ => None,
    }
}

impl Stack for UtcpSender {
    fn handle_packet(&mut self, now: Time, packet: &[u8]) {
        self.host.handle_packet(ahead(now), packet);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.host.handle_timeout(ahead(now));
        self.write(ahead(now));
    }

    fn poll_packet(&mut self, now: Time, packet: &mut Vec<u8>) -> bool {
        self.host.poll_packet(ahead(now), packet)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let timer = self.host.poll_timeout()?;
        Some(Time::from_nanos(timer.as_nanos().saturating_sub(AHEAD_NS)))
    }
}

fn ahead(now: Time) -> Instant {
    Instant::from_nanos(now.as_nanos() + AHEAD_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_with_a_syn_and_repeats_it() {
        let ends = [1, 2].map(|last| SocketAddr::from(([10, 0, 0, last], u16::from(last) - 1)));
        let ends = [ends[0], SocketAddr::from((ends[1].ip(), 80))];
        let begun = Begun::default();
        assert!(UtcpSender::new("bbr", 1 << 20, ends, &Seed::from_number(1), &begun).is_none());
        let mut sender = UtcpSender::new("reno", 1 << 20, ends, &Seed::from_number(1), &begun).unwrap();
        let mut packets = Vec::new();
        let mut now = Time::ZERO;
        for _ in 0..2 {
            sender.handle_timeout(now);
            let mut packet = Vec::new();
            assert!(sender.poll_packet(now, &mut packet) && !sender.poll_packet(now, &mut Vec::new()));
            packets.push(packet);
            now = sender.poll_timeout().unwrap();
        }
        // The flags of TCP behind 20 bytes of IPv4; the second comes a second later.
        assert_eq!(packets.iter().map(|packet| packet[33] & 0x3f).collect::<Vec<_>>(), [2, 2]);
        assert_eq!(now.as_nanos() / 1_000_000_000, 3);
    }
}
