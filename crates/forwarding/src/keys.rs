//! What the client tells each hop before datagrams go, and what the hop answers.
//!
//! Both are the data of relay cells. FORWARD: a byte of version, 1; the hop's [part](Part); its keys, forward and
//! backward. FORWARDED: the version and the part once more. What follows is skipped.

use core::fmt;
use zeroize::Zeroizing;

const VERSION: u8 = 1;
const KEY_LEN: usize = 16;

/// The keys that a hop shares with the client for DATAGRAM cells. They are wiped when they are dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct HopKeys(Box<Zeroizing<[[u8; KEY_LEN]; 2]>>);

impl HopKeys {
    pub fn new(forward: [u8; KEY_LEN], backward: [u8; KEY_LEN]) -> Self {
        HopKeys(Box::new(Zeroizing::new([forward, backward])))
    }

    pub(crate) fn forward(&self) -> &[u8; KEY_LEN] {
        &self.0[0]
    }

    pub(crate) fn backward(&self) -> &[u8; KEY_LEN] {
        &self.0[1]
    }
}

impl fmt::Debug for HopKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HopKeys(..)")
    }
}

/// What a hop is to do with DATAGRAM cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It takes its layer off, or puts it on, and hands them on.
    Pass = 0,
    /// It is the session's other end.
    End = 1,
}

impl Part {
    fn parse(byte: u8) -> Option<Part> {
        [Part::Pass, Part::End].into_iter().find(|part| *part as u8 == byte)
    }
}

/// FORWARD: the client wants datagrams to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    pub part: Part,
    pub keys: HopKeys,
}

impl Forward {
    /// `None` when it is another version, cut short, or asks for another part.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let (&[VERSION, part], rest) = data.split_first_chunk()? else { return None };
        let (forward, rest) = rest.split_first_chunk()?;
        let backward = rest.first_chunk()?;
        Some(Forward { part: Part::parse(part)?, keys: HopKeys::new(*forward, *backward) })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[VERSION, self.part as u8]);
        out.extend_from_slice(self.keys.forward());
        out.extend_from_slice(self.keys.backward());
    }
}

/// FORWARDED: the hop is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarded(pub Part);

impl Forwarded {
    /// `None` when it is another version or cut short.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let (&[VERSION, part], _) = data.split_first_chunk()? else { return None };
        Part::parse(part).map(Forwarded)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[VERSION, self.0 as u8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_said_is_heard(forward: [u8; KEY_LEN], backward: [u8; KEY_LEN], ends: bool, more: Vec<u8>) {
            let part = if ends { Part::End } else { Part::Pass };
            let said = Forward { part, keys: HopKeys::new(forward, backward) };
            let mut bytes = Vec::new();
            said.encode(&mut bytes);
            for len in 0..bytes.len() {
                prop_assert_eq!(Forward::parse(&bytes[..len]), None);
            }
            bytes.extend(more);
            prop_assert_eq!(Forward::parse(&bytes), Some(said));
        }

        #[test]
        fn bad_bytes_are_refused(bytes: Vec<u8>) {
            let is_good = bytes.len() >= 34 && bytes[0] == 1 && bytes[1] < 2;
            prop_assert_eq!(Forward::parse(&bytes).is_some(), is_good);
            let is_answer = bytes.len() >= 2 && bytes[0] == 1 && bytes[1] < 2;
            prop_assert_eq!(Forwarded::parse(&bytes).is_some(), is_answer);
        }
    }
}
