//! The timing server of Reardon's thesis (section 4.3): one reading of the clock, or no end of them.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::thread;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

use super::Serving;
use crate::socks::is_timeout;
use crate::traffic::clock::{BURST, READING_BYTES, monotonic_ns};
use crate::traffic::pace::Pace;
use crate::traffic::peer::SLICE;

/// What the kernel may hold of a stream of readings, in bytes (Linux doubles it for its own
/// bookkeeping). It is fixed because a buffer that grows would add its own delay to the network's.
/// It also bounds the throughput, to this much per round trip between the server and its peer.
const SEND_BUFFER: usize = 256 * 1024;

impl Serving<'_> {
    /// One reading, then the end of the stream.
    pub(super) fn tell_time(&mut self) -> io::Result<()> {
        self.send(&monotonic_ns().to_be_bytes())
    }

    /// Readings until the client leaves, as fast as they are taken or at a rate (0: no limit).
    ///
    /// A reading is taken when the socket can be written, as the thesis' `select` did, so that its
    /// age is what the network adds and not how long a write was blocked.
    pub(super) fn stream_time(&mut self, bytes_per_s: u64) -> io::Result<()> {
        sockopt::set_socket_send_buffer_size(&self.stream, SEND_BUFFER)?;
        self.stream.set_nodelay(bytes_per_s > 0)?;
        self.stream.set_nonblocking(true)?;
        let begun = Instant::now();
        let mut pace = Pace::new(bytes_per_s, begun.elapsed());
        let mut reading = [0; READING_BYTES];
        let mut sent: u64 = 0;
        loop {
            self.check()?;
            if let Some(wait) = pace.wait(begun.elapsed()) {
                thread::sleep(wait.min(SLICE));
                continue;
            }
            if !self.is_writable()? {
                continue;
            }
            // What a write left of a reading goes first.
            let torn = (sent % READING_BYTES as u64) as usize;
            let carried = if torn > 0 { &reading[torn..] } else { &[] };
            let mut burst = Vec::with_capacity(BURST + READING_BYTES);
            burst.extend(carried);
            let fresh = monotonic_ns().to_be_bytes();
            while burst.len() < BURST {
                burst.extend(fresh);
            }
            let carried = carried.len();
            match self.stream.write(&burst) {
                Ok(len) => {
                    sent += len as u64;
                    pace.sent(len);
                    if len > carried {
                        reading = fresh;
                    }
                }
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until the stream takes bytes, a slice at most.
    fn is_writable(&self) -> io::Result<bool> {
        let mut polled = [PollFd::from_borrowed_fd(self.stream.as_fd(), PollFlags::OUT)];
        let slice = Timespec { tv_sec: 0, tv_nsec: SLICE.subsec_nanos().into() };
        match poll(&mut polled, Some(&slice)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
