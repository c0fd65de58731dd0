//! What flows through a network under test, and how it is timed.
//!
//! [`Server`] serves files of any size whose content, and so whose SHA-256, follows from a seed; it
//! takes uploads and answers with their SHA-256; it echoes. [`download`], [`upload()`] and [`Echo`]
//! are its clients and work on any open stream, through SOCKS or not. Requests and answers look like
//! HTTP/1.0, so that `curl` can ask too:
//!
//! ```text
//! GET /bytes/<seed>/<length>        the content
//! PUT /sha256, Content-Length: n    the hexadecimal SHA-256 of the body
//! ECHO                              every byte comes back
//! CLOCK                             one reading of the monotonic clock, then the end
//! CLOCKS <bytes per second or 0>    readings until the client leaves
//! SINK <number>                     bytes until the client leaves, counted by number
//! PLAY, Content-Length and Upload   a script of bursts to send, while so many bytes come
//! ```
//!
//! The programs of an experiment are [`timing`], `echo`, [`fetch`] and `upload`: machines (`program`) that are told
//! what is new of their streams and what time it is. `drive` runs one over real sockets, on its caller's thread; in
//! virtual time the simulator runs the same ones. So it is with what a server does for a stream (`server/visitor`).
//! `heddle traffic` runs them by functions that block, which take options, a [`Stop`] with which another thread may end
//! them, and a listener for [`Event`]s, and return a [`Report`]. [`markov`] is such a function too, with threads of its
//! own.

pub(crate) mod clock;
mod content;
pub(crate) mod conversation;
pub(crate) mod drive;
pub(crate) mod echo;
pub mod fetch;
pub(crate) mod lines;
pub mod markov;
mod pace;
mod peer;
pub(crate) mod program;
mod report;
pub(crate) mod request;
mod route;
mod script;
mod seconds;
pub(crate) mod server;
mod sockets;
mod steady;
mod stop;
pub(crate) mod sunk;
pub mod timing;
pub(crate) mod upload;

use std::net::TcpStream;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

pub use content::Content;
pub use report::{Ended, Event, Identity, Report};
pub(crate) use request::UPLOADS_MAX;
pub use route::{Failures, Route, parse_target};
pub use script::Burst;
pub use server::Server;
pub use stop::Stop;

use crate::error::{Error, Result};
use content::ContentStream;
use peer::{Peer, closed, content_length, hex};
use request::Request;

/// How much is read or written at once.
const CHUNK: usize = 64 * 1024;

/// One timed transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// Application bytes, without heads.
    pub bytes: u64,
    /// From the given start to the first byte of the answer, in milliseconds.
    pub first_byte_ms: f64,
    /// From the given start to the last byte of the answer, in seconds.
    pub seconds: f64,
    /// Whether every byte arrived and was the right one.
    pub sha256_ok: bool,
}

impl Transfer {
    /// Megabytes (10^6 bytes) per second over the whole transfer.
    pub(crate) fn mb_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.seconds
    }
}

