//! What a client asks the relays of its own circuit to count (MeasureMe: AlSabah and Goldberg, PCTCP, CCS 2013, section
//! 5.1). Heddle's own, in test networks.
//!
//! MEASURE has a byte of version, 1. From the first on the hop counts the circuit's cells, and answers each with
//! MEASURED, which tells what it counted since the one before, numbers big-endian:
//!
//! | bytes | |
//! |---|---|
//! | 1 | version |
//! | 4 | milliseconds in which it was counted, zero in the first answer |
//! | 36 each | the lane towards the client, and the one away from it, which is all zeros at the last hop |
//!
//! | bytes of a lane | |
//! |---|---|
//! | 16 | the name of the transport that it is on, zeros behind; `shard` where it crosses to another thread of the relay |
//! | 4 | cells that left |
//! | 8 | microseconds that they waited in all |
//! | 4 | microseconds that one waited at most |
//! | 4 | the most cells that waited at once |

use super::read::{Malformed, Reader};

const VERSION: u8 = 1;
const NAME_LEN: usize = 16;

/// The data of MEASURE.
pub const MEASURE: [u8; 1] = [VERSION];

/// Whether these are the data of MEASURE.
pub fn is_measure(data: &[u8]) -> bool {
    data.first() == Some(&VERSION)
}

/// What one lane of a circuit did at a hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneMeasured {
    name: [u8; NAME_LEN],
    pub cells: u32,
    pub waited_us: u64,
    pub waited_max_us: u32,
    pub queue_max_cells: u32,
}

impl LaneMeasured {
    /// Says on which transport it is, in the first 16 bytes of its name.
    #[must_use]
    pub fn over(mut self, transport: &str) -> Self {
        self.name.iter_mut().zip(transport.bytes()).for_each(|(to, byte)| *to = byte);
        self
    }

    /// The transport that it is on; empty where there is no lane, and where a hop says what is no name: it is printed.
    pub fn transport(&self) -> &str {
        let end = self.name.iter().position(|byte| *byte == 0).unwrap_or(NAME_LEN);
        let is_name = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
        let name = Some(&self.name[..end]).filter(|name| name.iter().all(is_name));
        name.and_then(|name| core::str::from_utf8(name).ok()).unwrap_or_default()
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(LaneMeasured {
            name: reader.array()?,
            cells: reader.u32()?,
            waited_us: reader.u64()?,
            waited_max_us: reader.u32()?,
            queue_max_cells: reader.u32()?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.name);
        out.extend_from_slice(&self.cells.to_be_bytes());
        out.extend_from_slice(&self.waited_us.to_be_bytes());
        out.extend_from_slice(&self.waited_max_us.to_be_bytes());
        out.extend_from_slice(&self.queue_max_cells.to_be_bytes());
    }
}

/// The data of MEASURED.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    pub elapsed_ms: u32,
    pub towards_client: LaneMeasured,
    pub away: LaneMeasured,
}

impl Measured {
    /// What follows is skipped.
    ///
    /// # Errors
    ///
    /// When it is another version or cut short.
    pub fn parse(data: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(data);
        if reader.u8()? != VERSION {
            return Err(Malformed::Invalid("another version of MEASURED"));
        }
        Ok(Measured {
            elapsed_ms: reader.u32()?,
            towards_client: LaneMeasured::read(&mut reader)?,
            away: LaneMeasured::read(&mut reader)?,
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.extend_from_slice(&self.elapsed_ms.to_be_bytes());
        self.towards_client.encode(out);
        self.away.encode(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lane() -> impl Strategy<Value = LaneMeasured> {
        let numbers = (any::<u32>(), any::<u64>(), any::<u32>(), any::<u32>());
        ("[a-z-]{0,20}", numbers).prop_map(|(name, (cells, waited_us, waited_max_us, queue_max_cells))| {
            let lane =
                LaneMeasured { cells, waited_us, waited_max_us, queue_max_cells, ..Default::default() };
            let named = lane.over(&name);
            assert_eq!(named.transport(), &name[..name.len().min(NAME_LEN)]);
            named
        })
    }

    #[test]
    fn what_is_no_name_is_none() {
        for text in ["tls\n12:00 forged", "\u{1b}[2J", "TLS", "tcp dtls", "é"] {
            assert_eq!(LaneMeasured::default().over(text).transport(), "", "{text:?}");
        }
        assert_eq!(LaneMeasured::default().over("tcp-dtls").transport(), "tcp-dtls");
    }

    proptest! {
        #[test]
        fn what_was_measured_comes_back(elapsed_ms: u32, towards_client in lane(), away in lane(), more: Vec<u8>) {
            let measured = Measured { elapsed_ms, towards_client, away };
            let mut bytes = Vec::new();
            measured.encode(&mut bytes);
            for len in 0..bytes.len() {
                prop_assert_eq!(Measured::parse(&bytes[..len]), Err(Malformed::Truncated));
            }
            bytes.extend(more);
            prop_assert_eq!(Measured::parse(&bytes), Ok(measured));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let measured = Measured::parse(&bytes);
            prop_assert_eq!(measured.is_ok(), bytes.len() >= 77 && bytes[0] == 1);
            prop_assert!(measured.map_or(true, |measured| measured.away.transport().len() <= NAME_LEN));
        }
    }
}
