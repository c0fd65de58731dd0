//! A SOCKS5 client (RFC 1928) with user names (RFC 1929), which Tor takes as isolation.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::machine::interrupt;

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const USER_PASSWORD: u8 = 2;
/// The version of RFC 1929's own exchange.
const USER_PASSWORD_VERSION: u8 = 1;
const CONNECT: u8 = 1;
/// Tor's extension: look a name up (socks-extensions, section 2).
const RESOLVE: u8 = 0xF0;
/// Tor's extension: look the name of an address up.
const RESOLVE_PTR: u8 = 0xF1;
const ADDRESS_IPV4: u8 = 1;
const ADDRESS_NAME: u8 = 3;
const ADDRESS_IPV6: u8 = 4;

/// How long one read may block before Ctrl-C and the deadline are looked at.
const SLICE: Duration = Duration::from_millis(200);

/// Where a stream is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An address, given to the exit as it is.
    Addr(SocketAddr),
    /// A name of at most 255 bytes that the exit looks up, and a port.
    Name(String, u16),
}

impl From<SocketAddr> for Target {
    fn from(addr: SocketAddr) -> Target {
        Target::Addr(addr)
    }
}

/// The user name and password of a request. Tor puts requests that differ in them on different
/// circuits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// 1 to 255 bytes.
    pub username: String,
    /// 1 to 255 bytes.
    pub password: String,
}

/// Opens a stream through the proxy, or fails with the proxy's reply code in words.
///
/// The stream comes back without read or write time-outs.
pub fn connect(
    proxy: SocketAddr,
    target: &Target,
    isolation: Option<&Isolation>,
    timeout: Duration,
) -> Result<TcpStream> {
    connect_unless(proxy, target, isolation, timeout, &|| false)
}

/// Opens a stream as [`connect`] does, or fails with [`Error::Interrupted`] soon after `stopped`
/// has become true.
pub(crate) fn connect_unless(
    proxy: SocketAddr,
    target: &Target,
    isolation: Option<&Isolation>,
    timeout: Duration,
    stopped: &dyn Fn() -> bool,
) -> Result<TcpStream> {
    let (stream, _) = negotiate(proxy, Negotiation::connect(target, isolation)?, timeout, stopped)?;
    let reset = stream.set_read_timeout(None).and_then(|()| stream.set_write_timeout(None));
    reset.map_err(Error::io("opening a stream through SOCKS"))?;
    Ok(stream)
}

/// Looks a name up through the proxy and the exit, without opening a stream.
pub fn resolve(
    proxy: SocketAddr,
    name: &str,
    isolation: Option<&Isolation>,
    timeout: Duration,
) -> Result<IpAddr> {
    let negotiation = Negotiation::new(RESOLVE, &Target::Name(name.to_owned(), 0), isolation)?;
    match negotiate(proxy, negotiation, timeout, &|| false)?.1 {
        Bound::Addr(addr) => Ok(addr),
        Bound::Name(name) => Err(Error::Malformed { by: "the SOCKS port", sent: format!("the name {name}") }),
    }
}

/// Looks the name of an address up through the proxy and the exit.
pub fn resolve_ptr(
    proxy: SocketAddr,
    addr: IpAddr,
    isolation: Option<&Isolation>,
    timeout: Duration,
) -> Result<String> {
    let negotiation = Negotiation::new(RESOLVE_PTR, &Target::Addr(SocketAddr::new(addr, 0)), isolation)?;
    match negotiate(proxy, negotiation, timeout, &|| false)?.1 {
        Bound::Name(name) => Ok(name),
        Bound::Addr(addr) => {
            Err(Error::Malformed { by: "the SOCKS port", sent: format!("the address {addr}") })
        }
    }
}

/// What a positive reply names.
enum Bound {
    Addr(IpAddr),
    Name(String),
}

/// What is said with a proxy to have a request answered, without a socket: what is to be sent, and what answers mean.
#[derive(Debug)]
pub(crate) struct Negotiation {
    request: Vec<u8>,
    login: Option<Vec<u8>>,
    stage: Stage,
    /// What is to be sent and was not taken yet.
    out: Vec<u8>,
    /// What came of the answer that is waited for.
    come: Vec<u8>,
}

/// Which answer is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Method,
    Login,
    Reply,
    /// How long the name is that the reply names.
    NameLen,
    Address,
    Name(usize),
}

impl Negotiation {
    /// That of a stream to a target.
    pub(crate) fn connect(target: &Target, isolation: Option<&Isolation>) -> Result<Negotiation> {
        Negotiation::new(CONNECT, target, isolation)
    }

    fn new(command: u8, target: &Target, isolation: Option<&Isolation>) -> Result<Negotiation> {
        let method = if isolation.is_some() { USER_PASSWORD } else { NO_AUTHENTICATION };
        let login = isolation.map(|Isolation { username, password }| {
            let mut message = vec![USER_PASSWORD_VERSION];
            push_text(&mut message, username)?;
            push_text(&mut message, password)?;
            Ok(message)
        });
        Ok(Negotiation {
            request: request(command, target)?,
            login: login.transpose()?,
            stage: Stage::Method,
            out: vec![VERSION, 1, method],
            come: Vec::new(),
        })
    }

