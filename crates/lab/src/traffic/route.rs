//! How a traffic program reaches its server, and what goes wrong on the way.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::peer::Peer;
use super::stop::Stop;
use crate::error::{Error, Result};
use crate::socks::{self, Isolation, Target};

/// Where a program's streams go to and through what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The [`Server`](super::Server).
    pub server: Target,
    /// The SOCKS port of an onion proxy; `None` connects directly.
    pub proxy: Option<SocketAddr>,
    /// The SOCKS user name and password, by which Tor chooses circuits.
    pub isolation: Option<Isolation>,
    /// How long the opening of a stream may take, and then one transfer over it.
    pub timeout: Duration,
}

impl Route {
    /// A direct route with a time-out of two minutes.
    pub fn direct(server: Target) -> Route {
        Route { server, proxy: None, isolation: None, timeout: Duration::from_secs(120) }
    }

    /// The same route through a SOCKS port.
    pub fn through(self, proxy: SocketAddr) -> Route {
        Route { proxy: Some(proxy), ..self }
    }

    /// Opens a stream to the server, or fails soon after somebody asked for the end.
    pub fn open(&self, stop: &Stop) -> Result<TcpStream> {
        if let Some(proxy) = self.proxy {
            let stopped = || stop.is_asked();
            let isolation = self.isolation.as_ref();
            return socks::connect_unless(proxy, &self.server, isolation, self.timeout, &stopped);
        }
        let doing = || "connecting to the server".to_owned();
        let addr = match &self.server {
            Target::Addr(addr) => *addr,
            Target::Name(name, port) => {
                let mut found = (name.as_str(), *port).to_socket_addrs().map_err(Error::io(doing()))?;
                found.next().ok_or_else(|| Error::Options(format!("{name} has no address")))?
            }
        };
        TcpStream::connect_timeout(&addr, self.timeout).map_err(Error::io(doing()))
    }

    /// Opens a stream and gives it the route's time-out, which then counts anew.
    pub(super) fn open_peer(&self, stop: &Stop) -> Result<Peer> {
        Ok(Peer::new(self.open(stop)?, self.timeout)?.stopped_by(stop))
    }
}

/// Reads `ADDRESS:PORT` or `NAME:PORT`; an IPv6 address stands in brackets.
pub fn parse_target(text: &str) -> std::result::Result<Target, String> {
    if let Ok(addr) = text.parse::<SocketAddr>() {
        return Ok(Target::Addr(addr));
    }
    let wrong = || format!("{text:?} is neither ADDRESS:PORT nor NAME:PORT");
    let (name, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    let is_name = !name.is_empty() && name.len() <= 255 && !name.contains([':', '[', ']', ' ']);
    if is_name { Ok(Target::Name(name.to_owned(), port)) } else { Err(wrong()) }
}

/// Failures counted by what happened, such as `open: reply 5, connection refused`.
pub type Failures = BTreeMap<String, u64>;

/// The part of a transfer in which it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Before there was a stream: the SOCKS port, the circuit, the exit's connection.
    Open,
    /// Over the stream.
    Transfer,
}

/// The kind of a failure. There are few of them, however many failures there are: replies of the
/// SOCKS port in its own words, and the system's kinds of errors.
pub(crate) fn kind(stage: Stage, error: &Error) -> String {
    let what = match error {
        Error::Refused { said, .. } if said.starts_with("reply ") => said.clone(),
        Error::Refused { said, .. } if said.ends_with("closed") => "closed".into(),
        Error::Refused { .. } => "refused".into(),
        Error::Deadline { .. } => "timed out".into(),
        Error::Malformed { .. } => "malformed answer".into(),
        Error::Io { source, .. } => source.kind().to_string(),
        _ => "other".into(),
    };
    match stage {
        Stage::Open => format!("open: {what}"),
        Stage::Transfer => format!("transfer: {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn targets_are_read() {
        assert_eq!(parse_target("10.0.0.7:80"), Ok(Target::Addr("10.0.0.7:80".parse().unwrap())));
        assert_eq!(parse_target("[::1]:80"), Ok(Target::Addr("[::1]:80".parse().unwrap())));
        assert_eq!(parse_target("files.example:8080"), Ok(Target::Name("files.example".into(), 8080)));
        for wrong in ["", "x", ":80", "x:", "x:99999", "::1:80", "a b:1"] {
            assert!(parse_target(wrong).unwrap_err().contains("neither"), "{wrong:?}");
        }
    }

    #[test]
    fn failures_have_few_kinds() {
        let refused = |said: &str| Error::Refused { by: "the SOCKS port", said: said.into() };
        let io = Error::io("x")(io::ErrorKind::ConnectionReset.into());
        let kinds = [
            kind(Stage::Open, &refused("reply 4, host unreachable")),
            kind(Stage::Open, &refused("the SOCKS connection was closed")),
            kind(Stage::Open, &refused("the user name ([1, 7])")),
            kind(Stage::Transfer, &io),
        ];
        let expected = [
            "open: reply 4, host unreachable",
            "open: closed",
            "open: refused",
            "transfer: connection reset",
        ];
        assert_eq!(kinds, expected);
    }
}
