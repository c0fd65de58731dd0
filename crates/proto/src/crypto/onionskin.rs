//! Circuit handshakes as the relay and the onion proxy call them.
//!
//! 1. The client makes an *onionskin* ([`ClientHandshake`]) and sends it in a CREATE2 or
//!    CREATE_FAST cell, or in an EXTEND2 message to the circuit's last relay.
//! 2. The relay [`answer`]s: a pure function, so that it may run on any thread.
//! 3. The client finishes with the reply ([`ClientHandshake::finish`]); both hold [`CircuitKeys`].

use super::extensions::{self, CC_FIELD_REQUEST, CC_FIELD_RESPONSE, Extensions, SUBPROTOCOL_REQUEST};
use super::{CircuitKeys, NtorKeypair, fast, ntor, ntor_v3};
use crate::cell::create::{CREATE2_HDATA_LEN_MAX, HTYPE_NTOR, HTYPE_NTOR_V3};
use heddle_seam::rng::Rng;

pub use super::onion_keys::OnionKeys;
pub use super::refusal::{OnionskinError, ReplyError};

/// The handshakes that are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeType {
    /// The one handshake of CREATE_FAST; it has no number in CREATE2.
    Fast,
    Ntor,
    NtorV3,
}

impl HandshakeType {
    /// The handshake that CREATE2's `HTYPE` asks for. TAP (0) is obsolete and refused, and so is
    /// every number not assigned.
    pub fn from_htype(htype: u16) -> Result<Self, OnionskinError> {
        match htype {
            HTYPE_NTOR => Ok(HandshakeType::Ntor),
            HTYPE_NTOR_V3 => Ok(HandshakeType::NtorV3),
            _ => Err(OnionskinError::Type(htype)),
        }
    }

    /// CREATE2's `HTYPE`; `None` for CREATE_FAST.
    pub fn htype(self) -> Option<u16> {
        match self {
            HandshakeType::Fast => None,
            HandshakeType::Ntor => Some(HTYPE_NTOR),
            HandshakeType::NtorV3 => Some(HTYPE_NTOR_V3),
        }
    }
}

/// What a relay says about congestion control when a client asks for it (proposal 324).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CongestionOffer {
    /// Cells that one circuit SENDME acknowledges: the consensus parameter `cc_sendme_inc`.
    pub sendme_inc: u8,
}

/// A relay's answer to an onionskin.
#[derive(Debug)]
pub struct Answer {
    /// The `HDATA` of CREATED2, or the body of CREATED_FAST; at most 505 bytes.
    pub reply: Vec<u8>,
    pub keys: CircuitKeys,
    /// Whether the client asked for congestion control and we agreed.
    pub congestion_control: bool,
}

/// Answers one onionskin: the `HDATA` of CREATE2, or the first 20 bytes of CREATE_FAST. `congestion` is what we offer
/// when the client asks for congestion control, or `None` when it is turned off.
pub fn answer(
    keys: &OnionKeys,
    handshake: HandshakeType,
    onionskin: &[u8],
    congestion: Option<CongestionOffer>,
    rng: &mut Rng,
) -> Result<Answer, OnionskinError> {
    if onionskin.len() > CREATE2_HDATA_LEN_MAX {
        return Err(OnionskinError::Length);
    }
    let plain = |(reply, keys): (Vec<u8>, CircuitKeys)| Answer { reply, keys, congestion_control: false };
    match handshake {
        HandshakeType::Fast => {
            let (reply, keys) = fast::answer(onionskin, rng)?;
            Ok(plain((reply.to_vec(), keys)))
        }
        HandshakeType::Ntor => {
            let (reply, keys) = ntor::answer(keys, onionskin, rng)?;
            Ok(plain((reply.to_vec(), keys)))
        }
        HandshakeType::NtorV3 => answer_ntor_v3(keys, onionskin, congestion, rng),
    }
}

