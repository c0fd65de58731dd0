//! The server side: what a stream gets is a [`Visitor`]'s affair, which a thread per stream carries out over its
//! socket, for at most [`STREAMS_MAX`] of them.

mod play;
mod visitor;
mod wants;

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{self, set_tcp_congestion};

use super::CHUNK;
use super::clock;
use super::peer::SLICE;
use super::sunk::Sunk;
use crate::error::{Error, Result};
use crate::socks::is_timeout;

pub(crate) use visitor::Visitor;
use wants::{SocketSetting, Wants};

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
    sunk: Arc<Sunk>,
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
            sunk: Arc::default(),
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

    /// What came of uploads.
    pub(crate) fn sunk(&self) -> Arc<Sunk> {
        Arc::clone(&self.state.sunk)
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
            let _ = Serving { stream, visitor: Visitor::default(), state: &state }.run();
            state.streams.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// A stream of a server: a visitor on a socket that does not block.
struct Serving<'a> {
    stream: TcpStream,
    visitor: Visitor,
    state: &'a State,
}

impl Serving<'_> {
    fn run(mut self) -> io::Result<()> {
        self.stream.set_nonblocking(true)?;
        if let Some(name) = &self.state.congestion_control {
            set_tcp_congestion(&self.stream, name)?;
        }
        self.follow()?;
        let mut chunk = vec![0; CHUNK];
        while !self.state.stop.load(Ordering::Relaxed) {
            self.write()?;
            let wants = self.visitor.wants();
            if wants.end {
                return Ok(());
            }
            if self.wait(wants)?.contains(PollFlags::IN) {
                match self.stream.read(&mut chunk) {
                    Ok(0) => self.visitor.on_end(),
                    Ok(len) => self.visitor.on_read(clock::now(), &chunk[..len], &self.state.sunk),
                    Err(error) if is_timeout(&error) => {}
                    Err(error) => return Err(error),
                }
                self.follow()?;
            }
        }
        Ok(())
    }

    /// Sets the socket to what the visitor wants of it.
    fn follow(&mut self) -> io::Result<()> {
        let Some(SocketSetting { nodelay, send_buffer_bytes }) = self.visitor.take_setting() else {
            return Ok(());
        };
        self.stream.set_nodelay(nodelay)?;
        match send_buffer_bytes {
            // Linux doubles it for its own bookkeeping.
            Some(bytes) => Ok(sockopt::set_socket_send_buffer_size(&self.stream, bytes as usize)?),
            None => Ok(()),
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let (mut failed, stream) = (Ok(()), &mut self.stream);
        self.visitor.write(clock::now(), &mut |bytes| match stream.write(bytes) {
            Ok(len) => len,
            Err(error) => {
                failed = if is_timeout(&error) { Ok(()) } else { Err(error) };
                0
            }
        });
        failed
    }

    /// Waits for what the visitor wants, a slice at most.
    fn wait(&self, wants: Wants) -> io::Result<PollFlags> {
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, wants.read);
        wanted.set(PollFlags::OUT, wants.write);
        let wait = wants.wakes.map_or(SLICE, |wakes| wakes.since(clock::now()).min(SLICE));
        let wait = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        let mut polled = [PollFd::from_borrowed_fd(self.stream.as_fd(), wanted)];
        match poll(&mut polled, Some(&wait)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(PollFlags::empty()),
            Err(error) => return Err(error.into()),
        }
        let found = polled[0].revents();
        if wanted.is_empty() && found.intersects(PollFlags::ERR | PollFlags::HUP) {
            // Nobody is there any more for whom it paused.
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let is_broken = found.intersects(PollFlags::ERR | PollFlags::HUP) && wants.read;
        Ok(if is_broken { found | PollFlags::IN } else { found })
    }
}
