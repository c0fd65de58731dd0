//! SOCKS5 as its server speaks it (RFC 1928), with user names and passwords (RFC 1929), which Tor takes as isolation,
//! and Tor's own commands (socks-extensions, section 2).
//!
//! 1. The greeting names methods; one is chosen. Who offers a user name is asked for it, as by stock Tor.
//! 2. The user name and the password come, if that was the choice. Any will do.
//! 3. The request comes, and the dialogue is over.
//!
//! [`Dialogue::wanted`] says how many bytes are missing for certain, and its owner reads no more than these. So what
//! follows the request stays with whoever has it, and nothing here grows beyond one message.

use crate::exchange::Destination;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use heddle_proto::cell::stream::{EndReason, HostName};

const VERSION: u8 = 5;
const PASSWORD_VERSION: u8 = 1;
const NO_AUTHENTICATION: u8 = 0;
const USER_PASSWORD: u8 = 2;
const NO_ACCEPTABLE_METHOD: u8 = 0xFF;

const CONNECT: u8 = 1;
const RESOLVE: u8 = 0xF0;
const RESOLVE_PTR: u8 = 0xF1;

const ADDRESS_IPV4: u8 = 1;
const ADDRESS_NAME: u8 = 3;
const ADDRESS_IPV6: u8 = 4;

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocksCommand {
    /// A stream.
    Connect,
    /// The addresses of a name (Tor's extension).
    Resolve,
    /// The name of an address (Tor's extension).
    ResolvePtr,
}

/// A user name and a password: requests that differ in them share no circuit. Each has at most 255 bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Isolation {
    pub username: Vec<u8>,
    pub password: Vec<u8>,
}

/// What users choose is theirs, and goes into no log.
impl fmt::Debug for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Isolation")
    }
}

/// What a client asks for, once it has said everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocksRequest {
    pub command: SocksCommand,
    /// A name is one that BEGIN can carry. One that spells an address is that address.
    pub to: Destination,
    /// Zero only where no stream is asked for.
    pub port: u16,
    /// `None`: no user name was offered.
    pub isolation: Option<Isolation>,
}

/// What came of some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More have to come.
    More,
    /// This is to be said, and more has to come.
    Say([u8; 2]),
    /// The dialogue is over, and waits for a reply.
    Asked(SocksRequest),
}

/// A client that is no client of ours: the connection ends once `says` is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Nothing, where the other side would not understand it.
    pub says: Vec<u8>,
    pub why: &'static str,
}

impl Refusal {
    fn silent(why: &'static str) -> Self {
        Refusal { says: Vec::new(), why }
    }

    fn with(reply: Reply, why: &'static str) -> Self {
        Refusal { says: reply.encode(&Bound::Nothing), why }
    }
}

/// A client's side of the dialogue, as far as it has come; see the module.
#[derive(Clone, Debug)]
pub struct Dialogue {
    stage: Stage,
    /// What has come of the present message: at most 513 bytes, which is a user name and a password.
    message: Vec<u8>,
    isolation: Option<Isolation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Greeting,
    Password,
    Request,
}

impl Default for Dialogue {
    fn default() -> Self {
        Dialogue { stage: Stage::Greeting, message: Vec::new(), isolation: None }
    }
}

impl Dialogue {
    /// How many bytes the present message needs at least beyond those that came: at least one, at most 257.
    pub fn wanted(&self) -> usize {
        // A message that is refused is not asked about again.
        let len = self.message_len().unwrap_or(0);
        len.saturating_sub(self.message.len()).max(1)
    }