    /// What is to be sent now.
    pub(crate) fn out(&self) -> &[u8] {
        &self.out
    }

    /// So much of that was sent.
    pub(crate) fn on_sent(&mut self, len: usize) {
        self.out.drain(..len);
    }

    /// How many bytes are to be read, at most: what follows belongs to the stream.
    pub(crate) fn wanted(&self) -> usize {
        let whole = match self.stage {
            Stage::Method | Stage::Login => 2,
            Stage::Reply => 4,
            Stage::NameLen => 1,
            Stage::Address if self.come[0] == ADDRESS_IPV4 => 1 + 4 + 2,
            Stage::Address => 1 + 16 + 2,
            Stage::Name(len) => len + 2,
        };
        whole - self.come.len()
    }

    /// Takes what was read, and says whether the stream is there.
    ///
    /// # Errors
    ///
    /// The proxy's reply code in words.
    pub(crate) fn on_read(&mut self, bytes: &[u8]) -> Result<bool> {
        Ok(self.advance(bytes)?.is_some())
    }

    /// The same with what the reply names.
    fn advance(&mut self, bytes: &[u8]) -> Result<Option<Bound>> {
        self.come.extend_from_slice(bytes);
        if self.wanted() > 0 {
            return Ok(None);
        }
        let answer = std::mem::take(&mut self.come);
        match self.stage {
            Stage::Method => {
                let method = if self.login.is_some() { USER_PASSWORD } else { NO_AUTHENTICATION };
                if answer != [VERSION, method] {
                    return Err(refused(format!("the authentication method ({answer:?})")));
                }
                match self.login.take() {
                    Some(login) => (self.out, self.stage) = (login, Stage::Login),
                    None => self.ask(),
                }
            }
            Stage::Login if answer[1] == 0 => self.ask(),
            Stage::Login => return Err(refused(format!("the user name ({answer:?})"))),
            Stage::Reply => self.hear(answer[1], answer[3])?,
            Stage::NameLen => self.stage = Stage::Name(answer[0].into()),
            Stage::Address => return Ok(Some(Bound::Addr(address(&answer[1..answer.len() - 2])))),
            Stage::Name(len) => {
                return Ok(Some(Bound::Name(String::from_utf8_lossy(&answer[..len]).into_owned())));
            }
        }
        Ok(None)
    }

    fn ask(&mut self) {
        (self.out, self.stage) = (std::mem::take(&mut self.request), Stage::Reply);
    }

    /// Hears a reply whose address is of this type.
    fn hear(&mut self, reply: u8, address_type: u8) -> Result<()> {
        if reply != 0 {
            return Err(refused(reply_in_words(reply)));
        }
        self.stage = match address_type {
            ADDRESS_IPV4 | ADDRESS_IPV6 => Stage::Address,
            ADDRESS_NAME => Stage::NameLen,
            other => {
                let sent = format!("an address of type {other}");
                return Err(Error::Malformed { by: "the SOCKS port", sent });
            }
        };
        if self.stage == Stage::Address {
            // The address follows behind its type.
            self.come.push(address_type);
        }
        Ok(())
    }
}

/// The address in 4 or 16 bytes.
fn address(bytes: &[u8]) -> IpAddr {
    match (<[u8; 4]>::try_from(bytes), <[u8; 16]>::try_from(bytes)) {
        (Ok(v4), _) => Ipv4Addr::from(v4).into(),
        (_, Ok(v6)) => Ipv6Addr::from(v6).into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    }
}

fn request(command: u8, target: &Target) -> Result<Vec<u8>> {
    let mut message = vec![VERSION, command, 0];
    let port = match target {
        Target::Addr(SocketAddr::V4(addr)) => {
            message.push(ADDRESS_IPV4);
            message.extend(addr.ip().octets());
            addr.port()
        }
        Target::Addr(SocketAddr::V6(addr)) => {
            message.push(ADDRESS_IPV6);
            message.extend(addr.ip().octets());
            addr.port()
        }
        Target::Name(name, port) => {
            message.push(ADDRESS_NAME);
            push_text(&mut message, name)?;
            *port
        }
    };
    message.extend(port.to_be_bytes());
    Ok(message)
}

/// Has a request answered over a socket that blocks.
fn negotiate(
    proxy: SocketAddr,
    mut negotiation: Negotiation,
    timeout: Duration,
    stopped: &dyn Fn() -> bool,
) -> Result<(TcpStream, Bound)> {
    let doing = "connecting to the SOCKS port";
    let mut stream = TcpStream::connect_timeout(&proxy, timeout).map_err(Error::io(doing))?;
    let ready = stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(SLICE)))
        .and_then(|()| stream.set_write_timeout(Some(timeout)));
    ready.map_err(Error::io(doing))?;
    let start = Instant::now();
    let mut bytes = [0; 512];
    loop {
        stream.write_all(negotiation.out()).map_err(Error::io("writing to the SOCKS port"))?;
        negotiation.on_sent(negotiation.out().len());
        interrupt::check()?;
        if stopped() {
            return Err(Error::Interrupted);
        }
        let wanted = negotiation.wanted();
        match stream.read(&mut bytes[..wanted]) {
            Ok(0) => return Err(closed_early()),
            Ok(len) => {
                if let Some(bound) = negotiation.advance(&bytes[..len])? {
                    return Ok((stream, bound));
                }
            }
            Err(error) if is_timeout(&error) && start.elapsed() < timeout => {}
            Err(error) if is_timeout(&error) => {
                let waiting_for = "the answer of the SOCKS port".into();
                return Err(Error::Deadline { waiting_for, after: timeout });
            }
            Err(error) => return Err(Error::io("reading from the SOCKS port")(error)),
        }
    }
}

