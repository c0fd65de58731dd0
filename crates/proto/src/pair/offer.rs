//! The offer: what an upgraded relay says in VPADDING to a peer that may be upgraded too. Its bytes are documented in
//! `docs/reference/pair.md`.

use crate::transport::TransportId;
use aws_lc_rs::digest;
use core::fmt;

/// What an offer begins with. A VPADDING body without it is padding.
const MAGIC: [u8; 8] = *b"\x89heddle\n";
/// The version that we write, and the only one that we read. A later version is for what a reader must not skip.
const VERSION: u8 = 1;
/// An offer is filled up to this length, so that its cell is as long as any fixed-length cell (514 bytes with the
/// seven of VPADDING's header).
const PADDED_LEN: usize = 507;
/// The longest offer that is read or written.
pub const OFFER_LEN_MAX: usize = 2048;
/// More transports than this are no offer.
const TRANSPORTS_MAX: usize = 16;

const FIELD_HEADER_LEN: usize = 4;
const PADDING: u16 = 0;
const KEY: u16 = 1;
const TRANSPORT: u16 = 2;
/// Bytes of a transport's field that this version knows; more may follow them.
const TRANSPORT_LEN: usize = 7;

/// What a relay offers to one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The Ed25519 public key that the relay proves on connections; never a key of Tor's.
    pub key: [u8; 32],
    /// At most 16, each number once. Those that the reader does not know are in it too.
    pub transports: Vec<OfferedTransport>,
}

/// A transport of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferedTransport {
    pub id: TransportId,
    /// The UDP port, at the address that the TLS channel is connected to. Never zero.
    pub port: u16,
    /// Flows that the reader of the offer may have open at once, of those it opens.
    pub flows_max: u32,
}

impl Offer {
    /// The body of a VPADDING cell.
    ///
    /// # Panics
    ///
    /// When there are more than 16 transports.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.transports.len() <= TRANSPORTS_MAX, "an offer names at most 16 transports");
        let mut out = Vec::with_capacity(PADDED_LEN);
        out.extend_from_slice(&MAGIC);
        out.push(VERSION);
        write_field(&mut out, KEY, &self.key);
        for transport in &self.transports {
            let mut value = [0; TRANSPORT_LEN];
            value[0] = transport.id.0;
            value[1..3].copy_from_slice(&transport.port.to_be_bytes());
            value[3..].copy_from_slice(&transport.flows_max.to_be_bytes());
            write_field(&mut out, TRANSPORT, &value);
        }
        if let Some(room) = PADDED_LEN.checked_sub(out.len() + FIELD_HEADER_LEN) {
            write_field(&mut out, PADDING, &[0; PADDED_LEN][..room]);
        }
        out
    }

    /// Reads the body of a VPADDING cell.
    pub fn parse(body: &[u8]) -> Result<Offer, OfferError> {
        let rest = body.strip_prefix(&MAGIC).ok_or(OfferError::NoOffer)?;
        let (&version, mut rest) = rest.split_first().ok_or(OfferError::Cut)?;
        if body.len() > OFFER_LEN_MAX {
            return Err(OfferError::TooLong);
        }
        if version != VERSION {
            return Err(OfferError::Version(version));
        }
        let mut key = None;
        let mut transports: Vec<OfferedTransport> = Vec::new();
        while let Some((kind, value)) = next_field(&mut rest)? {
            match kind {
                KEY => {
                    let value = value.try_into().map_err(|_| OfferError::BadField(KEY))?;
                    if key.replace(value).is_some() {
                        return Err(OfferError::Twice(KEY));
                    }
                }
                TRANSPORT => {
                    let transport = read_transport(value)?;
                    if transports.iter().any(|other| other.id == transport.id) {
                        return Err(OfferError::Twice(TRANSPORT));
                    }
                    if transports.len() == TRANSPORTS_MAX {
                        return Err(OfferError::TooLong);
                    }
                    transports.push(transport);
                }
                _ => {}
            }
        }
        Ok(Offer { key: key.ok_or(OfferError::NoKey)?, transports })
    }

    /// What the offer says of a transport.
    pub fn transport(&self, id: TransportId) -> Option<&OfferedTransport> {
        self.transports.iter().find(|transport| transport.id == id)
    }
}