    /// Takes the next bytes, at most as many as are [wanted](Self::wanted).
    ///
    /// # Errors
    /// The dialogue cannot go on.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Progress, Refusal> {
        debug_assert!(bytes.len() <= self.wanted(), "what follows a message belongs to others");
        self.message.extend_from_slice(bytes);
        if self.message.len() < self.message_len()? {
            return Ok(Progress::More);
        }
        let message = core::mem::take(&mut self.message);
        match self.stage {
            Stage::Greeting => self.on_greeting(&message),
            Stage::Password => Ok(self.on_password(&message)),
            Stage::Request => self.on_request(&message),
        }
    }

    /// How long the present message is, as far as what came of it tells.
    fn message_len(&self) -> Result<usize, Refusal> {
        let message = &self.message[..];
        match self.stage {
            Stage::Greeting => match *message {
                [] | [VERSION] => Ok(2),
                [VERSION, methods, ..] => Ok(2 + usize::from(methods)),
                _ => Err(Refusal::silent("another version of SOCKS than 5")),
            },
            Stage::Password => match *message {
                [] | [PASSWORD_VERSION] => Ok(2),
                [PASSWORD_VERSION, name_len, ..] => {
                    let name_end = 2 + usize::from(name_len);
                    let password_len = message.get(name_end).map_or(0, |len| usize::from(*len));
                    Ok(name_end + 1 + password_len)
                }
                _ => {
                    Err(Refusal { says: vec![PASSWORD_VERSION, 1], why: "an unknown form of the user name" })
                }
            },
            Stage::Request => match *message {
                [VERSION] | [VERSION, _] | [VERSION, _, _] | [] => Ok(4),
                [VERSION, _, _, ADDRESS_IPV4, ..] => Ok(4 + 4 + 2),
                [VERSION, _, _, ADDRESS_IPV6, ..] => Ok(4 + 16 + 2),
                [VERSION, _, _, ADDRESS_NAME] => Ok(5),
                [VERSION, _, _, ADDRESS_NAME, len, ..] => Ok(5 + usize::from(len) + 2),
                [VERSION, ..] => Err(Refusal::with(Reply::ADDRESS_TYPE, "an unknown type of address")),
                _ => Err(Refusal::silent("a request of another version")),
            },
        }
    }

    fn on_greeting(&mut self, message: &[u8]) -> Result<Progress, Refusal> {
        let methods = message.get(2..).unwrap_or_default();
        let method = [USER_PASSWORD, NO_AUTHENTICATION].into_iter().find(|method| methods.contains(method));
        let Some(method) = method else {
            let says = vec![VERSION, NO_ACCEPTABLE_METHOD];
            return Err(Refusal { says, why: "no method of authentication that we know" });
        };
        self.stage = if method == USER_PASSWORD { Stage::Password } else { Stage::Request };
        Ok(Progress::Say([VERSION, method]))
    }

    fn on_password(&mut self, message: &[u8]) -> Progress {
        let name_end = 2 + message.get(1).map_or(0, |len| usize::from(*len));
        let part = |range| message.get::<core::ops::Range<usize>>(range).unwrap_or_default().to_vec();
        self.isolation =
            Some(Isolation { username: part(2..name_end), password: part(name_end + 1..message.len()) });
        self.stage = Stage::Request;
        Progress::Say([PASSWORD_VERSION, 0])
    }

    fn on_request(&mut self, message: &[u8]) -> Result<Progress, Refusal> {
        let general = |why| Refusal::with(Reply::GENERAL_FAILURE, why);
        let [_, command, _, address_type, rest @ .., port_high, port_low] = message else {
            return Err(general("a request that is too short"));
        };
        let command = match *command {
            CONNECT => SocksCommand::Connect,
            RESOLVE => SocksCommand::Resolve,
            RESOLVE_PTR => SocksCommand::ResolvePtr,
            _ => return Err(Refusal::with(Reply::COMMAND, "an unknown command")),
        };
        let to = match *address_type {
            ADDRESS_IPV4 => <[u8; 4]>::try_from(rest).ok().map(|ip| Destination::Addr(ip.into())),
            ADDRESS_IPV6 => <[u8; 16]>::try_from(rest).ok().map(|ip| Destination::Addr(ip.into())),
            _ => rest.get(1..).and_then(destination),
        };
        let to = to.ok_or_else(|| general("a name that is no host name"))?;
        let port = u16::from_be_bytes([*port_high, *port_low]);
        match (command, &to) {
            (SocksCommand::Connect, _) if port == 0 => return Err(general("a stream to port 0")),
            (SocksCommand::ResolvePtr, Destination::Name(_)) => {
                return Err(general("the name of a name"));
            }
            _ => {}
        }
        Ok(Progress::Asked(SocksRequest { command, to, port, isolation: self.isolation.take() }))
    }
}

/// Where a name leads. Names of services that only this network's stock clients know lead nowhere.
fn destination(name: &[u8]) -> Option<Destination> {
    let name = core::str::from_utf8(name).ok()?;
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    if let Ok(addr) = bare.parse::<IpAddr>() {
        return Some(Destination::Addr(addr));
    }
    HostName::new(name).map(|name| Destination::Name(name.as_str().to_owned()))
}

/// The code of a reply (RFC 1928, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply(u8);

