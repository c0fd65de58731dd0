//! A control plane in virtual time, among directories of several manners.

use super::super::*;
use heddle_seam::node::SocketError;
use heddle_seam::time::UnixTime;
use std::collections::BTreeMap;
use std::net::SocketAddr;

pub const CONSENSUS: &str = include_str!("../../../../dir/tests/fixtures/microdesc-consensus");
const CERTS: &str = include_str!("../../../../dir/tests/fixtures/certs");
const MICRODESCS: &str = include_str!("../../../../dir/tests/fixtures/microdescs");
/// As on a machine that has been up for a while.
const STARTED: Instant = Instant::from_nanos(5_000_000_000);
const CREDIT_BYTES: usize = 1000;
const ROUND_TRIP: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Manner {
    Honest,
    /// Nobody listens.
    Closed,
    /// It takes the request and says nothing.
    Silent,
    /// A byte of the head every second.
    TrickledHead,
    /// A byte of the body every second.
    TrickledBody,
    /// A body without an end, a megabyte a second.
    Endless,
    /// Good answers to all but microdescriptors, which it trickles.
    TrickledMicrodescs,
    /// It has nothing, and says so.
    Empty,
    /// It has nothing newer.
    NotModified,
    /// Half of what it announced.
    CutShort,
    /// Bytes that are no text.
    Binary,
    /// A consensus of which a digit was changed.
    Forged,
    /// No certificates.
    NoCerts,
}

/// What a directory sends, piece by piece, with the time before each; an empty piece is the end of the connection.
type Pieces = Box<dyn Iterator<Item = (Duration, Vec<u8>)>>;

struct Connection {
    to: SocketAddr,
    asked: Vec<u8>,
    /// What the node may send.
    credit_bytes: usize,
    interest: (bool, bool),
    pieces: Pieces,
    next: Option<(Instant, Vec<u8>)>,
}

pub struct World {
    pub plane: ControlPlane,
    pub now: Instant,
    directories: Vec<(SocketAddr, Manner)>,
    open: BTreeMap<SocketId, Connection>,
    due: Option<Instant>,
    /// Whole requests, and whom they went to.
    pub heard: Vec<(SocketAddr, String)>,
    /// Whom the node connected to, and how long after the start.
    pub dialled: Vec<(Duration, SocketAddr)>,
    pub wanted: Vec<Wanted>,
    inputs: VecDeque<Input<ControlLanguage>>,
}

impl World {
    pub fn new(plane: ControlPlane, start_unix_s: u64, directories: Vec<(SocketAddr, Manner)>) -> Self {
        let time = UnixTime { ns: start_unix_s * 1_000_000_000 };
        World {
            plane,
            now: STARTED,
            directories,
            open: BTreeMap::new(),
            due: None,
            heard: Vec::new(),
            dialled: Vec::new(),
            wanted: Vec::new(),
            inputs: VecDeque::from([Input::WallClock(time)]),
        }
    }

    pub fn tell(&mut self, told: Told) {
        self.inputs.push_back(Input::Control(told));
    }

    pub fn set_clock(&mut self, unix_s: u64) {
        self.inputs.push_back(Input::WallClock(UnixTime { ns: unix_s * 1_000_000_000 }));
    }

    pub fn posts(&self) -> usize {
        self.heard.iter().filter(|(_, request)| request.starts_with("POST /tor/ ")).count()
    }

    /// Goes on until `done`, and says how long that took; not longer than `most`.
    pub fn run(&mut self, most: Duration, done: impl Fn(&World) -> bool) -> Duration {
        let (started, ends) = (self.now, self.now + most);
        loop {
            while let Some(input) = self.inputs.pop_front() {
                self.plane.handle_input(self.now, input);
                self.poll();
            }
            let next =
                self.open.values().filter_map(|open| Some(open.next.as_ref()?.0)).chain(self.due).min();
            let next = next.expect("a control plane always has a time");
            if done(self) || next > ends {
                return self.now.since(started);
            }
            self.now = next.max(self.now);
            match self.open.iter().find(|(_, open)| open.next.as_ref().is_some_and(|(at, _)| *at <= self.now))
            {
                Some((socket, _)) => self.arrive(*socket),
                None => self.inputs.push_back(Input::Timeout),
            }
        }
    }

    fn poll(&mut self) {
        let mut buf = Vec::new();
        loop {
            buf.clear();
            match self.plane.poll_output(self.now, &mut buf) {
                Output::Timeout(due) => {
                    self.due = due;
                    return;
                }
                Output::Event(wanted) => self.wanted.push(wanted),
                Output::Connect { socket, to } => self.connect(socket, to),
                Output::Send { socket } => self.take(socket, &buf),
                Output::Close { socket } | Output::Abort { socket } => {
                    assert!(self.open.remove(&socket).is_some(), "it is closed once");
                }
                Output::Interest { socket, read, write } => self.set_interest(socket, read, write),
                output => panic!("{output:?}"),
            }
        }
    }

