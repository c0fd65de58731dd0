//! Reading a packet.

use super::TcpHeader;
use super::checksum::{Sum, TCP};
use crate::segment::{Ecn, Flags, Timestamps};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A TCP segment and where it comes from and goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed<'a> {
    /// The sender's address and port.
    pub source: SocketAddr,
    /// The receiver's.
    pub destination: SocketAddr,
    /// The mark that the packet carries.
    pub ecn: Ecn,
    /// The header.
    pub tcp: TcpHeader,
    /// The payload.
    pub payload: &'a [u8],
}

/// Why a packet is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketError {
    /// It is shorter than it says.
    Truncated,
    /// A length or a version that cannot be.
    Malformed,
    /// It is a fragment.
    Fragment,
    /// It does not carry TCP, or not directly.
    NotTcp,
    /// A checksum is wrong.
    Checksum,
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PacketError::Truncated => "the packet is shorter than it says",
            PacketError::Malformed => "a length or a version cannot be",
            PacketError::Fragment => "the packet is a fragment",
            PacketError::NotTcp => "the packet does not carry TCP",
            PacketError::Checksum => "a checksum is wrong",
        })
    }
}

impl std::error::Error for PacketError {}

/// Reads an IPv4 or IPv6 packet with a TCP segment.
///
/// # Errors
///
/// See [`PacketError`].
pub fn parse(packet: &[u8]) -> Result<Parsed<'_>, PacketError> {
    match packet.first().ok_or(PacketError::Truncated)? >> 4 {
        4 => parse_v4(packet),
        6 => parse_v6(packet),
        _ => Err(PacketError::Malformed),
    }
}

fn parse_v4(packet: &[u8]) -> Result<Parsed<'_>, PacketError> {
    let fixed: &[u8; 20] = packet.first_chunk().ok_or(PacketError::Truncated)?;
    let header_len = usize::from(fixed[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    if header_len < 20 || total < header_len {
        return Err(PacketError::Malformed);
    }
    let header = packet.get(..header_len).ok_or(PacketError::Truncated)?;
    let segment = packet.get(header_len..total).ok_or(PacketError::Truncated)?;
    if Sum::default().add(header).finish() != 0 {
        return Err(PacketError::Checksum);
    }
    if u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff != 0 {
        return Err(PacketError::Fragment);
    }
    if fixed[9] != TCP {
        return Err(PacketError::NotTcp);
    }
    let address =
        |at: usize| IpAddr::V4(Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]));
    parse_segment(address(12), address(16), fixed[1], segment)
}

fn parse_v6(packet: &[u8]) -> Result<Parsed<'_>, PacketError> {
    let fixed: &[u8; 40] = packet.first_chunk().ok_or(PacketError::Truncated)?;
    let length = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    let segment = packet.get(40..40 + length).ok_or(PacketError::Truncated)?;
    if fixed[6] != TCP {
        return Err(PacketError::NotTcp);
    }
    let address = |at: usize| {
        let octets: [u8; 16] = core::array::from_fn(|place| fixed[at + place]);
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    let class = fixed[0] << 4 | fixed[1] >> 4;
    parse_segment(address(8), address(24), class, segment)
}

fn parse_segment(
    source: IpAddr,
    destination: IpAddr,
    class: u8,
    segment: &[u8],
) -> Result<Parsed<'_>, PacketError> {
    let fixed: &[u8; 20] = segment.first_chunk().ok_or(PacketError::Truncated)?;
    let header_len = usize::from(fixed[12] >> 4) * 4;
    if header_len < 20 {
        return Err(PacketError::Malformed);
    }
    let options = segment.get(20..header_len).ok_or(PacketError::Truncated)?;
    if Sum::default().add_pseudo(source, destination, TCP, segment.len()).add(segment).finish() != 0 {
        return Err(PacketError::Checksum);
    }
    let word = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    let bits = fixed[13];
    let bit = |place: u8| bits >> place & 1 != 0;
    let mut tcp = TcpHeader {
        seq: word(4),
        ack: bit(4).then(|| word(8)),
        flags: Flags { fin: bit(0), syn: bit(1), rst: bit(2), psh: bit(3), ece: bit(6), cwr: bit(7) },
        window: u16::from_be_bytes([fixed[14], fixed[15]]),
        ..TcpHeader::default()
    };
    parse_options(options, &mut tcp);
    let ecn = match class & 3 {
        0 => Ecn::NotEct,
        3 => Ecn::Ce,
        _ => Ecn::Ect,
    };
    let port = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    Ok(Parsed {
        source: SocketAddr::new(source, port(0)),
        destination: SocketAddr::new(destination, port(2)),
        ecn,
        tcp,
        payload: &segment[header_len..],
    })
}

/// Reads what is known and well formed; the rest is skipped, as RFC 9293, section 3.2, wants it.
fn parse_options(mut options: &[u8], tcp: &mut TcpHeader) {
    while let [kind, rest @ ..] = options {
        match kind {
            0 => return,
            1 => {
                options = rest;
                continue;
            }
            _ => {}
        }
        let Some(len) = rest.first().map(|len| usize::from(*len)).filter(|len| *len >= 2) else { return };
        let Some(body) = options.get(2..len) else { return };
        parse_option(*kind, body, tcp);
        options = &options[len..];
    }
}

fn parse_option(kind: u8, body: &[u8], tcp: &mut TcpHeader) {
    let word = |bytes: &[u8]| bytes.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
    match (kind, body.len()) {
        (2, 2) if tcp.flags.syn => tcp.syn.mss_bytes = Some(u16::from_be_bytes([body[0], body[1]])),
        (3, 1) if tcp.flags.syn => tcp.syn.window_shift = Some(body[0].min(14)),
        (4, 0) if tcp.flags.syn => tcp.syn.sack_permitted = true,
        (5, 8 | 16 | 24 | 32) => {
            tcp.sack_count = 0;
            for (slot, block) in tcp.sack.iter_mut().zip(body.chunks_exact(8)) {
                *slot = (word(&block[..4]), word(&block[4..]));
                tcp.sack_count += 1;
            }
        }
        (8, 8) => tcp.timestamps = Some(Timestamps { value: word(&body[..4]), echo: word(&body[4..]) }),
        _ => {}
    }
}
