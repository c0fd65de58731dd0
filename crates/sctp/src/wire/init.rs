//! INIT and INIT ACK (RFC 9260, sections 3.3.2 and 3.3.3).
//!
//! ```text
//!   tag (4)   window (4)   outbound streams (2)   inbound streams (2)   first TSN (4)   parameters
//! ```

use super::{Chunk, Malformed, field, half, kind, parameter, split_parameter};

const STATE_COOKIE: u16 = 7;
/// RFC 9653: the alternate method is DTLS.
const ZERO_CHECKSUM: u16 = 0x8001;
const METHOD_DTLS: u32 = 1;
/// RFC 5061, section 4.2.7.
const SUPPORTED_EXTENSIONS: u16 = 0x8008;
/// A parameter of an unknown kind without this bit ends the list (RFC 9260, section 3.2.1).
const SKIPPED: u16 = 0x8000;

/// What is said of an end in its INIT or INIT ACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Init<'a> {
    pub tag: u32,
    pub window_bytes: u32,
    pub outbound: u16,
    pub inbound: u16,
    pub tsn: u32,
    /// What it has of RFC 8260 and RFC 6525.
    pub interleaves: bool,
    pub resets: bool,
    /// It takes packets without a checksum, because the lower layer is DTLS.
    pub takes_zero_checksum: bool,
    /// In an INIT ACK.
    pub cookie: Option<&'a [u8]>,
}

/// Reads either.
///
/// # Errors
///
/// When it is cut off, or has a value that RFC 9260 forbids.
pub fn parse<'a>(chunk: &Chunk<'a>) -> Result<Init<'a>, Malformed> {
    let short = Malformed("an INIT is cut off");
    let number = |at| field(chunk.value, at).ok_or(short);
    let streams = |at| half(chunk.value, at).ok_or(short);
    let mut init = Init {
        tag: number(0)?,
        window_bytes: number(4)?,
        outbound: streams(8)?,
        inbound: streams(10)?,
        tsn: number(12)?,
        ..Init::default()
    };
    if init.tag == 0 || init.outbound == 0 || init.inbound == 0 {
        return Err(Malformed("an INIT with a zero where none may be"));
    }
    let mut rest = chunk.value.get(16..).unwrap_or(&[]);
    while let Some((parameter, value, after)) = split_parameter(rest) {
        rest = after;
        match parameter {
            STATE_COOKIE => init.cookie = Some(value),
            ZERO_CHECKSUM => init.takes_zero_checksum = field(value, 0) == Some(METHOD_DTLS),
            SUPPORTED_EXTENSIONS => {
                init.interleaves = value.contains(&kind::I_DATA);
                init.resets = value.contains(&kind::RE_CONFIG);
            }
            unknown if unknown & SKIPPED == 0 && unknown > 12 => break,
            _ => {}
        }
    }
    Ok(init)
}

/// Appends the value of either.
pub fn write(init: &Init<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&init.tag.to_be_bytes());
    out.extend_from_slice(&init.window_bytes.to_be_bytes());
    out.extend_from_slice(&init.outbound.to_be_bytes());
    out.extend_from_slice(&init.inbound.to_be_bytes());
    out.extend_from_slice(&init.tsn.to_be_bytes());
    let extensions = [(init.interleaves, kind::I_DATA), (init.resets, kind::RE_CONFIG)];
    let extensions: Vec<u8> = extensions.into_iter().filter_map(|(has, kind)| has.then_some(kind)).collect();
    if let Some(cookie) = init.cookie {
        parameter(STATE_COOKIE, cookie, out);
    }
    if init.takes_zero_checksum {
        parameter(ZERO_CHECKSUM, &METHOD_DTLS.to_be_bytes(), out);
    }
    if !extensions.is_empty() {
        parameter(SUPPORTED_EXTENSIONS, &extensions, out);
    }
}
