//! The request: a line and headers, of which only the line counts.

/// The longest head that is read, as in stock Tor.
pub const HEAD_BYTES_MAX: usize = 1024;

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Metrics,
    /// Something else: status and reason.
    Refused(&'static str),
}

impl Request {
    pub(crate) const BAD: Request = Request::Refused("400 Bad Request");
}

/// What a head asks for, once it is complete.
pub fn parse(head: &[u8]) -> Option<Request> {
    let is_complete =
        head.windows(4).any(|end| end == b"\r\n\r\n") || head.windows(2).any(|end| end == b"\n\n");
    if !is_complete {
        return None;
    }
    let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let words = std::str::from_utf8(line).unwrap_or_default().split(' ').collect::<Vec<_>>();
    Some(match words[..] {
        ["GET", "/metrics", version] if version.starts_with("HTTP/") => Request::Metrics,
        ["GET", _, version] if version.starts_with("HTTP/") => Request::Refused("404 Not Found"),
        [_, _, version] if version.starts_with("HTTP/") => Request::Refused("405 Method Not Allowed"),
        _ => Request::BAD,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_a_complete_get_of_metrics_is_answered() {
        let cases: [(&[u8], Option<Request>); 8] = [
            (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Some(Request::Metrics)),
            (b"GET /metrics HTTP/1.0\n\n", Some(Request::Metrics)),
            (b"GET /metrics HTTP/1.1\r\nHost: x\r\n", None),
            (b"GET / HTTP/1.1\r\n\r\n", Some(Request::Refused("404 Not Found"))),
            (b"GET /metrics?x HTTP/1.1\r\n\r\n", Some(Request::Refused("404 Not Found"))),
            (b"POST /metrics HTTP/1.1\r\n\r\n", Some(Request::Refused("405 Method Not Allowed"))),
            (b"GET /metrics\r\n\r\n", Some(Request::BAD)),
            (b"\xff\xff\xff HTTP/1.1\r\n\r\n", Some(Request::BAD)),
        ];
        for (head, expected) in cases {
            assert_eq!(parse(head), expected, "{}", String::from_utf8_lossy(head));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(head in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&head);
            let _ = parse(&[&head[..], b"\r\n\r\n"].concat());
        }
    }
}
