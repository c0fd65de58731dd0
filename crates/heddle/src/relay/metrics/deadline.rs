//! Connections on which whoever asks cannot keep us waiting.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// A connection of which nothing takes longer than until its deadline. Its socket does not block, and `poll` waits: no socket option,
/// which a sandbox may refuse, has a part in that.
pub struct DeadlineStream<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl<'a> DeadlineStream<'a> {
    /// From now on the stream does not block.
    pub fn new(stream: &'a TcpStream, deadline: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(DeadlineStream { stream, deadline })
    }
}

impl Read for DeadlineStream<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        wait(self.stream, PollFlags::IN, self.deadline)?;
        self.stream.read(bytes)
    }
}

impl Write for DeadlineStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        wait(self.stream, PollFlags::OUT, self.deadline)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Waits until `stream` is ready or the deadline has passed, which is an error also when the stream is ready.
fn wait(stream: &TcpStream, ready: PollFlags, deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut [PollFd::new(stream, ready)], Some(&left)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}
