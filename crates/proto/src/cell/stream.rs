//! Opening and closing streams and looking up names (tor-spec, "Application connections and stream
//! management").
//!
//! BEGIN_DIR has no body that counts. DATA is nothing but its data.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::num::NonZeroU16;
use std::io::Write as _;

use super::read::{Malformed, Reader};
use super::relay::DATA_LEN;

/// The time to live, in seconds, of an address that came without one.
pub(crate) const TTL_UNKNOWN_S: u32 = u32::MAX;
/// The longest host name, in bytes.
pub(crate) const HOST_NAME_LEN_MAX: usize = 255;

/// A host name as it came: 1 to [`HOST_NAME_LEN_MAX`] visible ASCII characters, in any case, and
/// none of `:[]`. Whether it can be resolved is for the resolver to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostName<'a>(&'a str);

impl<'a> HostName<'a> {
    pub fn new(name: &'a str) -> Option<Self> {
        let fits = (1..=HOST_NAME_LEN_MAX).contains(&name.len());
        let clean = name.bytes().all(|byte| byte.is_ascii_graphic() && !b":[]".contains(&byte));
        (fits && clean).then_some(HostName(name))
    }

    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// Whether it lies below `in-addr.arpa` or `ip6.arpa`, where addresses have their names and no host is.
    pub fn is_reverse(self) -> bool {
        [".in-addr.arpa", ".ip6.arpa"].iter().any(|zone| strip_zone(self.0, zone).is_some())
    }

    /// Whether it has nothing but what names of hosts have by RFC 953, and underscores, as stock Tor's exits want it
    /// unless `ServerDNSAllowNonRFC953Hostnames` is set.
    pub fn is_plain(self) -> bool {
        self.0.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    }
}

/// Where BEGIN wants to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host<'a> {
    Name(HostName<'a>),
    Ipv4(Ipv4Addr),
    Ipv6(Ipv6Addr),
}

impl<'a> Host<'a> {
    /// Reads a name or an IPv4 address, which need no brackets.
    fn parse_plain(text: &'a str) -> Result<Self, Malformed> {
        if let Ok(addr) = text.parse() {
            return Ok(Host::Ipv4(addr));
        }
        HostName::new(text).map(Host::Name).ok_or(Malformed::Invalid("a host name is not a name"))
    }
}

/// How BEGIN wants addresses of both families treated; bits that we don't know are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BeginFlags(pub u32);

impl BeginFlags {
    const IPV6_OK: u32 = 1;
    const IPV4_NOT_OK: u32 = 1 << 1;
    const IPV6_PREFERRED: u32 = 1 << 2;

    /// Whether an IPv6 address may be used.
    pub const fn ipv6_ok(self) -> bool {
        self.0 & Self::IPV6_OK != 0
    }

    /// Whether an IPv4 address may be used.
    pub const fn ipv4_ok(self) -> bool {
        self.0 & Self::IPV4_NOT_OK == 0
    }

    /// Whether IPv6 comes first when a name has both.
    pub const fn ipv6_preferred(self) -> bool {
        self.0 & Self::IPV6_PREFERRED != 0
    }
}

/// BEGIN: open a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin<'a> {
    pub host: Host<'a>,
    pub port: NonZeroU16,
    pub flags: BeginFlags,
}

impl<'a> Begin<'a> {
    pub fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        let nul = data.iter().position(|byte| *byte == 0).ok_or(Malformed::Truncated)?;
        let (text, behind) = (ascii(&data[..nul])?, &data[nul + 1..]);
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (addr, port) = rest.split_once("]:").ok_or(Malformed::Invalid("BEGIN has no port"))?;
                let addr =
                    addr.parse().map_err(|_| Malformed::Invalid("BEGIN has no IPv6 address in brackets"))?;
                (Host::Ipv6(addr), port)
            }
            None => {
                let (host, port) = text.split_once(':').ok_or(Malformed::Invalid("BEGIN has no port"))?;
                (Host::parse_plain(host)?, port)
            }
        };
        let flags = behind.first_chunk().map_or(0, |flags| u32::from_be_bytes(*flags));
        Ok(Begin { host, port: parse_port(port)?, flags: BeginFlags(flags) })
    }

    /// Names go out in lower case, so that they don't tell clients apart.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self.host {
            Host::Name(name) => out.extend(name.0.bytes().map(|byte| byte.to_ascii_lowercase())),
            Host::Ipv4(addr) => append(out, format_args!("{addr}")),
            Host::Ipv6(addr) => append(out, format_args!("[{addr}]")),
        }
        append(out, format_args!(":{}\0", self.port));
        if self.flags.0 != 0 {
            out.extend_from_slice(&self.flags.0.to_be_bytes());
        }
    }
}