/// SHA-256 of an offer's bytes as they went over the channel, padding and unknown fields included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferDigest(pub [u8; 32]);

impl OfferDigest {
    pub fn of(body: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest::digest(&digest::SHA256, body).as_ref());
        OfferDigest(bytes)
    }
}

/// Why a VPADDING body is no offer that can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferError {
    /// It does not begin like an offer: padding, which is dropped without a word.
    NoOffer,
    /// An offer of a version that is not ours.
    Version(u8),
    /// It, or its list of transports, is longer than offers are.
    TooLong,
    /// It ends within a field.
    Cut,
    /// A field of this kind has a length or a value that it cannot have.
    BadField(u16),
    /// A field of this kind came twice, or a transport did.
    Twice(u16),
    NoKey,
}

impl fmt::Display for OfferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OfferError::NoOffer => f.write_str("this is no offer"),
            OfferError::Version(version) => write!(f, "the offer has version {version}"),
            OfferError::TooLong => f.write_str("the offer is too long"),
            OfferError::Cut => f.write_str("the offer ends within a field"),
            OfferError::BadField(kind) => write!(f, "field {kind} of the offer is malformed"),
            OfferError::Twice(kind) => write!(f, "field {kind} of the offer came twice"),
            OfferError::NoKey => f.write_str("the offer names no key"),
        }
    }
}

impl core::error::Error for OfferError {}

fn write_field(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = u16::try_from(value.len()).expect("fields are a few bytes, or padding below 507");
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(value);
}

/// The next field's kind and value, or `None` at the end.
fn next_field<'a>(rest: &mut &'a [u8]) -> Result<Option<(u16, &'a [u8])>, OfferError> {
    if rest.is_empty() {
        return Ok(None);
    }
    let (header, behind) = rest.split_first_chunk::<FIELD_HEADER_LEN>().ok_or(OfferError::Cut)?;
    let [kind_high, kind_low, len_high, len_low] = *header;
    let len = usize::from(u16::from_be_bytes([len_high, len_low]));
    let (value, behind) = behind.split_at_checked(len).ok_or(OfferError::Cut)?;
    *rest = behind;
    Ok(Some((u16::from_be_bytes([kind_high, kind_low]), value)))
}