fn answer_ntor_v3(
    keys: &OnionKeys,
    onionskin: &[u8],
    congestion: Option<CongestionOffer>,
    rng: &mut Rng,
) -> Result<Answer, OnionskinError> {
    let relay = ntor_v3::Relay::open(keys, onionskin, ntor_v3::CIRCUIT_EXTEND)?;
    let request = Extensions::decode(&relay.message).map_err(|_| OnionskinError::Extensions)?;
    // A relay must destroy the circuit when it lacks any capability on the list, or when the list
    // itself is wrong. None of the capabilities that may be requested exists here, so that every
    // list but the empty one comes to the same end.
    if request.first(SUBPROTOCOL_REQUEST).is_some_and(|list| !list.is_empty()) {
        return Err(OnionskinError::Subprotocol);
    }
    let agreed = congestion.filter(|_| request.first(CC_FIELD_REQUEST).is_some());
    let message = match agreed {
        Some(offer) => extensions::encode(Some((CC_FIELD_RESPONSE, &[offer.sendme_inc]))),
        None => extensions::encode(None),
    };
    let (reply, material) = relay.reply(&message, &NtorKeypair::generate(rng))?;
    Ok(Answer { reply, keys: material.circuit_keys(), congestion_control: agreed.is_some() })
}

/// A client's handshake between the onionskin and the reply.
pub struct ClientHandshake(State);

enum State {
    Fast(fast::Client),
    Ntor(ntor::Client),
    NtorV3 { client: ntor_v3::Client, asked_congestion_control: bool },
}

/// What a client and a relay have agreed on.
#[derive(Debug, PartialEq)]
pub struct Established {
    pub keys: CircuitKeys,
    /// The relay's offer, when we asked for congestion control and it agreed.
    pub congestion: Option<CongestionOffer>,
}

impl ClientHandshake {
    /// A handshake with the relay at the other end of our channel, and the body of CREATE_FAST.
    pub fn fast(rng: &mut Rng) -> (Self, Vec<u8>) {
        let (client, onionskin) = fast::Client::start(rng);
        (ClientHandshake(State::Fast(client)), onionskin)
    }

    /// An ntor handshake with the relay of that RSA identity and onion key, and its onionskin.
    pub fn ntor(rsa_id: &[u8; 20], onion_key: &[u8; 32], rng: &mut Rng) -> (Self, Vec<u8>) {
        let ephemeral = NtorKeypair::generate(rng);
        let (client, onionskin) = ntor::Client::start(rsa_id, onion_key, ephemeral);
        (ClientHandshake(State::Ntor(client)), onionskin)
    }

    /// An ntor-v3 handshake with the relay of that Ed25519 identity and onion key, and its
    /// onionskin. The one error is [`ReplyError::WeakPoint`], for an onion key of small order.
    pub fn ntor_v3(
        ed25519_id: &[u8; 32],
        onion_key: &[u8; 32],
        ask_congestion_control: bool,
        rng: &mut Rng,
    ) -> Result<(Self, Vec<u8>), ReplyError> {
        let request = ask_congestion_control.then_some((CC_FIELD_REQUEST, &[][..]));
        let (client, onionskin) = ntor_v3::Client::start(
            ed25519_id,
            onion_key,
            &extensions::encode(request),
            ntor_v3::CIRCUIT_EXTEND,
            NtorKeypair::generate(rng),
        )
        .ok_or(ReplyError::WeakPoint)?;
        let state = State::NtorV3 { client, asked_congestion_control: ask_congestion_control };
        Ok((ClientHandshake(state), onionskin))
    }

    /// The type to send the onionskin with.
    pub fn handshake_type(&self) -> HandshakeType {
        match self.0 {
            State::Fast(_) => HandshakeType::Fast,
            State::Ntor(_) => HandshakeType::Ntor,
            State::NtorV3 { .. } => HandshakeType::NtorV3,
        }
    }

    /// Takes the relay's reply: the `HDATA` of CREATED2 or EXTENDED2, or the 40 bytes of
    /// CREATED_FAST without the cell's padding.
    pub fn finish(self, reply: &[u8]) -> Result<Established, ReplyError> {
        let (keys, congestion) = match self.0 {
            State::Fast(client) => (client.finish(reply)?, None),
            State::Ntor(client) => (client.finish(reply)?, None),
            State::NtorV3 { client, asked_congestion_control } => {
                let (message, material) = client.finish(reply, ntor_v3::CIRCUIT_EXTEND)?;
                let congestion = congestion_response(&message)?;
                if congestion.is_some() && !asked_congestion_control {
                    return Err(ReplyError::Extensions);
                }
                (material.circuit_keys(), congestion)
            }
        };
        Ok(Established { keys, congestion })
    }
}