/// "PORT is a decimal integer between 1 and 65535": no sign, no spaces.
fn parse_port(text: &str) -> Result<NonZeroU16, Malformed> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|_| digits);
    port.ok_or(Malformed::Invalid("BEGIN has no port between 1 and 65535"))
}

fn ascii(bytes: &[u8]) -> Result<&str, Malformed> {
    let text = core::str::from_utf8(bytes).ok().filter(|text| text.is_ascii());
    text.ok_or(Malformed::Invalid("a host name is not ASCII"))
}

fn append(out: &mut Vec<u8>, text: core::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a vector cannot fail");
}

/// CONNECTED: the stream is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connected {
    /// The address of the other end and its time to live in seconds; `None` for directory streams.
    pub addr: Option<(IpAddr, u32)>,
}

impl Connected {
    pub fn parse(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(data);
        if reader.is_empty() {
            return Ok(Connected { addr: None });
        }
        let ipv4 = Ipv4Addr::from(reader.array::<4>()?);
        if !ipv4.is_unspecified() {
            return Ok(Connected { addr: Some((ipv4.into(), parse_ttl(reader))) });
        }
        if reader.u8()? != 6 {
            return Err(Malformed::Invalid("CONNECTED has an address of an unknown type"));
        }
        let ipv6 = IpAddr::from(reader.array::<16>()?);
        Ok(Connected { addr: Some((ipv6, parse_ttl(reader))) })
    }

    /// An unspecified IPv4 address, which the layout cannot say, goes out as none.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let Some((addr, ttl_s)) = self.addr.filter(|(addr, _)| *addr != IpAddr::V4(Ipv4Addr::UNSPECIFIED))
        else {
            return;
        };
        if addr.is_ipv6() {
            out.extend_from_slice(&[0, 0, 0, 0, 6]);
        }
        encode_addr(out, addr);
        out.extend_from_slice(&ttl_s.to_be_bytes());
    }
}

fn parse_ttl(mut reader: Reader<'_>) -> u32 {
    reader.u32().unwrap_or(TTL_UNKNOWN_S)
}

fn encode_addr(out: &mut Vec<u8>, addr: IpAddr) {
    match addr {
        IpAddr::V4(addr) => out.extend_from_slice(&addr.octets()),
        IpAddr::V6(addr) => out.extend_from_slice(&addr.octets()),
    }
}

/// END: the stream is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    pub reason: EndReason,
    /// With [`EndReason::EXITPOLICY`], the refused address and its time to live in seconds.
    pub addr: Option<(IpAddr, u32)>,
}

impl From<EndReason> for End {
    fn from(reason: EndReason) -> Self {
        End { reason, addr: None }
    }
}

impl End {
    /// Reads any END: unknown reasons are kept, none is MISC, and a broken address is left out.
    pub fn parse(data: &[u8]) -> Self {
        let Some((reason, behind)) = data.split_first() else {
            return EndReason::MISC.into();
        };
        let reason = EndReason(*reason);
        let mut reader = Reader::new(behind);
        let addr = match behind.len() {
            _ if reason != EndReason::EXITPOLICY => None,
            4 | 8 => reader.array::<4>().ok().map(IpAddr::from),
            16 | 20 => reader.array::<16>().ok().map(IpAddr::from),
            _ => None,
        };
        End { reason, addr: addr.map(|addr| (addr, parse_ttl(reader))) }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.reason.0);
        if let (EndReason::EXITPOLICY, Some((addr, ttl_s))) = (self.reason, self.addr) {
            encode_addr(out, addr);
            out.extend_from_slice(&ttl_s.to_be_bytes());
        }
    }
}

/// Why a stream ends. Who opened the stream says nothing but [`EndReason::MISC`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndReason(pub u8);

impl EndReason {
    pub const MISC: EndReason = EndReason(1);
    pub const RESOLVEFAILED: EndReason = EndReason(2);
    pub const CONNECTREFUSED: EndReason = EndReason(3);
    pub const EXITPOLICY: EndReason = EndReason(4);
    /// The circuit is being destroyed.
    pub const DESTROY: EndReason = EndReason(5);
    /// The TCP connection was closed in good order.
    pub const DONE: EndReason = EndReason(6);
    pub const TIMEOUT: EndReason = EndReason(7);
    pub const NOROUTE: EndReason = EndReason(8);
    pub const HIBERNATING: EndReason = EndReason(9);
    pub const INTERNAL: EndReason = EndReason(10);
    pub const RESOURCELIMIT: EndReason = EndReason(11);
    pub const CONNRESET: EndReason = EndReason(12);
    pub const TORPROTOCOL: EndReason = EndReason(13);
    /// BEGIN_DIR reached a relay that is no directory.
    pub const NOTDIRECTORY: EndReason = EndReason(14);

    fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::MISC => "MISC",
            Self::RESOLVEFAILED => "RESOLVEFAILED",
            Self::CONNECTREFUSED => "CONNECTREFUSED",
            Self::EXITPOLICY => "EXITPOLICY",
            Self::DESTROY => "DESTROY",
            Self::DONE => "DONE",
            Self::TIMEOUT => "TIMEOUT",
            Self::NOROUTE => "NOROUTE",
            Self::HIBERNATING => "HIBERNATING",
            Self::INTERNAL => "INTERNAL",
            Self::RESOURCELIMIT => "RESOURCELIMIT",
            Self::CONNRESET => "CONNRESET",
            Self::TORPROTOCOL => "TORPROTOCOL",
            Self::NOTDIRECTORY => "NOTDIRECTORY",
            _ => return None,
        })
    }
}

impl core::fmt::Debug for EndReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "reason {}", self.0),
        }
    }
}

impl core::fmt::Display for EndReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Debug::fmt(self, f)
    }
}

/// RESOLVE: look up a name or an address. No stream comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolve<'a> {
    /// The addresses of a name.
    Name(HostName<'a>),
    /// An address that needs no looking up.
    Addr(IpAddr),
    /// The name of an address, asked for below `in-addr.arpa` or `ip6.arpa`.
    Reverse(IpAddr),
}

impl<'a> Resolve<'a> {
    /// The closing NUL may be missing, as it may with stock relays. A name below `in-addr.arpa` or
    /// `ip6.arpa` that spells no address is malformed.
    pub fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        let text = ascii(data.split(|byte| *byte == 0).next().unwrap_or_default())?;
        if let Ok(addr) = text.parse() {
            return Ok(Resolve::Addr(addr));
        }
        let not_reverse = Malformed::Invalid("RESOLVE asks for the name of no address");
        if let Some(labels) = strip_zone(text, ".in-addr.arpa") {
            return parse_in_addr(labels).map(|addr| Resolve::Reverse(addr.into())).ok_or(not_reverse);
        }
        if let Some(labels) = strip_zone(text, ".ip6.arpa") {
            return parse_ip6(labels).map(|addr| Resolve::Reverse(addr.into())).ok_or(not_reverse);
        }
        HostName::new(text).map(Resolve::Name).ok_or(Malformed::Invalid("a host name is not a name"))
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Resolve::Name(name) => out.extend(name.0.bytes().map(|byte| byte.to_ascii_lowercase())),
            Resolve::Addr(addr) => append(out, format_args!("{addr}")),
            Resolve::Reverse(IpAddr::V4(addr)) => {
                let [a, b, c, d] = addr.octets();
                append(out, format_args!("{d}.{c}.{b}.{a}.in-addr.arpa"));
            }
            Resolve::Reverse(IpAddr::V6(addr)) => {
                for byte in addr.octets().iter().rev() {
                    append(out, format_args!("{:x}.{:x}.", byte & 15, byte >> 4));
                }
                out.extend_from_slice(b"ip6.arpa");
            }
        }
        out.push(0);
    }
}

/// What stands before a zone, in any case and with the root's dot or without.
fn strip_zone<'a>(name: &'a str, zone: &str) -> Option<&'a str> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let (head, tail) = name.split_at_checked(name.len().checked_sub(zone.len())?)?;
    tail.eq_ignore_ascii_case(zone).then_some(head)
}

/// Four decimal bytes, the last of the address first.
fn parse_in_addr(labels: &str) -> Option<Ipv4Addr> {
    labels.parse::<Ipv4Addr>().ok().map(|reversed| {
        let [d, c, b, a] = reversed.octets();
        Ipv4Addr::new(a, b, c, d)
    })
}

/// Thirty-two hexadecimal digits, the last of the address first.
fn parse_ip6(labels: &str) -> Option<Ipv6Addr> {
    let mut bits = 0_u128;
    let mut digits = 0;
    for label in labels.split('.') {
        let digit = char::to_digit(label.chars().next().filter(|_| label.len() == 1)?, 16)?;
        bits |= u128::from(digit).checked_shl(4 * digits)?;
        digits += 1;
    }
    (digits == 32).then_some(Ipv6Addr::from_bits(bits))
}

/// One answer to RESOLVE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A name in the bytes of DNS, at most 255.
    Name(Vec<u8>),
    Addr(IpAddr),
    /// The lookup failed, for now or for good.
    Error {
        transient: bool,
    },
    /// A kind that we don't know.
    Unknown {
        kind: u8,
        value: Vec<u8>,
    },
}

