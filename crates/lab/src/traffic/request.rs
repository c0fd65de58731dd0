//! What clients ask a server for, and how that looks on the stream.

use super::Content;
use super::peer::{content_length, number_field};

/// Clients whose uploads are counted apart.
pub(crate) const UPLOADS_MAX: usize = 64;

/// What the first lines of a stream ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// This content.
    Get(Content),
    /// The SHA-256 of a body of so many bytes.
    Hash(u64),
    /// Every byte back.
    Echo,
    /// One reading of the clock.
    Clock,
    /// Readings without end, at most so many bytes a second; zero is no limit.
    Clocks(u64),
    /// That what comes is counted under this number.
    Sink(usize),
    /// A script of bursts of so many bytes, while so many bytes come.
    Play {
        /// Of the script.
        script_bytes: u64,
        /// Of what comes.
        upload_bytes: u64,
    },
}

impl Request {
    /// Reads the head of a request; `None` where it is none.
    pub(crate) fn parse(head: &str) -> Option<Request> {
        let request = head.lines().next().unwrap_or_default();
        match request.split(' ').collect::<Vec<_>>()[..] {
            ["GET", path, ..] => content_of(path).map(Request::Get),
            ["PUT", "/sha256", ..] => content_length(head).map(Request::Hash),
            ["ECHO"] => Some(Request::Echo),
            ["CLOCK"] => Some(Request::Clock),
            ["CLOCKS", limit] => limit.parse().ok().map(Request::Clocks),
            ["SINK", number] => number.parse().ok().filter(|number| *number < UPLOADS_MAX).map(Request::Sink),
            ["PLAY"] => Some(Request::Play {
                script_bytes: content_length(head)?,
                upload_bytes: number_field(head, "upload")?,
            }),
            _ => None,
        }
    }

    /// The head of the request, with its empty line.
    pub(crate) fn head(self) -> String {
        match self {
            Request::Get(Content { seed, len }) => format!("GET /bytes/{seed}/{len} HTTP/1.0\r\n\r\n"),
            Request::Hash(len) => format!("PUT /sha256 HTTP/1.0\r\nContent-Length: {len}\r\n\r\n"),
            Request::Echo => "ECHO\r\n\r\n".to_owned(),
            Request::Clock => "CLOCK\r\n\r\n".to_owned(),
            Request::Clocks(limit) => format!("CLOCKS {limit}\r\n\r\n"),
            Request::Sink(number) => format!("SINK {number}\r\n\r\n"),
            Request::Play { script_bytes, upload_bytes } => {
                format!("PLAY\r\nContent-Length: {script_bytes}\r\nUpload: {upload_bytes}\r\n\r\n")
            }
        }
    }
}

/// The head of the answer to [`Request::Get`].
pub(crate) fn content_head(content: Content) -> String {
    format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", content.len)
}

/// The content that a path names.
fn content_of(path: &str) -> Option<Content> {
    let (seed, len) = path.strip_prefix("/bytes/")?.split_once('/')?;
    Some(Content { seed: seed.parse().ok()?, len: len.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_as_what_they_are() {
        let requests = [
            Request::Get(Content { seed: 3, len: 70 }),
            Request::Hash(8),
            Request::Echo,
            Request::Clock,
            Request::Clocks(300_000),
            Request::Sink(63),
            Request::Play { script_bytes: 16, upload_bytes: 9 },
        ];
        for request in requests {
            let head = request.head();
            assert_eq!(Request::parse(head.strip_suffix("\r\n\r\n").unwrap()), Some(request));
        }
        for wrong in ["", "GET /bytes/1", "CLOCKS -1", "SINK 64", "PLAY", "PUT /sha256"] {
            assert_eq!(Request::parse(wrong), None, "{wrong}");
        }
    }
}
