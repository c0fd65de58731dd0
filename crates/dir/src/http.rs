//! Directory requests: HTTP/1.0 over plain TCP, one request per connection, all bounded.
//!
//! A directory's DirPort speaks a small part of HTTP (dir-spec, section 5), and so does this: an
//! answer ends with the connection or with its `Content-Length`, and is plain or deflated. What
//! it says is verified by the callers, so the connection need not be. Whoever has the connection
//! sends the bytes of [`get`] or [`post`], and gives what comes to an [`Answer`].

use std::io::Read;
use std::net::SocketAddr;
use std::{fmt, str};

use flate2::read::ZlibDecoder;
use heddle_seam::node::SocketError;
use heddle_seam::time::Duration;

use crate::iso_time;

/// The longest head of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

const HEAD_END: &[u8] = b"\r\n\r\n";

/// A request to a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its DirPort.
    pub to: SocketAddr,
    /// What to send to it.
    pub bytes: Vec<u8>,
    /// The longest body that the answer may have, in bytes.
    pub body_bytes_max: usize,
    /// How long connection, request and answer may take together.
    pub within: Duration,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpError {
    /// The connection failed.
    Socket(SocketError),
    /// It took too long, from the connection to the last byte.
    TimedOut,
    /// The answer is not HTTP, or is encoded in a way that was not asked for.
    Malformed(&'static str),
    /// The answer is longer than the limit.
    TooLong { bytes_max: usize },
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HttpError::Socket(error) => write!(f, "the directory can't be reached: {error}"),
            HttpError::TimedOut => f.write_str("the directory took too long"),
            HttpError::Malformed(what) => write!(f, "the directory's answer has {what}"),
            HttpError::TooLong { bytes_max } => {
                write!(f, "the directory's answer exceeds {bytes_max} bytes")
            }
        }
    }
}

impl std::error::Error for HttpError {}

/// Asks the directory `host` for `path`. When `newer_than_unix_s` is given, a directory
/// that has nothing newer may answer with status 304 and no body.
pub fn get(host: SocketAddr, path: &str, newer_than_unix_s: Option<u64>) -> Vec<u8> {
    let mut head = format!("GET {path} HTTP/1.0\r\nAccept-Encoding: deflate, identity\r\n");
    if let Some(unix_s) = newer_than_unix_s {
        head.push_str(&format!("If-Modified-Since: {}\r\n", iso_time::format_http(unix_s)));
    }
    head.push_str(&format!("Host: {host}\r\n\r\n"));
    head.into_bytes()
}