/// The text that stock relays put into an error, for nobody to read.
const ERROR_TEXT: &[u8] = b"Error resolving hostname";
/// Bytes of an answer besides its value: type, length, time to live.
const ANSWER_HEADER_LEN: usize = 6;

impl Answer {
    const NAME: u8 = 0;
    const IPV4: u8 = 4;
    const IPV6: u8 = 6;
    const ERROR_TRANSIENT: u8 = 0xF0;
    const ERROR: u8 = 0xF1;

    fn value_len(&self) -> usize {
        match self {
            Answer::Name(value) | Answer::Unknown { value, .. } => value.len(),
            Answer::Addr(IpAddr::V4(_)) => 4,
            Answer::Addr(IpAddr::V6(_)) => 16,
            Answer::Error { .. } => ERROR_TEXT.len(),
        }
    }

    fn parse(kind: u8, value: &[u8]) -> Result<Self, Malformed> {
        let wrong_len = |_| Malformed::Invalid("RESOLVED has an address of the wrong length");
        Ok(match kind {
            Self::NAME => Answer::Name(value.to_vec()),
            Self::IPV4 => Answer::Addr(IpAddr::from(<[u8; 4]>::try_from(value).map_err(wrong_len)?)),
            Self::IPV6 => Answer::Addr(IpAddr::from(<[u8; 16]>::try_from(value).map_err(wrong_len)?)),
            Self::ERROR_TRANSIENT => Answer::Error { transient: true },
            Self::ERROR => Answer::Error { transient: false },
            _ => Answer::Unknown { kind, value: value.to_vec() },
        })
    }

    fn kind(&self) -> u8 {
        match self {
            Answer::Name(_) => Self::NAME,
            Answer::Addr(IpAddr::V4(_)) => Self::IPV4,
            Answer::Addr(IpAddr::V6(_)) => Self::IPV6,
            Answer::Error { transient: true } => Self::ERROR_TRANSIENT,
            Answer::Error { transient: false } => Self::ERROR,
            Answer::Unknown { kind, .. } => *kind,
        }
    }
}

/// RESOLVED: the answers to RESOLVE, as many as fit one cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// With times to live in seconds.
    answers: Vec<(Answer, u32)>,
    len: usize,
}

impl Resolved {
    /// No answers yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The one answer that a failed lookup has.
    pub fn error(transient: bool, ttl_s: u32) -> Self {
        let mut resolved = Self::new();
        resolved.push(Answer::Error { transient }, ttl_s);
        resolved
    }

    /// Adds an answer, and says whether it went in: it has to fit the cell, a name or value has at
    /// most 255 bytes, and an error stands alone. An IPv4 address goes first when none is there
    /// ("if there are any IPv4 answers, one of those must be given as the first answer").
    pub fn push(&mut self, answer: Answer, ttl_s: u32) -> bool {
        let is_error = |answer: &Answer| matches!(answer, Answer::Error { .. });
        let alone = is_error(&answer) || self.answers.iter().any(|(earlier, _)| is_error(earlier));
        let len = self.len + ANSWER_HEADER_LEN + answer.value_len();
        if (alone && !self.answers.is_empty()) || answer.value_len() > 255 || len > DATA_LEN {
            return false;
        }
        self.len = len;
        let ipv4_first = self.answers.first().is_some_and(|(first, _)| first.kind() == Answer::IPV4);
        if answer.kind() == Answer::IPV4 && !ipv4_first {
            self.answers.insert(0, (answer, ttl_s));
        } else {
            self.answers.push((answer, ttl_s));
        }
        true
    }

    /// The answers with their times to live in seconds.
    pub fn answers(&self) -> &[(Answer, u32)] {
        &self.answers
    }

    /// Reads the data of one relay cell. Answers keep their order.
    pub fn parse(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(data);
        let mut resolved = Self::new();
        while !reader.is_empty() {
            let kind = reader.u8()?;
            let len = reader.u8()?;
            let value = reader.bytes(usize::from(len))?;
            resolved.answers.push((Answer::parse(kind, value)?, reader.u32()?));
        }
        resolved.len = data.len();
        Ok(resolved)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        for (answer, ttl_s) in &self.answers {
            out.extend_from_slice(&[answer.kind(), answer.value_len() as u8]);
            match answer {
                Answer::Name(value) | Answer::Unknown { value, .. } => out.extend_from_slice(value),
                Answer::Addr(addr) => encode_addr(out, *addr),
                Answer::Error { .. } => out.extend_from_slice(ERROR_TEXT),
            }
            out.extend_from_slice(&ttl_s.to_be_bytes());
        }
    }
}