impl Reply {
    pub(crate) const SUCCEEDED: Reply = Reply(0);
    pub(crate) const GENERAL_FAILURE: Reply = Reply(1);
    const NOT_ALLOWED: Reply = Reply(2);
    pub(crate) const HOST_UNREACHABLE: Reply = Reply(4);
    const REFUSED: Reply = Reply(5);
    pub(crate) const TTL_EXPIRED: Reply = Reply(6);
    const COMMAND: Reply = Reply(7);
    const ADDRESS_TYPE: Reply = Reply(8);

    /// What a client hears when a stream ended before it was open, as stock Tor says it
    /// (`stream_end_reason_to_socks5_response`).
    pub(crate) fn of_end(reason: EndReason) -> Self {
        match reason {
            EndReason::RESOLVEFAILED | EndReason::NOROUTE => Reply::HOST_UNREACHABLE,
            EndReason::CONNECTREFUSED | EndReason::CONNRESET => Reply::REFUSED,
            EndReason::EXITPOLICY => Reply::NOT_ALLOWED,
            EndReason::TIMEOUT => Reply::TTL_EXPIRED,
            _ => Reply::GENERAL_FAILURE,
        }
    }

    /// The whole reply. Names longer than 255 bytes are none that an exit sends, and are cut.
    pub fn encode(self, bound: &Bound) -> Vec<u8> {
        let mut bytes = vec![VERSION, self.0, 0];
        match bound {
            Bound::Nothing => {
                bytes.push(ADDRESS_IPV4);
                bytes.extend(Ipv4Addr::UNSPECIFIED.octets());
            }
            Bound::Addr(IpAddr::V4(addr)) => {
                bytes.push(ADDRESS_IPV4);
                bytes.extend(addr.octets());
            }
            Bound::Addr(IpAddr::V6(addr)) => {
                bytes.push(ADDRESS_IPV6);
                bytes.extend(Ipv6Addr::octets(addr));
            }
            Bound::Name(name) => {
                let name = &name[..name.len().min(255)];
                bytes.extend([ADDRESS_NAME, name.len() as u8]);
                bytes.extend(name);
            }
        }
        bytes.extend([0, 0]);
        bytes
    }
}