/// Posts `body` to `path` of the directory `host`.
pub fn post(host: SocketAddr, path: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.0\r\nContent-Length: {length}\r\nHost: {host}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// An answer as it comes in, piece by piece.
#[derive(Debug)]
pub struct Answer {
    body_bytes_max: usize,
    head: Option<Head>,
    /// How much was looked through for the end of the head.
    searched: usize,
    bytes: Vec<u8>,
}

impl Answer {
    /// One whose body has at most so many bytes, before and after it is inflated. No more than that, the longest head
    /// and the last piece are ever held.
    pub fn new(body_bytes_max: usize) -> Self {
        Answer { body_bytes_max, head: None, searched: 0, bytes: Vec::new() }
    }

    /// Takes the next piece, and gives the answer when it is whole. After that, and after an error, the connection is
    /// of no more use.
    ///
    /// # Errors
    /// When the directory breaks the protocol or a limit.
    pub fn push(&mut self, piece: &[u8]) -> Result<Option<HttpResponse>, HttpError> {
        self.bytes.extend_from_slice(piece);
        if self.head.is_none() && self.has_head() {
            self.head = parse_head(&self.bytes)?;
            if self.head.as_ref().and_then(|head| head.body_length) > Some(self.body_bytes_max) {
                return Err(HttpError::TooLong { bytes_max: self.body_bytes_max });
            }
        }
        if self.head.as_ref().is_some_and(|head| head.is_complete(self.bytes.len())) {
            return self.finish().map(Some);
        }
        let (head_bytes, bytes_max) = match &self.head {
            Some(head) => (head.length, self.body_bytes_max),
            None => (0, HEAD_BYTES_MAX),
        };
        match self.bytes.len() - head_bytes > bytes_max {
            true => Err(HttpError::TooLong { bytes_max }),
            false => Ok(None),
        }
    }

    /// Whether the head is whole. Nothing is looked through twice, however small the pieces are.
    fn has_head(&mut self) -> bool {
        let from = self.searched.saturating_sub(HEAD_END.len() - 1);
        self.searched = self.bytes.len();
        self.bytes[from..].windows(HEAD_END.len()).any(|four| four == HEAD_END)
    }

    /// The directory sends nothing more.
    ///
    /// # Errors
    /// When the answer is not whole, or cannot be inflated.
    pub fn end(mut self) -> Result<HttpResponse, HttpError> {
        match &self.head {
            Some(head) if head.body_length.is_none() => self.finish(),
            _ => Err(HttpError::Malformed("no end")),
        }
    }

    fn finish(&mut self) -> Result<HttpResponse, HttpError> {
        let head = self.head.take().ok_or(HttpError::Malformed("no end"))?;
        let mut body = core::mem::take(&mut self.bytes);
        body.drain(..head.length);
        if let Some(length) = head.body_length {
            body.truncate(length);
        }
        if head.encoding == Encoding::Deflate {
            body = inflate(&body, self.body_bytes_max)?;
        }
        Ok(HttpResponse { status: head.status, reason: head.reason, body })
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
    let Some(end) = bytes.windows(HEAD_END.len()).position(|four| four == HEAD_END) else {
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
    Ok(Some(Head { status, reason, length: end + HEAD_END.len(), body_length, encoding }))
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
    use std::io::Write;

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

    /// The answer's body when it comes in pieces of so many bytes and the connection ends after it.
    fn read(text: &[u8], piece: usize, body_bytes_max: usize) -> Result<Vec<u8>, HttpError> {
        let mut answer = Answer::new(body_bytes_max);
        for piece in text.chunks(piece) {
            if let Some(response) = answer.push(piece)? {
                return Ok(response.body);
            }
        }
        answer.end().map(|response| response.body)
    }

    #[test]
    fn an_answer_ends_as_it_says_in_whatever_pieces_it_comes() {
        for (text, body) in [
            ("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabcd", Some("abc")),
            ("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", Some("")),
            ("HTTP/1.0 200 OK\r\n\r\nabc", Some("abc")),
            ("HTTP/1.0 200 OK\r\n\r\nabcd", None),
            ("HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nabcd", None),
            ("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nab", None),
            ("HTTP/1.0 200 OK\r\n", None),
            ("", None),
        ] {
            for piece in 1..=text.len().max(1) {
                let read = read(text.as_bytes(), piece, 3);
                assert_eq!(read.ok(), body.map(Vec::from), "{text} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn a_head_without_an_end_is_given_up() {
        let endless = [b"HTTP/1.0 200 ".as_slice(), &[b'x'; 2 * HEAD_BYTES_MAX]].concat();
        assert_eq!(read(&endless, 1000, 3), Err(HttpError::TooLong { bytes_max: HEAD_BYTES_MAX }));
    }

    #[test]
    fn requests_name_what_they_want() {
        let host: SocketAddr = ([192, 0, 2, 1], 9030).into();
        let asked = String::from_utf8(get(host, "/tor/x", Some(1_700_000_000))).unwrap();
        assert_eq!(
            asked,
            "GET /tor/x HTTP/1.0\r\nAccept-Encoding: deflate, identity\r\n\
             If-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT\r\nHost: 192.0.2.1:9030\r\n\r\n"
        );
        let posted = String::from_utf8(post(host, "/tor/", b"router")).unwrap();
        assert_eq!(posted, "POST /tor/ HTTP/1.0\r\nContent-Length: 6\r\nHost: 192.0.2.1:9030\r\n\r\nrouter");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes, 7, 1000);
            let _ = inflate(&bytes, 1000);
            let _ = parse_head(&[b"HTTP/1.0 200 ", &bytes[..], b"\r\n\r\n"].concat());
        }
    }
}
