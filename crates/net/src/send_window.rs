//! How much the kernel lets be on its way on a connection, as the node is told with its credit.
//!
//! A kernel is asked only when the answer may be another one: a system call for each send would cost more than it
//! tells.

use crate::counters::Counters;
use crate::sys;
use heddle_seam::time::{Duration, Instant};
use rustix::fd::AsFd;

/// While less than this part of the window was sent, it cannot have grown much.
const WINDOW_PARTS: usize = 4;
/// After this time it may have shrunk, because the connection was idle or packets were lost.
const AGE_MAX: Duration = Duration::from_millis(100);

/// What the kernel said of a connection's window, and how old that is.
#[derive(Debug, Default)]
pub(crate) struct SendWindow {
    bytes: usize,
    /// Bytes sent since.
    sent_bytes: usize,
    asked_at: Option<Instant>,
}

impl SendWindow {
    /// The kernel took so many bytes.
    pub fn on_sent(&mut self, bytes: usize) {
        self.sent_bytes = self.sent_bytes.saturating_add(bytes);
    }

    /// Bytes that the kernel lets be on their way unacknowledged.
    pub fn bytes(&mut self, now: Instant, fd: impl AsFd, counters: &mut Counters) -> usize {
        let is_old = self.asked_at.is_none_or(|at| now.since(at) >= AGE_MAX);
        if is_old || self.sent_bytes >= self.bytes / WINDOW_PARTS {
            counters.window_asks += 1;
            self.bytes = sys::send_window(fd).unwrap_or(usize::MAX);
            self.sent_bytes = 0;
            self.asked_at = Some(now);
        }
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_kernel_is_asked_when_much_was_sent_or_time_has_passed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut window, mut counters, mut now) = (SendWindow::default(), Counters::default(), Instant::ZERO);
        let mut bytes_after = |passed_ms, sent| {
            now += Duration::from_millis(passed_ms);
            window.on_sent(sent);
            let bytes = window.bytes(now, &socket, &mut counters);
            (bytes, counters.window_asks)
        };
        let (bytes, asks) = bytes_after(0, 0);
        assert_eq!(asks, 1);
        // What the peer offers at first is shorter than ten segments on loopback.
        assert!((32 << 10..1 << 20).contains(&bytes), "{bytes}");
        assert_eq!(bytes_after(99, bytes / 8), (bytes, 1));
        assert_eq!(bytes_after(0, bytes / 8 + 1), (bytes, 2));
        assert_eq!(bytes_after(99, 0), (bytes, 2));
        assert_eq!(bytes_after(1, 0), (bytes, 3));
    }

    #[test]
    fn what_is_no_tcp_connection_has_no_limit() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let bytes = SendWindow::default().bytes(Instant::ZERO, &socket, &mut Counters::default());
        assert_eq!(bytes, usize::MAX);
    }
}
