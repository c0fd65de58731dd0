//! Which bytes of a payload are in clear by what is published of its format, and which of them could name something.
//!
//! Where a handshake is in clear it is not read: what passes then is not what circuits show.

use std::ops::Range;

/// The bytes of a header of TLS' records (RFC 8446, section 5.1), and the longest of a record's other part.
const RECORD_HEADER_BYTES: usize = 5;
const RECORD_BYTES_MAX: usize = (1 << 14) + 256;
/// Content types of records of TLS, and the first byte of their version.
const CONTENT_TYPES: std::ops::RangeInclusive<u8> = 20..=24;
const MAJOR: u8 = 3;
/// Bytes of QUIC's ids between two relays (`docs/reference/quic.md`, "On the wire").
const QUIC_ID_BYTES: usize = 12;
/// The first byte of QUIC's packets (RFC 9000, section 17): a long header, and a bit that is always set. Of a short
/// header all others are encrypted but the spin bit, which is drawn for each packet where it is not used (section
/// 17.4); that it says nothing of a circuit is not looked at here.
const LONG: u8 = 0x80;
const FIXED: u8 = 0x40;
const IN_CLEAR: u8 = LONG | FIXED;
/// Bytes of a session's id in front of DTLS (`docs/reference/tcp-dtls.md`, "On the wire").
const SESSION_ID_BYTES: usize = 8;
/// SPI, sequence number and initialization vector (RFC 4303, RFC 4106), and the check value behind.
const ESP_CLEAR_BYTES: usize = 16;
const SPI_BYTES: usize = 4;
const ESP_CHECK_BYTES: usize = 16;

/// What datagrams are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// Nobody knows, so all of them should look encrypted.
    #[default]
    Unknown,
    /// QUIC version 1 with ids of 12 bytes.
    Quic,
    /// The id of a session and records of DTLS 1.3.
    SessionDtls,
    /// ESP in UDP.
    Esp,
}

/// What is in clear of a payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Clear {
    /// The bytes of it, from the first on. They do not overlap.
    pub(super) ranges: Vec<Range<usize>>,
    /// What says whose the packet is.
    pub(super) id: Option<Vec<u8>>,
    /// Bits that are in clear beside that.
    pub(super) flags: Option<u8>,
    /// Whether all that is in clear is in `ranges`.
    pub(super) is_read: bool,
}

impl Format {
    /// What is in clear of a datagram's payload.
    pub(super) fn read(self, payload: &[u8]) -> Clear {
        let read = match self {
            Format::Unknown => Some(Clear { is_read: true, ..Clear::default() }),
            Format::Quic => quic(payload),
            Format::SessionDtls => session_dtls(payload),
            Format::Esp => esp(payload),
        };
        read.unwrap_or_default()
    }
}

fn quic(payload: &[u8]) -> Option<Clear> {
    let first = *payload.first()?;
    if first & LONG != 0 {
        let bytes = usize::from(*payload.get(5)?);
        let id = payload.get(6..6 + bytes)?.to_vec();
        return Some(Clear { id: Some(id), flags: Some(first & IN_CLEAR), ..Clear::default() });
    }
    let end = 1 + QUIC_ID_BYTES;
    let id = payload.get(1..end).filter(|_| first & FIXED != 0)?.to_vec();
    Some(Clear { ranges: vec![0..1, 1..end], id: Some(id), flags: Some(first & IN_CLEAR), is_read: true })
}

/// Encrypted records have the unified header of RFC 9147, section 4, of which the sequence number is encrypted.
fn session_dtls(payload: &[u8]) -> Option<Clear> {
    let id = payload.get(..SESSION_ID_BYTES)?;
    let (mut ranges, mut flags) = (Vec::new(), None);
    ranges.push(0..SESSION_ID_BYTES);
    let mut at = SESSION_ID_BYTES;
    while at < payload.len() {
        let first = payload[at];
        // Unified, and without an id of its own.
        if first & 0b1111_0000 != 0b0010_0000 {
            return None;
        }
        flags.get_or_insert(first);
        let length = at + if first & 0b1000 == 0 { 2 } else { 3 };
        ranges.push(at..at + 1);
        if first & 0b100 == 0 {
            // It goes on to the datagram's end.
            break;
        }
        let high = *payload.get(length)?;
        let low = *payload.get(length + 1)?;
        ranges.push(length..length + 2);
        at = length + 2 + usize::from(u16::from_be_bytes([high, low]));
    }
    Some(Clear { ranges, id: Some(id.to_vec()), flags, is_read: true })
}

fn esp(payload: &[u8]) -> Option<Clear> {
    let spi = payload.get(..SPI_BYTES).filter(|_| payload.len() >= ESP_CLEAR_BYTES + ESP_CHECK_BYTES)?;
    Some(Clear {
        ranges: vec![0..SPI_BYTES, SPI_BYTES..ESP_CLEAR_BYTES],
        id: Some(spi.to_vec()),
        flags: None,
        is_read: true,
    })
}

/// Where records of TLS begin in one direction of a connection over TCP.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    /// The number of the byte that comes next, once it is known where a record begins.
    next: Option<u32>,
    /// A header that is not whole yet.
    header: Vec<u8>,
    /// Bytes of the record that are still to come.
    left: usize,
}

impl Records {
    /// What is in clear of a segment; `None` where it is not known. Records are followed from the first segment on that
    /// begins with one.
    pub(super) fn read(&mut self, number: u32, payload: &[u8]) -> Option<Clear> {
        if payload.is_empty() {
            return Some(Clear { is_read: true, ..Clear::default() });
        }
        if self.next != Some(number) {
            let is_old = self.next.is_some_and(|next| (number.wrapping_sub(next) as i32) < 0);
            if is_old {
                return None;
            }
            *self = Records::default();
            record_bytes(payload.get(..RECORD_HEADER_BYTES)?)?;
        }
        let ranges = self.headers(payload);
        match &ranges {
            Some(_) => self.next = Some(number.wrapping_add(payload.len() as u32)),
            None => *self = Records::default(),
        }
        Some(Clear { ranges: ranges?, is_read: true, ..Clear::default() })
    }

    /// Where headers are in what comes next; `None` where there is none in its place.
    fn headers(&mut self, payload: &[u8]) -> Option<Vec<Range<usize>>> {
        let mut ranges = Vec::new();
        let mut at = 0;
        while at < payload.len() {
            let rest = payload.len() - at;
            let step = self.left.min(rest);
            if step > 0 {
                self.left -= step;
                at += step;
                continue;
            }
            let step = (RECORD_HEADER_BYTES - self.header.len()).min(rest);
            self.header.extend(&payload[at..at + step]);
            ranges.push(at..at + step);
            at += step;
            if self.header.len() == RECORD_HEADER_BYTES {
                self.left = record_bytes(&self.header)?;
                self.header.clear();
            }
        }
        Some(ranges)
    }
}

/// How long a record is behind its header; `None` if that is none.
fn record_bytes(header: &[u8]) -> Option<usize> {
    let [kind, MAJOR, _, high, low] = *header else { return None };
    let bytes = usize::from(u16::from_be_bytes([high, low]));
    (CONTENT_TYPES.contains(&kind) && (1..=RECORD_BYTES_MAX).contains(&bytes)).then_some(bytes)
}
