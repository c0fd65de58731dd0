//! SACK (RFC 9260, section 3.3.4).
//!
//! ```text
//!   TSN up to which all came (4)   window (4)   gap blocks (2)   duplicates (2)
//!   then the blocks, from (2) and to (2) beyond that TSN, and the TSNs that came twice (4)
//! ```

use super::{Chunk, Malformed, field, half};

/// Bytes of one without blocks, with the chunk's head.
pub(crate) const SACK_LEN: usize = 16;
const FIXED: usize = 12;

/// What a receiver says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sack<'a> {
    pub cumulative: u32,
    pub window_bytes: u32,
    gaps: &'a [u8],
    /// How many TSNs it names that came twice.
    pub duplicates: u16,
}

impl<'a> Sack<'a> {
    /// First and last of each block, beyond the cumulative TSN.
    pub fn gaps(&self) -> impl Iterator<Item = (u16, u16)> + use<'a> {
        self.gaps
            .chunks_exact(4)
            .map(|gap| (u16::from_be_bytes([gap[0], gap[1]]), u16::from_be_bytes([gap[2], gap[3]])))
    }
}

/// Reads one.
///
/// # Errors
///
/// When it is cut off.
pub fn parse<'a>(chunk: &Chunk<'a>) -> Result<Sack<'a>, Malformed> {
    let short = Malformed("a SACK is cut off");
    let count = |at| half(chunk.value, at).ok_or(short);
    let (gaps, duplicates) = (usize::from(count(8)?), count(10)?);
    let gaps = chunk.value.get(FIXED..FIXED + 4 * gaps).ok_or(short)?;
    let cumulative = field(chunk.value, 0).ok_or(short)?;
    let window_bytes = field(chunk.value, 4).ok_or(short)?;
    Ok(Sack { cumulative, window_bytes, gaps, duplicates })
}

/// Appends the value of one.
pub fn write(cumulative: u32, window_bytes: u32, gaps: &[(u16, u16)], duplicates: &[u32], out: &mut Vec<u8>) {
    out.extend_from_slice(&cumulative.to_be_bytes());
    out.extend_from_slice(&window_bytes.to_be_bytes());
    out.extend_from_slice(&(gaps.len() as u16).to_be_bytes());
    out.extend_from_slice(&(duplicates.len() as u16).to_be_bytes());
    for (from, to) in gaps {
        out.extend_from_slice(&from.to_be_bytes());
        out.extend_from_slice(&to.to_be_bytes());
    }
    for tsn in duplicates {
        out.extend_from_slice(&tsn.to_be_bytes());
    }
}