fn read_transport(value: &[u8]) -> Result<OfferedTransport, OfferError> {
    let known = value.first_chunk::<TRANSPORT_LEN>().ok_or(OfferError::BadField(TRANSPORT))?;
    let [id, port_high, port_low, flows @ ..] = *known;
    let port = u16::from_be_bytes([port_high, port_low]);
    if port == 0 {
        return Err(OfferError::BadField(TRANSPORT));
    }
    Ok(OfferedTransport { id: TransportId(id), port, flows_max: u32::from_be_bytes(flows) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn offer() -> Offer {
        let transports = vec![
            OfferedTransport { id: TransportId(1), port: 9001, flows_max: 1000 },
            OfferedTransport { id: TransportId(2), port: 0x1234, flows_max: 7 },
        ];
        Offer { key: [0xAB; 32], transports }
    }

    /// The head of `offer()`, without padding, byte by byte as docs/reference/pair.md has it.
    fn head() -> Vec<u8> {
        let key = "ab".repeat(32);
        let text =
            format!("89686564646c650a01 00010020{key} 00020007 01 2329 000003e8 00020007 02 1234 00000007");
        hex::decode(text.replace(' ', "")).expect("hex")
    }

    #[test]
    fn the_bytes_are_those_of_the_documentation() {
        let body = offer().encode();
        let (written, padding) = body.split_at(head().len());
        assert_eq!(written, head());
        assert_eq!(body.len(), 507);
        assert_eq!(padding[..2], [0, 0]);
        assert_eq!(usize::from(u16::from_be_bytes([padding[2], padding[3]])), padding.len() - 4);
        assert!(padding[4..].iter().all(|byte| *byte == 0));
        assert_eq!(Offer::parse(&body), Ok(offer()));
        assert_eq!(Offer::parse(&head()), Ok(offer()));
    }

    #[test]
    fn unknown_fields_and_longer_transports_are_skipped() {
        let mut body = head();
        write_field(&mut body, 0x7777, b"from the future");
        write_field(&mut body, 0x7777, b"twice");
        write_field(&mut body, TRANSPORT, &[200, 0, 5, 0, 0, 0, 9, 1, 2, 3]);
        let parsed = Offer::parse(&body).expect("it is an offer");
        assert_eq!(parsed.key, offer().key);
        assert_eq!(parsed.transports[..2], offer().transports);
        let unknown = OfferedTransport { id: TransportId(200), port: 5, flows_max: 9 };
        assert_eq!(parsed.transport(TransportId(200)), Some(&unknown));
        assert_eq!(parsed.transport(TransportId(3)), None);
    }

    #[test]
    fn bad_offers_are_told_apart() {
        let with = |kind, value: &[u8]| {
            let mut body = head();
            write_field(&mut body, kind, value);
            Offer::parse(&body)
        };
        assert_eq!(Offer::parse(b""), Err(OfferError::NoOffer));
        assert_eq!(Offer::parse(&[0; 507]), Err(OfferError::NoOffer));
        assert_eq!(Offer::parse(&MAGIC[..7]), Err(OfferError::NoOffer));
        assert_eq!(Offer::parse(&MAGIC), Err(OfferError::Cut));
        assert_eq!(Offer::parse(&head()[..9]), Err(OfferError::NoKey));
        let mut later = head();
        later[8] = 2;
        assert_eq!(Offer::parse(&later), Err(OfferError::Version(2)));
        assert_eq!(with(KEY, &[1; 32]), Err(OfferError::Twice(KEY)));
        assert_eq!(with(KEY, &[1; 31]), Err(OfferError::BadField(KEY)));
        assert_eq!(with(TRANSPORT, &[1, 0, 5, 0, 0, 0, 9]), Err(OfferError::Twice(TRANSPORT)));
        assert_eq!(with(TRANSPORT, &[9, 0, 0, 0, 0, 0, 9]), Err(OfferError::BadField(TRANSPORT)));
        assert_eq!(with(TRANSPORT, &[9, 0, 5, 0, 0, 0]), Err(OfferError::BadField(TRANSPORT)));
        assert_eq!(with(PADDING, &[0; 2000]), Err(OfferError::TooLong));
        let mut many = head()[..head().len() - 22].to_vec();
        for id in 0..=16 {
            write_field(&mut many, TRANSPORT, &[id, 0, 5, 0, 0, 0, 9]);
        }
        assert_eq!(Offer::parse(&many), Err(OfferError::TooLong));
    }

    #[test]
    fn every_cut_is_noticed_or_ends_with_a_field() {
        let whole = head();
        let ends = [9, 9 + 36, 9 + 36 + 11, whole.len()];
        for len in MAGIC.len()..=whole.len() {
            let cut = Offer::parse(&whole[..len]);
            assert_eq!(cut == Err(OfferError::Cut), !ends.contains(&len), "{len} bytes: {cut:?}");
        }
    }

    fn any_offer() -> impl Strategy<Value = Offer> {
        let transport = (any::<u8>(), 1..=u16::MAX, any::<u32>());
        let transports = prop::collection::btree_map(any::<u8>(), transport, 0..=TRANSPORTS_MAX);
        (any::<[u8; 32]>(), transports).prop_map(|(key, transports)| {
            let transport =
                |(id, (_, port, flows_max))| OfferedTransport { id: TransportId(id), port, flows_max };
            Offer { key, transports: transports.into_iter().map(transport).collect() }
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(offer in any_offer()) {
            let body = offer.encode();
            prop_assert_eq!(body.len(), PADDED_LEN);
            prop_assert_eq!(Offer::parse(&body), Ok(offer));
        }

        #[test]
        fn any_bytes_are_borne(mut body in prop::collection::vec(any::<u8>(), 0..2100), offer in any::<bool>()) {
            if offer && body.len() > 9 {
                body[..9].copy_from_slice(b"\x89heddle\n\x01");
            }
            if let Ok(offer) = Offer::parse(&body) {
                prop_assert_eq!(Offer::parse(&offer.encode()), Ok(offer));
            }
        }
    }
}
