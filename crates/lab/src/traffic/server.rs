//! The server side: a thread per stream, at most [`STREAMS_MAX`] of them.

mod clock;
mod play;

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_tcp_congestion;
use sha2::{Digest, Sha256};

use super::peer::{HEAD_MAX, SLICE, hex, split_head};
use super::request::{Request, UPLOADS_MAX, content_head};
use super::{CHUNK, Content};
use crate::error::{Error, Result};
use crate::socks::is_timeout;

/// Streams served at once; what comes beyond is closed at once.
const STREAMS_MAX: usize = 1024;

/// A file server on loopback. Dropping it stops it and its streams.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    state: Arc<State>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct State {
    stop: AtomicBool,
    streams: AtomicUsize,
    /// Bytes discarded for each client that uploads.
    sunk: [AtomicU64; UPLOADS_MAX],
    /// What its streams are asked to send by; `None` is what they have anyway.
    congestion_control: Option<String>,
}

impl Server {
    /// Starts a server on a port of the system's choice on 127.0.0.1.
    pub fn start() -> Result<Server> {
        Server::start_on(Ipv4Addr::LOCALHOST.into())
    }

    /// Starts a server on a port of the system's choice on one of this machine's addresses.
    pub fn start_on(address: IpAddr) -> Result<Server> {
        Server::start_at(SocketAddr::new(address, 0))
    }

    /// Starts a server on an address and port; port 0 leaves the choice to the system.
    pub fn start_at(addr: SocketAddr) -> Result<Server> {
        Server::start_sending_by(None, addr)
    }

    /// The same, which sends by a congestion control of the kernel, by its name; `None` is what its streams have
    /// anyway.
    ///
    /// # Errors
    ///
    /// Also where the kernel does not have it, or does not allow it.
    pub(crate) fn start_sending_by(congestion_control: Option<&str>, addr: SocketAddr) -> Result<Server> {
        let doing = format!("starting a file server on {addr}");
        let doing = doing.as_str();
        let listener = TcpListener::bind(addr).map_err(Error::io(doing))?;
        // The acceptor waits with `poll`, whose time-out lets it notice the end in any namespace.
        listener.set_nonblocking(true).map_err(Error::io(doing))?;
        if let Some(name) = congestion_control {
            // Streams take their route's all the same; but here one learns whether it may be asked for.
            let asked = set_tcp_congestion(&listener, name).map_err(std::io::Error::from);
            asked.map_err(Error::io(format!("asking for the congestion control {name}")))?;
        }
        let addr = listener.local_addr().map_err(Error::io(doing))?;
        let state = Arc::new(State {
            stop: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
            sunk: [const { AtomicU64::new(0) }; UPLOADS_MAX],
            congestion_control: congestion_control.map(str::to_owned),
        });
        let shared = Arc::clone(&state);
        let acceptor = thread::spawn(move || accept(&listener, &shared));
        Ok(Server { addr, state, acceptor: Some(acceptor) })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// How many streams it serves now.
    pub fn streams(&self) -> usize {
        self.state.streams.load(Ordering::Relaxed)
    }

    /// How many bytes came from the uploading client with this number; `None` when there is no such number.
    pub(crate) fn sunk(&self, number: usize) -> Option<u64> {
        Some(self.state.sunk.get(number)?.load(Ordering::Relaxed))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        // The acceptor and its streams notice within a slice.
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, state: &Arc<State>) {
    while !state.stop.load(Ordering::Relaxed) {
        let mut polled = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
        let slice = Timespec { tv_sec: 0, tv_nsec: SLICE.subsec_nanos().into() };
        if !poll(&mut polled, Some(&slice)).is_ok_and(|ready| ready > 0) {
            continue;
        }
        let Ok((stream, _)) = listener.accept() else { continue };
        if state.streams.fetch_add(1, Ordering::Relaxed) >= STREAMS_MAX {
            state.streams.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let state = Arc::clone(state);
        thread::spawn(move || {
            // A stream that breaks is its client's to notice.
            let _ = Serving { stream, state: &state }.run();
            state.streams.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

struct Serving<'a> {
    stream: TcpStream,
    state: &'a State,
}

impl Serving<'_> {
    fn run(mut self) -> io::Result<()> {
        self.stream.set_read_timeout(Some(SLICE))?;
        self.stream.set_write_timeout(Some(SLICE))?;
        self.stream.set_nodelay(true)?;
        if let Some(name) = &self.state.congestion_control {
            set_tcp_congestion(&self.stream, name)?;
        }
        let mut bytes = Vec::new();
        let mut chunk = [0; HEAD_MAX];
        let (head, rest) = loop {
            if let Some(split) = split_head(&bytes) {
                break split;
            }
            match self.receive(&mut chunk)? {
                0 => return Ok(()),
                _ if bytes.len() >= HEAD_MAX => return self.refuse(),
                len => bytes.extend(&chunk[..len]),
            }
        };
        match Request::parse(&head) {
            Some(Request::Get(content)) => self.serve(content),
            Some(Request::Hash(len)) => self.hash(&rest, len),
            Some(Request::Echo) => self.echo(rest),
            Some(Request::Clock) => self.tell_time(),
            Some(Request::Clocks(bytes_per_s)) => self.stream_time(bytes_per_s),
            Some(Request::Sink(number)) => self.sink(number, rest.len()),
            Some(Request::Play { script_bytes, upload_bytes }) => self.play(rest, script_bytes, upload_bytes),
            None => self.refuse(),
        }
    }

    fn refuse(&mut self) -> io::Result<()> {
        self.send(b"HTTP/1.0 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    }

    fn serve(&mut self, content: Content) -> io::Result<()> {
        self.send(content_head(content).as_bytes())?;
        content.for_each_chunk(|chunk| self.send(chunk))
    }

    fn hash(&mut self, beginning: &[u8], len: u64) -> io::Result<()> {
        let mut hash = Sha256::new();
        hash.update(beginning);
        let mut left = len.saturating_sub(beginning.len() as u64);
        let mut chunk = vec![0; CHUNK];
        while left > 0 {
            match self.receive(&mut chunk)? {
                0 => return Ok(()),
                len => {
                    hash.update(&chunk[..len]);
                    left = left.saturating_sub(len as u64);
                }
            }
        }
        let answer = format!("HTTP/1.0 200 OK\r\nContent-Length: 64\r\n\r\n{}", hex(&hash.finalize()));
        self.send(answer.as_bytes())
    }

    fn echo(&mut self, mut beginning: Vec<u8>) -> io::Result<()> {
        self.send(&beginning)?;
        beginning.resize(CHUNK, 0);
        loop {
            match self.receive(&mut beginning)? {
                0 => return Ok(()),
                len => self.send(&beginning[..len])?,
            }
        }
    }

    /// Counts and forgets whatever comes.
    fn sink(&mut self, number: usize, early_bytes: usize) -> io::Result<()> {
        let sunk = &self.state.sunk[number];
        sunk.fetch_add(early_bytes as u64, Ordering::Relaxed);
        let mut chunk = vec![0; CHUNK];
        loop {
            match self.receive(&mut chunk)? {
                0 => return Ok(()),
                len => sunk.fetch_add(len as u64, Ordering::Relaxed),
            };
        }
    }

    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(len) => bytes = &bytes[len..],
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
            self.check()?;
        }
        Ok(())
    }

    fn receive(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            self.check()?;
            match self.stream.read(buf) {
                Err(error) if is_timeout(&error) => {}
                read => return read,
            }
        }
    }

    fn check(&self) -> io::Result<()> {
        match self.state.stop.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(()),
        }
    }
}