/// What is said of a proxy that closes the connection instead of answering.
pub(crate) fn closed_early() -> Error {
    refused("the SOCKS connection was closed".into())
}

/// Whether a blocking socket call ended because of its time-out (or a signal).
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

fn push_text(message: &mut Vec<u8>, text: &str) -> Result<()> {
    let len = u8::try_from(text.len()).ok().filter(|len| *len > 0);
    let len = len.ok_or_else(|| Error::Options(format!("SOCKS takes 1 to 255 bytes, not {text:?}")))?;
    message.push(len);
    message.extend(text.as_bytes());
    Ok(())
}

fn refused(said: String) -> Error {
    Error::Refused { by: "the SOCKS port", said }
}

/// RFC 1928, section 6; Tor chooses among these by the END reason (connection_edge.c of C Tor).
fn reply_in_words(reply: u8) -> String {
    let words = match reply {
        1 => "general failure",
        2 => "not allowed",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "TTL expired",
        7 => "command not supported",
        8 => "address type not supported",
        _ => "unassigned",
    };
    format!("reply {reply}, {words}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// A proxy that checks what it reads and answers from a script.
    fn scripted(script: Vec<(&'static [u8], &'static [u8])>) -> (SocketAddr, thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let proxy = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for (expected, answer) in script {
                let mut got = vec![0; expected.len()];
                stream.read_exact(&mut got).unwrap();
                assert_eq!(got, expected);
                stream.write_all(answer).unwrap();
            }
        });
        (addr, proxy)
    }

    const TIMEOUT: Duration = Duration::from_secs(5);

    #[test]
    fn a_stream_with_isolation_leaves_its_first_bytes_unread() {
        let (addr, proxy) = scripted(vec![
            (&[5, 1, 2], &[5, 2]),
            (b"\x01\x01u\x02pw", &[1, 0]),
            (b"\x05\x01\x00\x03\x09localhost\x00\x50", b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00hello"),
        ]);
        let isolation = Isolation { username: "u".into(), password: "pw".into() };
        let target = Target::Name("localhost".into(), 80);
        let mut stream = connect(addr, &target, Some(&isolation), TIMEOUT).unwrap();
        let mut hello = [0; 5];
        stream.read_exact(&mut hello).unwrap();
        assert_eq!(&hello, b"hello");
        proxy.join().unwrap();
    }

    #[test]
    fn a_refusal_is_told_in_words() {
        let (addr, proxy) =
            scripted(vec![(&[5, 1, 0], &[5, 0]), (&[5, 1, 0, 1, 127, 0, 0, 1, 0, 9], &[5, 5, 0, 1])]);
        let target = Target::Addr("127.0.0.1:9".parse().unwrap());
        let error = connect(addr, &target, None, TIMEOUT).unwrap_err();
        assert!(error.to_string().contains("connection refused"), "{error}");
        proxy.join().unwrap();
    }

    #[test]
    fn a_name_is_resolved() {
        let (addr, proxy) = scripted(vec![
            (&[5, 1, 0], &[5, 0]),
            (b"\x05\xf0\x00\x03\x01n\x00\x00", &[5, 0, 0, 1, 10, 0, 0, 7, 0, 0]),
        ]);
        assert_eq!(resolve(addr, "n", None, TIMEOUT).unwrap(), IpAddr::from([10, 0, 0, 7]));
        proxy.join().unwrap();
    }

    #[test]
    fn the_name_of_an_address_is_resolved() {
        let (addr, proxy) = scripted(vec![
            (&[5, 1, 0], &[5, 0]),
            (b"\x05\xf1\x00\x01\x0a\x00\x00\x07\x00\x00", b"\x05\x00\x00\x03\x04name\x00\x00"),
        ]);
        assert_eq!(resolve_ptr(addr, [10, 0, 0, 7].into(), None, TIMEOUT).unwrap(), "name");
        proxy.join().unwrap();
    }

    #[test]
    fn silence_ends_at_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::Name("x".into(), 1);
        let timeout = Duration::from_millis(300);
        let error = connect(listener.local_addr().unwrap(), &target, None, timeout).unwrap_err();
        assert!(matches!(error, Error::Deadline { .. }), "{error}");
        let long = Duration::from_secs(3600);
        let stopped = connect_unless(listener.local_addr().unwrap(), &target, None, long, &|| true);
        assert!(matches!(stopped, Err(Error::Interrupted)), "{stopped:?}");
    }
}
