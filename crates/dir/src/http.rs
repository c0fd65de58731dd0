//! Directory requests: HTTP/1.0 over plain TCP, one request per connection, all bounded.
//!
//! A directory's DirPort speaks a small part of HTTP (dir-spec, section 5), and so does this: an
//! answer ends with the connection or with its `Content-Length`, and is plain or deflated. What
//! it says is verified by the callers, so the connection need not be.

use std::io::{self, Read, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use std::{fmt, str};

use flate2::read::ZlibDecoder;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::deadline::{DeadlineStream, wait};
use crate::iso_time;

/// The longest head of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// How much a directory may cost us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// The time for the whole exchange.
    pub timeout: Duration,
    /// The longest body of an answer, in bytes, before and after it is inflated.
    pub body_bytes_max: usize,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// The status code, 200 for success.
    pub status: u16,
    /// What the directory says with it; for a refused descriptor, why. Its control characters
    /// are left out, so that it can be logged.
    pub reason: String,
    /// The body.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum HttpError {
    /// The connection failed or took too long.
    Io(io::Error),
    /// The answer is not HTTP, or is encoded in a way that was not asked for.
    Malformed(&'static str),
    /// The answer is longer than the limit.
    TooLong { bytes_max: usize },
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HttpError::Io(error) => write!(f, "the directory can't be reached: {error}"),
            HttpError::Malformed(what) => write!(f, "the directory's answer has {what}"),
            HttpError::TooLong { bytes_max } => {
                write!(f, "the directory's answer exceeds {bytes_max} bytes")
            }
        }
    }
}

impl std::error::Error for HttpError {}

impl From<io::Error> for HttpError {
    fn from(error: io::Error) -> Self {
        HttpError::Io(error)
    }
}

/// A directory, and how it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directory {
    /// The address of its DirPort.
    pub address: SocketAddr,
    /// The address of ours that connections come from (`OutboundBindAddress`), when it is of the same family.
    pub source: Option<IpAddr>,
}

/// Asks `directory` for `path`. When `newer_than_unix_s` is given, a directory
/// that has nothing newer may answer with status 304 and no body.
pub fn get(
    directory: Directory,
    path: &str,
    newer_than_unix_s: Option<u64>,
    limits: HttpLimits,
) -> Result<HttpResponse, HttpError> {
    let mut head = format!("GET {path} HTTP/1.0\r\nAccept-Encoding: deflate, identity\r\n");
    if let Some(unix_s) = newer_than_unix_s {
        head.push_str(&format!("If-Modified-Since: {}\r\n", iso_time::format_http(unix_s)));
    }
    exchange(directory, &head, b"", limits)
}

/// Posts `body` to `path` of `directory`.
pub fn post(
    directory: Directory,
    path: &str,
    body: &[u8],
    limits: HttpLimits,
) -> Result<HttpResponse, HttpError> {
    let head = format!("POST {path} HTTP/1.0\r\nContent-Length: {}\r\n", body.len());
    exchange(directory, &head, body, limits)
}

fn exchange(
    directory: Directory,
    head: &str,
    body: &[u8],
    limits: HttpLimits,
) -> Result<HttpResponse, HttpError> {
    let deadline = Instant::now() + limits.timeout;
    let stream = connect(directory, deadline)?;
    let mut connection = DeadlineStream::new(&stream, deadline)?;
    let mut request = format!("{head}Host: {}\r\n\r\n", directory.address).into_bytes();
    request.extend_from_slice(body);
    connection.write_all(&request)?;
    let (head, body) = read_response(&mut connection, limits.body_bytes_max)?;
    let body = match head.encoding {
        Encoding::Identity => body,
        Encoding::Deflate => inflate(&body, limits.body_bytes_max)?,
    };
    Ok(HttpResponse { status: head.status, reason: head.reason, body })
}

fn connect(directory: Directory, deadline: Instant) -> io::Result<TcpStream> {
    let Directory { address, source } = directory;
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    if let Some(source) = source.filter(|source| source.is_ipv4() == address.is_ipv4()) {
        rustix::net::bind(&socket, &SocketAddr::new(source, 0))?;
    }
    let started = rustix::net::connect(&socket, &address);
    let stream = TcpStream::from(socket);
    match started {
        Err(Errno::INPROGRESS) => {
            wait(&stream, PollFlags::OUT, deadline)?;
            sockopt::socket_error(&stream)??;
            Ok(stream)
        }
        started => Ok(started.map(|()| stream)?),
    }
}