/// What a reply names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The unspecified address, as stock Tor answers CONNECT and every failure.
    Nothing,
    Addr(IpAddr),
    Name(Vec<u8>),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds a whole dialogue in pieces of what is wanted, at most `piece` bytes each.
    fn feed(bytes: &[u8], piece: usize) -> (Vec<u8>, Result<Option<SocksRequest>, Refusal>) {
        let (mut dialogue, mut said, mut rest) = (Dialogue::default(), Vec::new(), bytes);
        while !rest.is_empty() {
            let (next, after) = rest.split_at(dialogue.wanted().min(piece).min(rest.len()));
            rest = after;
            match dialogue.push(next) {
                Ok(Progress::More) => {}
                Ok(Progress::Say(reply)) => said.extend(reply),
                Ok(Progress::Asked(request)) => {
                    assert_eq!(rest, b"", "what follows the request was not asked for");
                    return (said, Ok(Some(request)));
                }
                Err(refusal) => return (said, Err(refusal)),
            }
        }
        (said, Ok(None))
    }

    fn asked(bytes: &[u8]) -> SocksRequest {
        let (_, whole) = feed(bytes, usize::MAX);
        assert_eq!(feed(bytes, 1).1, whole);
        whole.unwrap().unwrap()
    }

    fn refused(bytes: &[u8]) -> Vec<u8> {
        let (_, whole) = feed(bytes, usize::MAX);
        assert_eq!(feed(bytes, 1).1, whole);
        whole.unwrap_err().says
    }

    #[test]
    fn a_request_without_a_name_is_of_nobody() {
        let (said, request) = feed(b"\x05\x01\0\x05\x01\0\x03\x0bexample.com\x01\xbb", 100);
        assert_eq!(said, [5, 0]);
        let request = request.unwrap().unwrap();
        assert_eq!((request.command, request.port, request.isolation), (SocksCommand::Connect, 443, None));
        assert_eq!(request.to, Destination::Name("example.com".to_owned()));
    }

    #[test]
    fn a_user_name_is_preferred_and_isolates() {
        let bytes = b"\x05\x02\0\x02\x01\x03foo\x02hi\x05\x01\0\x01\x7f\0\0\x01\0\x50";
        assert_eq!(feed(bytes, 7).0, [5, 2, 1, 0]);
        let request = asked(bytes);
        let isolation = Isolation { username: b"foo".to_vec(), password: b"hi".to_vec() };
        assert_eq!(request.isolation, Some(isolation));
        assert_eq!((request.to, request.port), (Destination::Addr([127, 0, 0, 1].into()), 80));
        let empty = asked(b"\x05\x01\x02\x01\0\0\x05\x01\0\x01\x7f\0\0\x01\0\x50");
        assert_eq!(empty.isolation, Some(Isolation { username: Vec::new(), password: Vec::new() }));
    }

    #[test]
    fn addresses_come_as_such_and_as_names() {
        let six = |head: &[u8], ip: Ipv6Addr| [head, &ip.octets(), &[0, 80]].concat();
        let request = asked(&six(b"\x05\x01\0\x05\x01\0\x04", Ipv6Addr::LOCALHOST));
        assert_eq!(request.to, Destination::Addr(Ipv6Addr::LOCALHOST.into()));
        for name in ["::1", "[::1]"] {
            let head = [b"\x05\x01\0\x05\x01\0\x03", &[name.len() as u8][..]].concat();
            let request = asked(&[&head, name.as_bytes(), &[0, 80]].concat());
            assert_eq!(request.to, Destination::Addr(Ipv6Addr::LOCALHOST.into()), "{name}");
        }
    }

    #[test]
    fn names_and_addresses_are_looked_up() {
        let request = asked(b"\x05\x01\0\x05\xf0\0\x03\x01a\0\0");
        assert_eq!((request.command, request.port), (SocksCommand::Resolve, 0));
        assert_eq!(asked(b"\x05\x01\0\x05\xf1\0\x01\x01\x02\x03\x04\0\0").command, SocksCommand::ResolvePtr);
    }

    #[test]
    fn what_is_not_understood_is_refused_in_words_of_the_rfc() {
        let failure = |code| [5, code, 0, 1, 0, 0, 0, 0, 0, 0].to_vec();
        assert_eq!(refused(b"\x04\x01"), b"", "SOCKS 4");
        assert_eq!(refused(b"GE"), b"", "HTTP");
        assert_eq!(refused(b"\x05\0"), [5, 0xFF], "no method");
        assert_eq!(refused(b"\x05\x02\x01\x03"), [5, 0xFF], "GSSAPI and one that is reserved");
        assert_eq!(refused(b"\x05\x01\x02\x05\x01"), [1, 1]);
        assert_eq!(refused(b"\x05\x01\0\x04\x01\0\x01"), b"");
        assert_eq!(refused(b"\x05\x01\0\x05\x01\0\x02"), failure(8));
        assert_eq!(refused(b"\x05\x01\0\x05\x02\0\x01\x01\x02\x03\x04\0\x50"), failure(7), "BIND");
        assert_eq!(refused(b"\x05\x01\0\x05\x01\0\x03\0\0\x50"), failure(1), "an empty name");
        assert_eq!(refused(b"\x05\x01\0\x05\x01\0\x03\x02a:\0\x50"), failure(1));
        assert_eq!(refused(b"\x05\x01\0\x05\x01\0\x03\x02\xff\xfe\0\x50"), failure(1));
        assert_eq!(refused(b"\x05\x01\0\x05\x01\0\x01\x01\x02\x03\x04\0\0"), failure(1), "port 0");
        assert_eq!(refused(b"\x05\x01\0\x05\xf1\0\x03\x01a\0\0"), failure(1));
    }

    #[test]
    fn replies_name_what_was_found() {
        let encode = |bound| Reply::SUCCEEDED.encode(&bound);
        assert_eq!(encode(Bound::Addr([1, 2, 3, 4].into())), [5, 0, 0, 1, 1, 2, 3, 4, 0, 0]);
        let six = encode(Bound::Addr(Ipv6Addr::LOCALHOST.into()));
        assert_eq!((six.len(), six[3], six[19]), (22, 4, 1));
        assert_eq!(encode(Bound::Name(b"ab".to_vec())), [5, 0, 0, 3, 2, b'a', b'b', 0, 0]);
        assert_eq!(encode(Bound::Name(vec![b'a'; 300])).len(), 5 + 255 + 2);
    }

    #[test]
    fn ends_are_told_as_stock_tor_tells_them() {
        let codes =
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14].map(|end| Reply::of_end(EndReason(end)).0);
        // DONE before CONNECTED is no success, which is what stock Tor's table makes of it.
        assert_eq!(codes, [1, 4, 5, 2, 1, 1, 6, 4, 1, 1, 1, 5, 1, 1]);
    }
}