    fn connect(&mut self, socket: SocketId, to: SocketAddr) {
        self.dialled.push((self.now.since(STARTED), to));
        let manner = self.directories.iter().find(|(address, _)| *address == to).map(|(_, manner)| *manner);
        if manner.is_none_or(|manner| manner == Manner::Closed) {
            return self.inputs.push_back(Input::Failed { socket, error: SocketError::Refused });
        }
        let nothing = Box::new(std::iter::empty());
        let connection = Connection {
            to,
            asked: Vec::new(),
            credit_bytes: 0,
            interest: (false, false),
            pieces: nothing,
            next: None,
        };
        self.open.insert(socket, connection);
        let local = ([127, 0, 0, 1], 1).into();
        self.inputs.push_back(Input::Connected { socket, local });
    }

    fn set_interest(&mut self, socket: SocketId, read: bool, write: bool) {
        // It may have failed.
        let Some(open) = self.open.get_mut(&socket) else { return };
        open.interest = (read, write);
        self.grant(socket);
    }

    /// Gives little credit, so that a request leaves in several parts.
    fn grant(&mut self, socket: SocketId) {
        let Some(open) = self.open.get_mut(&socket) else { return };
        if open.interest.1 && open.credit_bytes == 0 {
            open.credit_bytes = CREDIT_BYTES;
            let bytes = CREDIT_BYTES;
            self.inputs.push_back(Input::Writable { socket, bytes, window_bytes: usize::MAX });
        }
    }

    fn take(&mut self, socket: SocketId, bytes: &[u8]) {
        let open = self.open.get_mut(&socket).expect("nothing is sent on a socket that is gone");
        assert!(bytes.len() <= open.credit_bytes && !bytes.is_empty(), "it keeps within its credit");
        // As with a socket whose buffer is empty again.
        open.credit_bytes = 0;
        open.asked.extend_from_slice(bytes);
        let asked = String::from_utf8(open.asked.clone()).unwrap();
        let length = asked.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
        let body = asked.split_once("\r\n\r\n").map(|(_, body)| body.len());
        if body.is_none_or(|body| body < length.unwrap_or(0)) {
            return self.grant(socket);
        }
        let manner = self.directories.iter().find(|(address, _)| *address == open.to).unwrap().1;
        open.pieces = answer(&asked, manner);
        open.next = open.pieces.next().map(|(after, piece)| (self.now + ROUND_TRIP + after, piece));
        self.heard.push((open.to, asked));
    }

    fn arrive(&mut self, socket: SocketId) {
        let Some(open) = self.open.get_mut(&socket) else { return };
        let Some((_, mut piece)) = open.next.take() else { return };
        assert!(open.interest.0, "it wants to read");
        if piece.is_empty() {
            return self.inputs.push_back(Input::Eof { socket });
        }
        let buf = self.plane.recv_buf(socket);
        let len = piece.len().min(buf.len());
        buf[..len].copy_from_slice(&piece[..len]);
        piece.drain(..len);
        open.next = match piece.is_empty() {
            true => open.pieces.next().map(|(after, piece)| (self.now + after, piece)),
            false => Some((self.now, piece)),
        };
        self.plane.handle_input(self.now, Input::Read { socket, len });
        self.poll();
    }
}

fn answer(request: &str, manner: Manner) -> Pieces {
    let body = [("/tor/status-vote/", CONSENSUS), ("/tor/keys/", CERTS), ("/tor/micro/", MICRODESCS)];
    let body = body.iter().find(|(path, _)| request.contains(path)).map_or("", |(_, body)| body);
    let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let trickled =
        |text: String| text.into_bytes().into_iter().map(|byte| (Duration::from_secs(1), vec![byte]));
    let at_once = |text: String| std::iter::once((Duration::ZERO, text.into_bytes()));
    let end = (Duration::ZERO, Vec::new());
    match manner {
        Manner::Silent | Manner::Closed => Box::new(std::iter::empty()),
        Manner::TrickledHead => Box::new(trickled(head)),
        Manner::TrickledMicrodescs if request.contains("/tor/micro/") => Box::new(trickled(head)),
        Manner::TrickledBody => Box::new(at_once(head).chain(trickled(body.to_owned()))),
        Manner::Endless => {
            let endless = std::iter::repeat_with(|| (Duration::from_millis(15), vec![b'x'; 16 << 10]));
            Box::new(at_once("HTTP/1.0 200 OK\r\n\r\n".to_owned()).chain(endless))
        }
        Manner::Empty => Box::new(at_once("HTTP/1.0 404 Not found\r\n\r\n".to_owned()).chain([end])),
        Manner::NotModified => Box::new(at_once("HTTP/1.0 304 Not modified\r\n\r\n".to_owned()).chain([end])),
        Manner::CutShort => Box::new(at_once(head + &body[..body.len() / 2]).chain([end])),
        Manner::Binary => {
            let binary = [b"HTTP/1.0 200 OK\r\n\r\n".as_slice(), &[0xff; 1000]].concat();
            Box::new([(Duration::ZERO, binary), end].into_iter())
        }
        Manner::Forged => {
            Box::new(at_once(head + &body.replace("heddletest=7", "heddletest=8")).chain([end]))
        }
        Manner::NoCerts if request.contains("/tor/keys/") => {
            Box::new(at_once("HTTP/1.0 200 OK\r\n\r\n".to_owned()).chain([end]))
        }
        Manner::Honest | Manner::TrickledMicrodescs | Manner::NoCerts => {
            Box::new(at_once(head + body).chain([end]))
        }
    }
}