/// Reads an answer as it is sent: its head and its body, which may be longer than `body_bytes_max` only until that shows.
/// `stream` gives an error when the answer takes too long.
pub fn read_response(stream: &mut impl Read, body_bytes_max: usize) -> Result<(Head, Vec<u8>), HttpError> {
    let mut bytes = Vec::new();
    let mut head: Option<Head> = None;
    let mut chunk = [0; 16 * 1024];
    loop {
        if head.is_none() {
            head = parse_head(&bytes)?;
            if head.as_ref().and_then(|head| head.body_length) > Some(body_bytes_max) {
                return Err(HttpError::TooLong { bytes_max: body_bytes_max });
            }
        }
        if let Some(head) = head.take_if(|head| head.is_complete(bytes.len())) {
            return Ok(head.take_body(bytes));
        }
        let bytes_max = match &head {
            Some(head) => head.length + body_bytes_max,
            None => HEAD_BYTES_MAX,
        };
        if bytes.len() > bytes_max {
            return Err(HttpError::TooLong { bytes_max });
        }
        match stream.read(&mut chunk)? {
            0 => break,
            length => bytes.extend_from_slice(&chunk[..length]),
        }
    }
    match head {
        Some(head) if head.body_length.is_none() => Ok(head.take_body(bytes)),
        _ => Err(HttpError::Malformed("no end")),
    }
}

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// The reason phrase, without control characters.
    pub reason: String,
    /// How long the head itself is, with the empty line.
    pub length: usize,
    /// `Content-Length`; without it the body ends with the connection.
    pub body_length: Option<usize>,
    /// `Content-Encoding`.
    pub encoding: Encoding,
}

/// How the body is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// As it is.
    Identity,
    /// As a zlib stream.
    Deflate,
}

impl Head {
    fn is_complete(&self, bytes: usize) -> bool {
        self.body_length.is_some_and(|body| bytes >= self.length.saturating_add(body))
    }

    fn take_body(self, mut bytes: Vec<u8>) -> (Head, Vec<u8>) {
        bytes.drain(..self.length);
        if let Some(body_length) = self.body_length {
            bytes.truncate(body_length);
        }
        (self, bytes)
    }
}

/// Inflates a zlib stream, which is what directories call `deflate`, to at most `bytes_max`.
pub fn inflate(deflated: &[u8], bytes_max: usize) -> Result<Vec<u8>, HttpError> {
    let mut bytes = Vec::new();
    let limit = bytes_max as u64 + 1;
    ZlibDecoder::new(deflated)
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|_| HttpError::Malformed("a body that can't be inflated"))?;
    if bytes.len() > bytes_max {
        return Err(HttpError::TooLong { bytes_max });
    }
    Ok(bytes)
}

/// Parses the head at the start of `bytes`; `None` while it is incomplete.
pub fn parse_head(bytes: &[u8]) -> Result<Option<Head>, HttpError> {
    const END: &[u8] = b"\r\n\r\n";
    let Some(end) = bytes.windows(END.len()).position(|four| four == END) else {
        return Ok(None);
    };
    let head = str::from_utf8(&bytes[..end]).map_err(|_| HttpError::Malformed("a binary head"))?;
    let mut lines = head.split("\r\n");
    let (status, reason) =
        lines.next().and_then(parse_status_line).ok_or(HttpError::Malformed("no status line"))?;
    let mut body_length = None;
    let mut encoding = Encoding::Identity;
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(HttpError::Malformed("a line that is no header"))?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            let length =
                value.parse().map_err(|_| HttpError::Malformed("a Content-Length that is no number"))?;
            body_length = Some(length);
        } else if name.eq_ignore_ascii_case("content-encoding") {
            encoding = match value.to_ascii_lowercase().as_str() {
                "identity" => Encoding::Identity,
                "deflate" => Encoding::Deflate,
                _ => return Err(HttpError::Malformed("an encoding that was not asked for")),
            };
        }
    }
    Ok(Some(Head { status, reason, length: end + END.len(), body_length, encoding }))
}

