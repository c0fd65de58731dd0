//! What an operator or a test can choose about a loop.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Longer rests would be seen as queues by who measures round trips.
const TURNS_APART_MAX: Duration = Duration::from_millis(10);

/// Options of an [`EventLoop`](crate::EventLoop).
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes that a node may hand over for a socket whose buffer here is empty. With
    /// `notsent_lowat_bytes` it bounds what waits beyond the node's scheduler, and it bounds the
    /// memory of a loop to this much per socket. Default 32 KiB.
    pub write_quantum_bytes: usize,
    /// TCP_NOTSENT_LOWAT: a socket counts as full when the kernel holds this many bytes that it has
    /// not sent yet. Less keeps cells where the scheduler can still choose, more costs fewer
    /// wakeups. `None` leaves the kernel's default, a whole send buffer. Default 32 KiB.
    pub notsent_lowat_bytes: Option<u32>,
    /// TCP_NODELAY: small writes leave at once. Without it the kernel holds them back while earlier ones are
    /// unacknowledged (Nagle's algorithm, RFC 896), as it does for stock Tor. Default true.
    pub tcp_nodelay: bool,
    /// Whether UDP ports use what the kernel has: segmentation and coalescing, ECN, addresses, no fragmentation.
    /// Without, a port has no special socket options and sends and receives datagrams one by one. Default true.
    pub udp_offload: bool,
    /// TCP_USER_TIMEOUT: a connection fails when sent data stays unacknowledged for so long. Zero
    /// leaves it to the kernel's retransmissions (about 15 minutes). Default zero, as stock.
    pub user_timeout: Duration,
    /// How long a closed socket may take to send what is pending before it is reset. Default 15 s.
    pub close_flush_max: Duration,
    /// Closed sockets that may still send; above it, the one that was closed first is reset. Each holds up to
    /// `write_quantum_bytes` here. Default 1,024, so 32 MiB.
    pub closing_max: usize,
    /// Connections that may wait for this loop and that another accepted; that one keeps what is beyond. Default 1,024.
    pub handed_max: usize,
    /// Sockets that there may be on a node's stack, with those that were made in advance. Default 16,384.
    pub stack_sockets_max: usize,
    /// After a turn that moved little, the next one begins no sooner than this after that one did, so that what comes
    /// packet by packet is worked off together: a turn for each costs more than what is done with it. What comes after
    /// a pause is not held up; timers and messages of other threads wait as well. Zero: no turn is. Default 1 ms.
    pub turns_apart: Duration,
    /// How often a node hears the wall clock. Default 60 s.
    pub wall_clock_every: Duration,
    /// Source address of IPv4 connections (OutboundBindAddress).
    pub outbound_bind_v4: Option<Ipv4Addr>,
    /// Source address of IPv6 connections (OutboundBindAddress).
    pub outbound_bind_v6: Option<Ipv6Addr>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            write_quantum_bytes: 32 * 1024,
            notsent_lowat_bytes: Some(32 * 1024),
            tcp_nodelay: true,
            udp_offload: true,
            user_timeout: Duration::ZERO,
            close_flush_max: Duration::from_secs(15),
            closing_max: 1024,
            handed_max: 1024,
            stack_sockets_max: 16 * 1024,
            turns_apart: Duration::from_millis(1),
            wall_clock_every: Duration::from_secs(60),
            outbound_bind_v4: None,
            outbound_bind_v6: None,
        }
    }
}

impl Options {
    /// Says what is wrong with the options.
    pub fn validate(&self) -> Result<(), &'static str> {
        if !(1024..=16 << 20).contains(&self.write_quantum_bytes) {
            return Err("write_quantum_bytes must lie between 1 KiB and 16 MiB");
        }
        if self.notsent_lowat_bytes == Some(0) {
            return Err("notsent_lowat_bytes must not be zero");
        }
        if self.turns_apart > TURNS_APART_MAX {
            return Err("turns_apart must be at most 10 ms");
        }
        if self.user_timeout.as_millis() > i32::MAX as u128 {
            return Err("user_timeout must be below 24 days");
        }
        Ok(())
    }

    /// Where a connection to `to` comes from, if the operator chose.
    pub(crate) fn outbound_bind(&self, to: SocketAddr) -> Option<SocketAddr> {
        let from = match to {
            SocketAddr::V4(_) => self.outbound_bind_v4.map(IpAddr::V4),
            SocketAddr::V6(_) => self.outbound_bind_v6.map(IpAddr::V6),
        };
        from.map(|ip| SocketAddr::new(ip, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validate_names_the_bad_option() {
        assert_eq!(Options::default().validate(), Ok(()));
        let bad = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            options.validate().unwrap_err()
        };
        assert!(bad(|o| o.write_quantum_bytes = 0).contains("write_quantum_bytes"));
        assert!(bad(|o| o.notsent_lowat_bytes = Some(0)).contains("notsent_lowat_bytes"));
        assert!(bad(|o| o.user_timeout = Duration::from_secs(1 << 40)).contains("user_timeout"));
    }
}
