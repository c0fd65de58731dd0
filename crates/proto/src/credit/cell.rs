//! How neighbours speak of credit: a VPADDING cell of circuit 0, which stock Tor drops at any length without a word
//! (`docs/reference/pair.md`).

use super::{CreditMessage, N3, N23};
use crate::cell::{CircId, Malformed};

/// What a cell about credit begins with. A VPADDING body without it is something else.
const MAGIC: [u8; 8] = *b"\x89credit\n";
const AGREEMENT: u8 = 0;
const CIRCUIT: u8 = 1;

/// What a VPADDING cell says of credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreditCell {
    /// The sender counts what it takes of circuits that begin after this cell, by these numbers. It comes before any
    /// other cell of a channel, so that both sides know of each circuit whether it is counted.
    Agreement(N23),
    /// A word about one circuit.
    Circuit { circ_id: CircId, message: CreditMessage },
}

impl CreditCell {
    /// The most bytes that one takes.
    const LEN_MAX: usize = MAGIC.len() + 1 + 4 + CreditMessage::LEN;

    /// The body of a VPADDING cell.
    pub fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::LEN_MAX);
        out.extend_from_slice(&MAGIC);
        match self {
            CreditCell::Agreement(n23) => {
                out.push(AGREEMENT);
                out.extend_from_slice(&n23.n2_cells.to_be_bytes());
                // The side that sends needs to know the most that may be granted; what is granted is told.
                out.extend_from_slice(&n23.n3.most_cells().to_be_bytes());
            }
            CreditCell::Circuit { circ_id, message } => {
                out.push(CIRCUIT);
                out.extend_from_slice(&circ_id.get().to_be_bytes());
                out.extend_from_slice(&message.encode());
            }
        }
        out
    }

    /// Reads the body of a VPADDING cell; what follows is padding. `None` if it is about something else.
    pub fn parse(body: &[u8]) -> Option<Result<Self, Malformed>> {
        let (&kind, rest) = body.strip_prefix(&MAGIC)?.split_first()?;
        Some(match kind {
            AGREEMENT => Self::parse_agreement(rest),
            CIRCUIT => Self::parse_circuit(rest),
            _ => Err(Malformed::Invalid("a cell about credit that we don't know")),
        })
    }

    fn parse_agreement(rest: &[u8]) -> Result<Self, Malformed> {
        let (&[n2_high, n2_low, n3_high, n3_low], _) =
            rest.split_first_chunk().ok_or(Malformed::Truncated)?;
        let n2_cells = u16::from_be_bytes([n2_high, n2_low]);
        if n2_cells == 0 {
            return Err(Malformed::Invalid("credit that is never told"));
        }
        let n3 = N3::Static(u16::from_be_bytes([n3_high, n3_low]));
        Ok(CreditCell::Agreement(N23 { n2_cells, n3 }))
    }

    fn parse_circuit(rest: &[u8]) -> Result<Self, Malformed> {
        let (circ_id, rest) = rest.split_first_chunk().ok_or(Malformed::Truncated)?;
        let circ_id =
            CircId::new(u32::from_be_bytes(*circ_id)).ok_or(Malformed::Invalid("credit of no circuit"))?;
        Ok(CreditCell::Circuit { circ_id, message: CreditMessage::parse(rest)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_seam::rng::Seed;

    fn cells() -> [CreditCell; 4] {
        let circ_id = CircId::new(0x8000_0007).expect("it is not zero");
        [
            CreditCell::Agreement(N23 { n2_cells: 10, n3: N3::Static(70) }),
            CreditCell::Agreement(N23 { n2_cells: u16::MAX, n3: N3::Static(0) }),
            CreditCell::Circuit { circ_id, message: CreditMessage::Granted { cells: u64::MAX } },
            CreditCell::Circuit { circ_id, message: CreditMessage::Asked },
        ]
    }

    #[test]
    fn what_is_said_is_what_is_read_and_padding_may_follow() {
        for cell in cells() {
            let mut body = cell.encode();
            assert!(body.len() <= CreditCell::LEN_MAX);
            assert_eq!(CreditCell::parse(&body), Some(Ok(cell)));
            body.resize(507, 0xff);
            assert_eq!(CreditCell::parse(&body), Some(Ok(cell)));
        }
    }

    #[test]
    fn an_adaptive_n3_is_told_by_its_most() {
        let told = CreditCell::Agreement(N23 { n2_cells: 20, n3: N3::Adaptive }).encode();
        let heard = N23 { n2_cells: 20, n3: N3::Static(500) };
        assert_eq!(CreditCell::parse(&told), Some(Ok(CreditCell::Agreement(heard))));
    }

    #[test]
    fn other_bodies_are_somebody_elses_and_cut_ones_are_refused() {
        assert_eq!(CreditCell::parse(b""), None);
        assert_eq!(CreditCell::parse(b"\x89heddle\n\x01"), None);
        for cell in cells() {
            let body = cell.encode();
            for len in MAGIC.len() + 1..body.len() {
                assert!(matches!(CreditCell::parse(&body[..len]), Some(Err(_))), "{cell:?} cut to {len}");
            }
        }
        let with = |rest: &[u8]| CreditCell::parse(&[&MAGIC[..], rest].concat());
        assert!(matches!(with(&[AGREEMENT, 0, 0, 0, 70]), Some(Err(_))), "N2 of zero");
        assert!(matches!(with(&[CIRCUIT, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]), Some(Err(_))), "circuit 0");
        assert!(matches!(with(&[9; 40]), Some(Err(_))));
    }

    #[test]
    fn random_bodies_are_read_or_refused_and_what_is_read_is_written_alike() {
        let mut rng = Seed::from_number(23).rng();
        for _ in 0..20_000 {
            let rest: [u8; 16] = rng.array();
            let mut body = MAGIC.to_vec();
            body.push(rest[0] % 3);
            body.extend_from_slice(&rest[..usize::from(rest[1] % 16)]);
            if let Some(Ok(cell)) = CreditCell::parse(&body) {
                assert_eq!(CreditCell::parse(&cell.encode()), Some(Ok(cell)));
            }
        }
    }
}