fn congestion_response(message: &[u8]) -> Result<Option<CongestionOffer>, ReplyError> {
    let list = Extensions::decode(message).map_err(|_| ReplyError::Extensions)?;
    match list.first(CC_FIELD_RESPONSE) {
        None => Ok(None),
        Some(&[sendme_inc]) => Ok(Some(CongestionOffer { sendme_inc })),
        Some(_) => Err(ReplyError::Extensions),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::{ProptestConfig, any, prop, prop_assert, proptest};

    use super::*;
    use heddle_seam::rng::Seed;

    const OFFER: Option<CongestionOffer> = Some(CongestionOffer { sendme_inc: 31 });

    pub(in crate::crypto) fn relay_keys(rng: &mut Rng) -> OnionKeys {
        OnionKeys {
            rsa_id: rng.array(),
            ed25519_id: rng.array(),
            ntor_current: NtorKeypair::generate(rng),
            ntor_previous: Some(NtorKeypair::generate(rng)),
        }
    }

    fn start(
        handshake: HandshakeType,
        keys: &OnionKeys,
        onion_key: &NtorKeypair,
        rng: &mut Rng,
    ) -> (ClientHandshake, Vec<u8>) {
        let (client, onionskin) = match handshake {
            HandshakeType::Fast => ClientHandshake::fast(rng),
            HandshakeType::Ntor => ClientHandshake::ntor(&keys.rsa_id, onion_key.public(), rng),
            HandshakeType::NtorV3 => {
                ClientHandshake::ntor_v3(&keys.ed25519_id, onion_key.public(), true, rng).unwrap()
            }
        };
        assert_eq!(client.handshake_type(), handshake);
        (client, onionskin)
    }

    const ALL: [HandshakeType; 3] = [HandshakeType::Fast, HandshakeType::Ntor, HandshakeType::NtorV3];

    #[test]
    fn only_ntor_and_ntor_v3_have_numbers() {
        for htype in 0..=u16::MAX {
            match HandshakeType::from_htype(htype) {
                Ok(handshake) => assert_eq!(handshake.htype(), Some(htype)),
                Err(error) => {
                    assert_eq!(error, OnionskinError::Type(htype));
                    assert!(htype != 2 && htype != 3);
                }
            }
        }
    }

    #[test]
    fn both_onion_keys_answer_and_a_third_does_not() {
        let mut rng = Seed::from_number(8).rng();
        let keys = relay_keys(&mut rng);
        let stranger = NtorKeypair::generate(&mut rng);
        for handshake in ALL {
            for onion_key in [&keys.ntor_current, keys.ntor_previous.as_ref().unwrap()] {
                let (client, onionskin) = start(handshake, &keys, onion_key, &mut rng);
                let reply = answer(&keys, handshake, &onionskin, None, &mut rng).unwrap();
                assert!(client.finish(&reply.reply).unwrap().keys == reply.keys);
            }
        }
        for handshake in [HandshakeType::Ntor, HandshakeType::NtorV3] {
            let (_, onionskin) = start(handshake, &keys, &stranger, &mut rng);
            let error = answer(&keys, handshake, &onionskin, None, &mut rng).unwrap_err();
            assert_eq!(error, OnionskinError::UnknownKey);
        }
    }

    #[test]
    fn congestion_control_is_on_only_when_both_want_it() {
        let mut rng = Seed::from_number(9).rng();
        let keys = relay_keys(&mut rng);
        for (ask, offer) in [(true, OFFER), (true, None), (false, OFFER), (false, None)] {
            let (client, onionskin) =
                ClientHandshake::ntor_v3(&keys.ed25519_id, keys.ntor_current.public(), ask, &mut rng)
                    .unwrap();
            let answer = answer(&keys, HandshakeType::NtorV3, &onionskin, offer, &mut rng).unwrap();
            let agreed = offer.filter(|_| ask);
            assert_eq!(answer.congestion_control, agreed.is_some());
            assert_eq!(client.finish(&answer.reply).unwrap().congestion, agreed);
        }
    }

    /// What the relay says to an authentic onionskin with this message inside.
    fn answer_to(message: &[u8]) -> Result<bool, OnionskinError> {
        let mut rng = Seed::from_number(10).rng();
        let keys = relay_keys(&mut rng);
        let (_, onionskin) = ntor_v3::Client::start(
            &keys.ed25519_id,
            keys.ntor_current.public(),
            message,
            ntor_v3::CIRCUIT_EXTEND,
            NtorKeypair::generate(&mut rng),
        )
        .unwrap();
        let answer = answer(&keys, HandshakeType::NtorV3, &onionskin, OFFER, &mut rng)?;
        assert!(answer.reply.len() <= CREATE2_HDATA_LEN_MAX);
        Ok(answer.congestion_control)
    }

    #[test]
    fn extensions_are_handled_as_specified() {
        use OnionskinError::{Extensions, Subprotocol};
        let table: [(&[u8], Result<bool, OnionskinError>); 15] = [
            (&[0], Ok(false)),
            (&[1, 1, 0], Ok(true)),
            // C Tor reads the type of a congestion control request and nothing else.
            (&[1, 1, 1, 9], Ok(true)),
            // Unknown ones, and those that only relays send, are ignored.
            (&[1, 77, 3, 1, 2, 3], Ok(false)),
            (&[2, 77, 1, 0, 1, 0], Ok(true)),
            (&[1, 2, 1, 31], Ok(false)),
            // Repeated.
            (&[2, 1, 0, 1, 0], Ok(true)),
            // Subprotocol requests: empty, Relay=6, Relay=5, odd, and a second one that is ignored.
            (&[1, 3, 0], Ok(false)),
            (&[2, 1, 0, 3, 2, 2, 6], Err(Subprotocol)),
            (&[1, 3, 2, 2, 5], Err(Subprotocol)),
            (&[1, 3, 1, 2], Err(Subprotocol)),
            (&[2, 3, 0, 3, 2, 2, 6], Ok(false)),
            // Malformed.
            (&[], Err(Extensions)),
            (&[2, 1, 0], Err(Extensions)),
            (&[1, 1, 0, 0], Err(Extensions)),
        ];
        for (message, expected) in table {
            assert_eq!(answer_to(message), expected, "{message:?}");
        }
    }

    #[test]
    fn a_relay_may_not_answer_what_was_not_asked() {
        assert_eq!(congestion_response(&[0]), Ok(None));
        assert_eq!(congestion_response(&[1, 2, 1, 31]), Ok(OFFER));
        assert_eq!(congestion_response(&[1, 2, 0]), Err(ReplyError::Extensions));
        assert_eq!(congestion_response(&[]), Err(ReplyError::Extensions));

        let mut rng = Seed::from_number(11).rng();
        let keys = relay_keys(&mut rng);
        let (client, onionskin) =
            ClientHandshake::ntor_v3(&keys.ed25519_id, keys.ntor_current.public(), false, &mut rng).unwrap();
        let relay = ntor_v3::Relay::open(&keys, &onionskin, ntor_v3::CIRCUIT_EXTEND).unwrap();
        let (reply, _) = relay.reply(&[1, 2, 1, 31], &NtorKeypair::generate(&mut rng)).unwrap();
        assert_eq!(client.finish(&reply), Err(ReplyError::Extensions));
    }

    #[test]
    fn keys_of_small_order_are_refused() {
        let mut rng = Seed::from_number(12).rng();
        let keys = relay_keys(&mut rng);
        let mut onionskin = [&keys.rsa_id[..], keys.ntor_current.public()].concat();
        onionskin.extend_from_slice(&[0; 32]);
        let error = answer(&keys, HandshakeType::Ntor, &onionskin, None, &mut rng).unwrap_err();
        assert_eq!(error, OnionskinError::WeakPoint);

        let mut onionskin = [&keys.ed25519_id[..], keys.ntor_current.public()].concat();
        onionskin.extend_from_slice(&[0; 32 + 1 + 32]);
        let error = answer(&keys, HandshakeType::NtorV3, &onionskin, None, &mut rng).unwrap_err();
        assert_eq!(error, OnionskinError::WeakPoint);

        let refused = ClientHandshake::ntor_v3(&keys.ed25519_id, &[0; 32], true, &mut rng);
        assert_eq!(refused.err(), Some(ReplyError::WeakPoint));
        let (client, _) = ClientHandshake::ntor(&keys.rsa_id, &[0; 32], &mut rng);
        assert_eq!(client.finish(&[9; 64]), Err(ReplyError::WeakPoint));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn clients_and_relays_agree(seed: u64, which in 0..3_usize) {
            let mut rng = Seed::from_number(seed).rng();
            let keys = relay_keys(&mut rng);
            let (client, onionskin) = start(ALL[which], &keys, &keys.ntor_current, &mut rng);
            let answer = answer(&keys, ALL[which], &onionskin, OFFER, &mut rng).unwrap();
            let established = client.finish(&answer.reply).unwrap();
            prop_assert!(established.keys == answer.keys);
        }

        #[test]
        fn changed_onionskins_fail(
            seed: u64, which in 1..3_usize, at: prop::sample::Index, xor in 1..=255_u8,
        ) {
            let mut rng = Seed::from_number(seed).rng();
            let keys = relay_keys(&mut rng);
            let (client, mut onionskin) = start(ALL[which], &keys, &keys.ntor_current, &mut rng);
            let at = at.index(onionskin.len());
            onionskin[at] ^= xor;
            // ntor does not protect the client's ephemeral key; the client finds out. X25519
            // ignores the highest bit of a key, but the transcript has it.
            match answer(&keys, ALL[which], &onionskin, OFFER, &mut rng) {
                Ok(answer) => prop_assert!(client.finish(&answer.reply).is_err()),
                Err(_) => prop_assert!(which == 2 || at < 52 || xor == 0),
            }
        }

        #[test]
        fn changed_replies_fail(
            seed: u64, which in 0..3_usize, at: prop::sample::Index, xor in 1..=255_u8,
        ) {
            let mut rng = Seed::from_number(seed).rng();
            let keys = relay_keys(&mut rng);
            let (client, onionskin) = start(ALL[which], &keys, &keys.ntor_current, &mut rng);
            let mut reply =
                answer(&keys, ALL[which], &onionskin, OFFER, &mut rng).unwrap().reply;
            let at = at.index(reply.len());
            reply[at] ^= xor;
            prop_assert!(client.finish(&reply).is_err());
        }

        #[test]
        fn cut_and_padded_messages_fail(
            seed: u64, which in 0..3_usize, cut: prop::sample::Index, extra in 1..600_usize,
        ) {
            let mut rng = Seed::from_number(seed).rng();
            let keys = relay_keys(&mut rng);
            let (_, onionskin) = start(ALL[which], &keys, &keys.ntor_current, &mut rng);
            let padded = [&onionskin[..], &vec![0; extra]].concat();
            for bad in [&onionskin[..cut.index(onionskin.len())], &padded] {
                prop_assert!(answer(&keys, ALL[which], bad, OFFER, &mut rng).is_err());
            }

            let reply = answer(&keys, ALL[which], &onionskin, OFFER, &mut rng).unwrap().reply;
            let padded = [&reply[..], &vec![0; extra]].concat();
            for bad in [&reply[..cut.index(reply.len())], &padded] {
                let mut again = Seed::from_number(seed).rng();
                let keys = relay_keys(&mut again);
                let (client, _) = start(ALL[which], &keys, &keys.ntor_current, &mut again);
                prop_assert!(client.finish(bad).is_err());
            }
        }

        #[test]
        fn noise_never_panics(
            bytes in prop::collection::vec(any::<u8>(), 0..700), which in 0..3_usize,
        ) {
            let mut rng = Seed::from_number(13).rng();
            let keys = relay_keys(&mut rng);
            let result = answer(&keys, ALL[which], &bytes, OFFER, &mut rng);
            prop_assert!(result.is_err() || (which == 0 && bytes.len() == 20));
            let (client, _) = start(ALL[which], &keys, &keys.ntor_current, &mut rng);
            prop_assert!(client.finish(&bytes).is_err());
        }

        #[test]
        fn noisy_extensions_never_panic(message in prop::collection::vec(any::<u8>(), 0..370)) {
            let _ = answer_to(&message);
        }
    }
}