/// Downloads `content` over a fresh stream to a [`Server`]. Times count from `start`, so that a
/// caller may include the opening of the stream. `sha256` is the content's, known beforehand.
/// `on_bytes` is told after every read how many bytes have come.
pub fn download(
    stream: TcpStream,
    content: Content,
    sha256: [u8; 32],
    start: Instant,
    timeout: Duration,
    on_bytes: &mut dyn FnMut(u64),
) -> Result<Transfer> {
    let mut peer = Peer::new(stream, timeout)?;
    peer.send(Request::Get(content).head().as_bytes())?;
    let (head, mut body) = peer.receive_head()?;
    let first_byte_ms = start.elapsed().as_secs_f64() * 1e3;
    let announced = content_length(&head);
    let mut hash = Sha256::new();
    let mut bytes = body.len() as u64;
    hash.update(&body);
    body.resize(CHUNK, 0);
    while bytes < content.len {
        match peer.receive(&mut body)? {
            0 => break,
            len => {
                hash.update(&body[..len]);
                bytes += len as u64;
                on_bytes(bytes);
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let right = <[u8; 32]>::from(hash.finalize()) == sha256;
    let sha256_ok = right && announced == Some(content.len);
    Ok(Transfer { bytes, first_byte_ms, seconds, sha256_ok })
}

/// Uploads `content` over a fresh stream to a [`Server`] and compares the server's hash with
/// `sha256`.
pub fn upload(
    stream: TcpStream,
    content: Content,
    sha256: [u8; 32],
    start: Instant,
    timeout: Duration,
) -> Result<Transfer> {
    let mut peer = Peer::new(stream, timeout)?;
    peer.send(Request::Hash(content.len).head().as_bytes())?;
    let mut left = ContentStream::new(content);
    while !left.is_over() {
        let piece = left.peek();
        peer.send(piece)?;
        let len = piece.len();
        left.advance(len);
    }
    let (_, mut body) = peer.receive_head()?;
    let first_byte_ms = start.elapsed().as_secs_f64() * 1e3;
    let mut rest = [0; 64];
    while body.len() < 64 {
        match peer.receive(&mut rest)? {
            0 => break,
            len => body.extend(&rest[..len]),
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let sha256_ok = body == hex(&sha256).as_bytes();
    Ok(Transfer { bytes: content.len, first_byte_ms, seconds, sha256_ok })
}

/// A stream to a [`Server`] whose bytes come back.
#[derive(Debug)]
pub struct Echo(Peer);

impl Echo {
    /// Asks for an echo over a fresh stream.
    pub fn new(stream: TcpStream, timeout: Duration) -> Result<Echo> {
        let mut peer = Peer::new(stream, timeout)?;
        peer.send(Request::Echo.head().as_bytes())?;
        Ok(Echo(peer))
    }

    /// Sends `message` and returns how long it took to come back, or an error when something else
    /// did. The message must fit into the buffers on the way: keep it below 64 KiB.
    pub fn round_trip(&mut self, message: &[u8]) -> Result<Duration> {
        let start = self.0.begin();
        self.0.send(message)?;
        let mut back = vec![0; message.len()];
        let mut filled = 0;
        while filled < back.len() {
            match self.0.receive(&mut back[filled..])? {
                0 => return Err(closed("the echo")),
                len => filled += len,
            }
        }
        if back != message {
            return Err(Error::Malformed { by: "the echo", sent: "other bytes".into() });
        }
        Ok(start.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socks::Target;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, SocketAddr};

    const TIMEOUT: Duration = Duration::from_secs(20);

    /// Where nobody listens. A port that was free a moment ago may be somebody else's by now; this one is nobody's
    /// choice.
    pub(super) fn nobody() -> Target {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 1)).into()
    }

    fn connect(server: &Server) -> TcpStream {
        TcpStream::connect(server.addr()).unwrap()
    }

    #[test]
    fn a_server_sends_by_a_congestion_control_that_the_kernel_has() {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::start_sending_by(Some("reno"), loopback).unwrap();
        let content = Content { seed: 3, len: 100_000 };
        let got = download(connect(&server), content, content.sha256(), Instant::now(), TIMEOUT, &mut |_| ());
        assert!(got.unwrap().sha256_ok);
        let error = Server::start_sending_by(Some("nonesuch"), loopback).unwrap_err().to_string();
        assert!(error.contains("nonesuch"), "{error}");
    }

    #[test]
    fn content_follows_from_its_seed() {
        let content = Content { seed: 1, len: 100_001 };
        assert_eq!(content.sha256(), content.sha256());
        assert_ne!(content.sha256(), Content { seed: 2, ..content }.sha256());
        let empty = Content { seed: 1, len: 0 };
        assert_eq!(hex(&empty.sha256()), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn downloads_are_checked() {
        let server = Server::start().unwrap();
        let content = Content { seed: 3, len: 300_000 };
        let fetch =
            |sha256| download(connect(&server), content, sha256, Instant::now(), TIMEOUT, &mut |_| ());
        let good = fetch(content.sha256()).unwrap();
        assert!(good.sha256_ok && good.bytes == 300_000 && good.first_byte_ms <= good.seconds * 1e3);
        assert!(!fetch([0; 32]).unwrap().sha256_ok);
    }

    #[test]
    fn uploads_are_checked() {
        let server = Server::start().unwrap();
        let content = Content { seed: 4, len: 300_000 };
        let put = |sha256| upload(connect(&server), content, sha256, Instant::now(), TIMEOUT);
        assert!(put(content.sha256()).unwrap().sha256_ok);
        assert!(!put([0; 32]).unwrap().sha256_ok);
    }

    #[test]
    fn echoes_come_back() {
        let server = Server::start().unwrap();
        let mut echo = Echo::new(connect(&server), TIMEOUT).unwrap();
        for message in [&b"a"[..], &[7; 5000]] {
            echo.round_trip(message).unwrap();
        }
    }

    #[test]
    fn nonsense_is_answered_with_an_error_and_harms_nobody() {
        let server = Server::start().unwrap();
        let play = |script: &str, upload: &str| {
            format!("PLAY\r\nContent-Length: {script}\r\nUpload: {upload}\r\n\r\nxxxx")
        };
        let requests = [
            "GET /bytes/1 HTTP/1.0\r\n\r\n".into(),
            "PUT /sha256\r\n\r\n".into(),
            "CLOCKS\r\n\r\n".into(),
            "CLOCKS -1\r\n\r\n".into(),
            "SINK 64\r\n\r\n".into(),
            "SINK -1\r\n\r\n".into(),
            "\r\n\r\n".into(),
            "x".into(),
            play("7", "0"),
            play("8", "0"),
            play("8", ""),
            play("160008", "0"),
            play("18446744073709551608", "18446744073709551615"),
            play("0", "18446744073709551615"),
        ];
        for request in requests {
            let mut stream = connect(&server);
            stream.write_all(request.as_bytes()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.is_empty() || answer.contains("400"), "{request:?} got {answer:?}");
        }
        let content = Content { seed: 5, len: 10 };
        let after =
            download(connect(&server), content, content.sha256(), Instant::now(), TIMEOUT, &mut |_| ());
        assert!(after.unwrap().sha256_ok);
    }

    #[test]
    fn a_server_ends_while_it_serves() {
        let server = Server::start().unwrap();
        let mut stream = connect(&server);
        stream.write_all(b"GET /bytes/1/100000000000 HTTP/1.0\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 1000]).unwrap();
        drop(server);
        let mut sink = vec![0; CHUNK];
        while stream.read(&mut sink).is_ok_and(|len| len > 0) {}
    }
}
