//! Onionskins and the replies to them: any bytes, and honest ones that are changed on the way. The first byte says
//! which handshake and what is changed.

use heddle_proto::crypto::NtorKeypair;
use heddle_proto::crypto::onionskin::{ClientHandshake, CongestionOffer, HandshakeType, OnionKeys, answer};
use heddle_seam::rng::{Rng, Seed};

pub fn run(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let mut rng = Seed::from_number(1).rng();
    let keys = OnionKeys {
        rsa_id: rng.array(),
        ed25519_id: rng.array(),
        ntor_current: NtorKeypair::generate(&mut rng),
        ntor_previous: Some(NtorKeypair::generate(&mut rng)),
    };
    let (client, onionskin) = start(kind % 3, &keys, &mut rng);
    let handshake = client.handshake_type();
    let offer = Some(CongestionOffer { sendme_inc: 31 });
    let mut answered = |onionskin: &[u8]| answer(&keys, handshake, onionskin, offer, &mut rng);
    match kind / 3 % 3 {
        // What a stranger says, and what the relay that a circuit is extended to does.
        0 => {
            if let Ok(answer) = answered(data) {
                assert!(handshake == HandshakeType::Fast && answer.reply.len() <= 505);
            }
            assert!(client.finish(data).is_err());
        }
        // Somebody between the two changes one of them: then they do not agree, and never on different keys.
        1 => {
            let Ok(answer) = answered(&changed(&onionskin, data)) else { return };
            if let Ok(established) = client.finish(&answer.reply) {
                assert!(established.keys == answer.keys && changed(&onionskin, data) == onionskin);
            }
        }
        _ => {
            let answer = answered(&onionskin).expect("an honest onionskin is answered");
            let reply = changed(&answer.reply, data);
            assert_eq!(client.finish(&reply).is_ok(), reply == answer.reply);
        }
    }
}

fn start(kind: u8, keys: &OnionKeys, rng: &mut Rng) -> (ClientHandshake, Vec<u8>) {
    let onion_key = keys.ntor_current.public();
    match kind {
        0 => ClientHandshake::fast(rng),
        1 => ClientHandshake::ntor(&keys.rsa_id, onion_key, rng),
        _ => ClientHandshake::ntor_v3(&keys.ed25519_id, onion_key, true, rng).expect("a good key"),
    }
}

/// The bits of `data` say what is flipped of `honest`, and what is more of them follows it.
fn changed(honest: &[u8], data: &[u8]) -> Vec<u8> {
    let mut bytes = honest.to_vec();
    bytes.iter_mut().zip(data).for_each(|(byte, flip)| *byte ^= flip);
    bytes.extend(data.iter().skip(honest.len()));
    bytes
}

pub fn seeds() -> Vec<Vec<u8>> {
    let kinds = (0..9).map(|kind| vec![kind]);
    let one_bit = (3..9).map(|kind| [vec![kind], vec![0; 50], vec![1]].concat());
    kinds.chain(one_bit).collect()
}
