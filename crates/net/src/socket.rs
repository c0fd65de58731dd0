//! One TCP socket: what the kernel says of it, what the node wants of it, and the bytes that wait.
//!
//! `epoll` is edge-triggered: it tells once that something changed, and `readable` and `writable`
//! remember it until a call finds out that it is over. A socket therefore costs one `epoll_ctl` in
//! its life, and switching interest on and off costs none.

use crate::counters::Counters;
use crate::send_window::SendWindow;
use heddle_seam::time::Instant;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, Shutdown};
use std::net::SocketAddr;

/// Which of the loop's queues a socket stands in, so that it stands in each at most once.
#[derive(Default)]
pub(crate) struct Queued {
    pub read: bool,
    pub grant: bool,
    pub flush: bool,
}

/// How far the FIN of our side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fin {
    None,
    /// To be sent after what is pending.
    Wanted,
    Sent,
}

/// A socket's place in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Connecting,
    Open,
    /// The node closed it; what is pending is still being sent.
    Closing,
}

pub(crate) struct Socket {
    pub fd: OwnedFd,
    pub peer: SocketAddr,
    pub state: State,
    /// A receive may find something.
    pub readable: bool,
    /// A send may find room.
    pub writable: bool,
    /// Only an empty receive proves that the socket is empty: a FIN, an error or urgent data may
    /// stand behind what a short receive returned, and no further edge would tell.
    pub read_until_empty: bool,
    pub eof: bool,
    /// The kernel holds an error that a receive will find.
    pub broken: bool,
    pub want_read: bool,
    pub want_write: bool,
    /// The node asked for credit anew, so it is told even if it has all it can have.
    pub grant_due: bool,
    /// Bytes that the node may still hand over.
    pub credit: usize,
    pub fin: Fin,
    pub queued: Queued,
    /// When it is reset, of one that the node closed and that still sends.
    pub reset_due: Option<Instant>,
    pub window: SendWindow,
    /// What the kernel keeps of memory for it, if that is counted.
    pub kernel_bytes: usize,
    out: Vec<u8>,
    /// Bytes of `out` that the kernel took already.
    sent: usize,
    /// What the node was told last of the memory that `out` and the kernel take.
    told_bytes: usize,
}

/// What became of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Everything is with the kernel.
    All,
    /// The rest waits until the kernel has room.
    Blocked,
}

impl Socket {
    pub fn new(fd: OwnedFd, peer: SocketAddr, state: State) -> Self {
        Socket {
            fd,
            peer,
            state,
            readable: false,
            writable: state == State::Open,
            read_until_empty: false,
            eof: false,
            broken: false,
            want_read: false,
            want_write: false,
            grant_due: false,
            credit: 0,
            fin: Fin::None,
            queued: Queued::default(),
            reset_due: None,
            window: SendWindow::default(),
            kernel_bytes: 0,
            out: Vec::new(),
            sent: 0,
            told_bytes: 0,
        }
    }

    pub fn may_read(&self) -> bool {
        self.state == State::Open && self.want_read && self.readable && !self.eof
    }

    /// Whether the node gets credit now: it wants to write, and nothing waits to be sent.
    pub fn may_grant(&self, quantum: usize) -> bool {
        self.state == State::Open
            && self.want_write
            && self.writable
            && self.out.is_empty()
            && self.fin == Fin::None
            && (self.credit < quantum || self.grant_due)
    }

    /// Whether bytes or a FIN wait to be sent.
    pub fn is_pending(&self) -> bool {
        !self.out.is_empty() || self.fin == Fin::Wanted
    }

    /// Receives once. `Ok(None)` says that there is nothing at the moment, `Ok(Some(0))` is the
    /// peer's FIN. `buf` must not be empty.
    pub fn recv(&mut self, buf: &mut [u8], counters: &mut Counters) -> Result<Option<usize>, Errno> {
        debug_assert!(!buf.is_empty(), "a receive into nothing would look like a FIN");
        counters.recvs += 1;
        let len = buf.len();
        match net::recv(&self.fd, buf, RecvFlags::empty()) {
            Ok((0, _)) => {
                self.eof = true;
                self.readable = false;
                Ok(Some(0))
            }
            Ok((n, _)) => {
                counters.recv_bytes += n as u64;
                self.readable = n == len || self.read_until_empty;
                Ok(Some(n))
            }
            Err(Errno::AGAIN) => {
                counters.recvs_empty += 1;
                self.readable = false;
                Ok(None)
            }
            Err(Errno::INTR) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes what a node handed over. Bytes that follow none are taken without a copy; `bytes` is
    /// then the (empty) buffer that was here.
    pub fn push(&mut self, bytes: &mut Vec<u8>) {
        debug_assert!(
            bytes.len() <= self.credit,
            "a node sent {} bytes of {} allowed",
            bytes.len(),
            self.credit
        );
        debug_assert_eq!(self.fin, Fin::None, "a node sent after its FIN");
        self.credit = self.credit.saturating_sub(bytes.len());
        if self.out.is_empty() {
            std::mem::swap(&mut self.out, bytes);
        } else {
            self.out.append(bytes);
        }
    }

    /// Sends what waits, and then the FIN if the node wants one.
    pub fn flush(&mut self, counters: &mut Counters) -> Result<Flushed, Errno> {
        while self.sent < self.out.len() {
            if !self.writable {
                return Ok(Flushed::Blocked);
            }
            let pending = &self.out[self.sent..];
            counters.sends += 1;
            match net::send(&self.fd, pending, SendFlags::NOSIGNAL) {
                Ok(n) => {
                    counters.send_bytes += n as u64;
                    self.window.on_sent(n);
                    // A short send leaves the kernel waiting for room, of which it will tell.
                    self.writable = n == pending.len();
                    self.sent += n;
                }
                Err(Errno::AGAIN) => self.writable = false,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
            if !self.writable {
                counters.sends_blocked += 1;
            }
        }
        if self.fin == Fin::Wanted {
            self.fin = Fin::Sent;
            // It fails only when the connection broke, of which `epoll` tells with the reason.
            let _ = net::shutdown(&self.fd, Shutdown::Write);
        }
        Ok(Flushed::All)
    }

    /// What the node is to be told of the memory that waits for the kernel, if that is news: of the whole buffer,
    /// because none of it is free before all was sent, and of what the kernel keeps, if that is counted. `is_over` says
    /// that the socket goes.
    pub fn unsent_news(&mut self, is_over: bool) -> Option<usize> {
        let waits = self.sent < self.out.len();
        let ours = if waits { self.out.capacity() } else { 0 };
        let bytes = if is_over { 0 } else { ours + self.kernel_bytes };
        (core::mem::replace(&mut self.told_bytes, bytes) != bytes).then_some(bytes)
    }

    /// The buffer of a socket that sent everything, to be used for another.
    pub fn take_buffer(&mut self) -> Option<Vec<u8>> {
        if self.out.capacity() == 0 || self.sent < self.out.len() {
            return None;
        }
        self.sent = 0;
        let mut buffer = std::mem::take(&mut self.out);
        buffer.clear();
        Some(buffer)
    }
}