fn parse_status_line(line: &str) -> Option<(u16, String)> {
    let rest = line.strip_prefix("HTTP/1.")?;
    let mut words = rest.splitn(3, ' ');
    words.next()?;
    let status = words.next().filter(|digits| digits.len() == 3)?;
    let reason = words.next().unwrap_or("");
    let reason = reason.chars().filter(|c| !c.is_control()).collect();
    Some((status.parse().ok()?, reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_head_is_parsed_when_it_is_whole() {
        let text = b"HTTP/1.0 400 Missing TAP key\r\nDate: now\r\ncontent-length: 3\r\n\r\nabc";
        let head = parse_head(text).unwrap().unwrap();
        assert_eq!((head.status, head.reason.as_str()), (400, "Missing TAP key"));
        assert_eq!((head.body_length, head.length), (Some(3), text.len() - 3));
        for cut in 0..text.len() - 3 {
            assert_eq!(parse_head(&text[..cut]).unwrap(), None);
        }
    }

    #[test]
    fn other_heads_are_refused() {
        for text in [
            "SMTP\r\n\r\n",
            "HTTP/1.0 20 OK\r\n\r\n",
            "HTTP/1.0 200 OK\r\nnonsense\r\n\r\n",
            "HTTP/1.0 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.0 200 OK\r\nContent-Encoding: gzip\r\n\r\n",
        ] {
            assert!(parse_head(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_body_is_inflated_to_its_limit_and_not_beyond() {
        use flate2::{Compression, write::ZlibEncoder};
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&[7; 100_000]).unwrap();
        let deflated = encoder.finish().unwrap();
        assert_eq!(inflate(&deflated, 100_000).unwrap(), [7; 100_000]);
        let limit = inflate(&deflated, 99_999).unwrap_err();
        assert!(matches!(limit, HttpError::TooLong { bytes_max: 99_999 }), "{limit}");
        assert!(inflate(&deflated[..deflated.len() / 2], 100_000).is_err());
        assert!(inflate(b"plain", 100_000).is_err());
    }

    /// A directory that gives one answer, and what it was asked.
    fn answer(text: &'static str) -> (SocketAddr, std::thread::JoinHandle<String>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            let mut byte = [0];
            while !asked.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte).unwrap();
                asked.extend(byte);
            }
            // The asker may hang up early, having read enough.
            let _ = stream.write_all(text.as_bytes());
            String::from_utf8(asked).unwrap()
        });
        (address, asked)
    }

    #[test]
    fn an_exchange_ends_as_the_answer_says() {
        let limits = HttpLimits { timeout: Duration::from_secs(10), body_bytes_max: 3 };
        for (text, body) in [
            ("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabcd", Some("abc")),
            ("HTTP/1.0 200 OK\r\n\r\nabc", Some("abc")),
            ("HTTP/1.0 200 OK\r\n\r\nabcd", None),
            ("HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nabcd", None),
            ("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nab", None),
            ("HTTP/1.0 200 OK\r\n", None),
            ("", None),
        ] {
            let (address, asked) = answer(text);
            let result = get(Directory { address, source: None }, "/tor/x", Some(1_700_000_000), limits);
            assert_eq!(result.ok().map(|response| response.body), body.map(Vec::from), "{text}");
            let asked = asked.join().unwrap();
            assert!(asked.starts_with("GET /tor/x HTTP/1.0\r\n"));
            assert!(asked.contains("If-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT\r\n"), "{asked}");
        }
    }

    #[test]
    fn connections_come_from_the_source_of_their_family() {
        let limits = HttpLimits { timeout: Duration::from_secs(10), body_bytes_max: 3 };
        for (source, from) in [([127, 0, 0, 2].into(), [127, 0, 0, 2]), ([0; 16].into(), [127, 0, 0, 1])] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let directory = Directory { address: listener.local_addr().unwrap(), source: Some(source) };
            let peer = std::thread::spawn(move || listener.accept().unwrap().1);
            assert!(get(directory, "/", None, limits).is_err(), "nobody answers");
            assert_eq!(peer.join().unwrap().ip(), IpAddr::from(from));
        }
    }

    #[test]
    fn a_connection_that_is_not_accepted_takes_its_time_and_no_more() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let directory = Directory { address: listener.local_addr().unwrap(), source: None };
        let _waiting = TcpStream::connect(directory.address).unwrap();
        let error = connect(directory, Instant::now() + Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_head(&bytes);
            let _ = inflate(&bytes, 1000);
            let _ = parse_head(&[b"HTTP/1.0 200 ", &bytes[..], b"\r\n\r\n"].concat());
        }
    }
}
