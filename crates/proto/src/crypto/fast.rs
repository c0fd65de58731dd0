//! CREATE_FAST: key agreement for a first hop that TLS already protects (tor-spec,
//! "CREATE_FAST/CREATED_FAST cells").
//!
//! ```text
//! client → relay:  X                     20 random bytes
//! relay → client:  Y | KH                20 random bytes, 20 derived ones
//! KDF-TOR(X | Y) = KH | Df | Db | Kf | Kb
//! ```

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

use super::kdf::kdf_tor;
use super::refusal::{OnionskinError, ReplyError};
use super::{CircuitKeys, concat};
use heddle_seam::rng::Rng;

const NONCE_LEN: usize = 20;
const REPLY_LEN: usize = 2 * NONCE_LEN;

/// The relay's side.
pub(super) fn answer(
    onionskin: &[u8],
    rng: &mut Rng,
) -> Result<([u8; REPLY_LEN], CircuitKeys), OnionskinError> {
    let x = onionskin.try_into().map_err(|_| OnionskinError::Length)?;
    let y: [u8; NONCE_LEN] = rng.array();
    let keys = derive(x, &y);
    let mut reply = [0; REPLY_LEN];
    reply[..NONCE_LEN].copy_from_slice(&y);
    reply[NONCE_LEN..].copy_from_slice(keys.nonce());
    Ok((reply, keys))
}

/// The client's side, waiting for the reply.
pub(super) struct Client {
    x: [u8; NONCE_LEN],
}

impl Client {
    /// The state, and the onionskin.
    pub(super) fn start(rng: &mut Rng) -> (Self, Vec<u8>) {
        let x: [u8; NONCE_LEN] = rng.array();
        (Client { x }, x.to_vec())
    }

    pub(super) fn finish(self, reply: &[u8]) -> Result<CircuitKeys, ReplyError> {
        let reply: &[u8; REPLY_LEN] = reply.try_into().map_err(|_| ReplyError::Length)?;
        let (y, kh) = reply.split_first_chunk().ok_or(ReplyError::Length)?;
        let keys = derive(&self.x, y);
        if !bool::from(keys.nonce().ct_eq(kh)) {
            return Err(ReplyError::Authentication);
        }
        Ok(keys)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.x.zeroize();
    }
}

/// KDF-TOR gives `KH` first here, while the ntor handshakes give it last.
fn derive(x: &[u8; NONCE_LEN], y: &[u8; NONCE_LEN]) -> CircuitKeys {
    let secret = concat::<{ 2 * NONCE_LEN }>(&[x, y]);
    let material = kdf_tor::<{ CircuitKeys::LEN }>(&secret[..]);
    let mut in_order = Zeroizing::new(*material);
    in_order.rotate_left(NONCE_LEN);
    CircuitKeys::from_bytes(&in_order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_seam::rng::Seed;

    #[test]
    fn vectors_of_c_tor() {
        // Client onionskin, relay reply, and KDF-TOR's output behind KH.
        let vectors = [
            (
                "080E247DF7C252FCD2DC10F459703480C223E3A6",
                "BA95C0D092335428BF80093BBED0B7A26C49E1E8696FBF9C8D6BE26504219C000D26AFE370FCEF04",
                "AFA89B4FC8CF882335A582C52478B5FCB1E08DAF707E2C2D23B8C27D30BD461F3DF98A3AF82221CB\
                 658AD0AA8680B99067E4F7DBC546970EA9A56B26433C71DA867BDD09C14A1308",
            ),
            (
                "5F786C724C2F5978474A04FA63772057AD896A03",
                "6210B037001405742FE78B6F5B34E6DB3C9F2F7E24239498613E0ED872E110A00774A3FCB37A7507",
                "D41B65D83FB4B34A322B658BE4D706EDCD8B62813757E719118C394E1F22E1C8EA8959BAB30E856A\
                 914C3054946F547397094DE031F5BCA384C65C8880BF7AAB9CE7BEE33971F9DE",
            ),
        ];
        for (x, reply, expected) in vectors {
            let client = Client { x: hex::decode(x).unwrap().try_into().unwrap() };
            let keys = client.finish(&hex::decode(reply).unwrap()).unwrap();
            let mut material = hex::decode(expected).unwrap();
            material.extend_from_slice(keys.nonce());
            assert!(keys == CircuitKeys::from_bytes(&material.try_into().unwrap()));
        }
    }

    #[test]
    fn both_sides_agree_and_a_changed_reply_fails() {
        let mut rng = Seed::from_number(4).rng();
        let (client, onionskin) = Client::start(&mut rng);
        let (mut reply, keys) = answer(&onionskin, &mut rng).unwrap();
        assert_eq!(client.finish(&reply), Ok(keys));

        let (client, onionskin) = Client::start(&mut rng);
        (reply, _) = answer(&onionskin, &mut rng).unwrap();
        reply[35] ^= 16;
        assert_eq!(client.finish(&reply).unwrap_err(), ReplyError::Authentication);
        assert_eq!(answer(&[0; 19], &mut rng).unwrap_err(), OnionskinError::Length);
    }
}
