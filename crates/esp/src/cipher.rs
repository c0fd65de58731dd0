//! AES-128-GCM as ESP uses it (RFC 4106): the nonce is the salt and the packet's initialization vector, and what is
//! authenticated beside the ciphertext is the SPI and the whole sequence number of 64 bits (section 5).

use crate::keys::{Keys, Spi};
use crate::packet::ICV_LEN;
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

pub(crate) struct Cipher {
    key: LessSafeKey,
    salt: [u8; 4],
}

/// The bytes were not sealed with these keys, or were changed.
pub(crate) struct Forged;

impl Cipher {
    pub(crate) fn new(keys: &Keys) -> Self {
        let key = UnboundKey::new(&AES_128_GCM, &keys.key[..]).expect("AES-128 has keys of 16 bytes");
        Cipher { key: LessSafeKey::new(key), salt: keys.salt }
    }

    /// Encrypts `text` in place and returns its integrity check value.
    pub(crate) fn seal(&self, iv: &[u8; 8], aad: &[u8], text: &mut [u8]) -> [u8; ICV_LEN] {
        let tag = self.key.seal_in_place_separate_tag(self.nonce(iv), Aad::from(aad), text);
        // It refuses texts of 64 GiB and more; a packet has less.
        let tag = tag.expect("a packet is short enough for GCM");
        let mut icv = [0; ICV_LEN];
        icv.copy_from_slice(tag.as_ref());
        icv
    }

    /// Decrypts `sealed`, the ciphertext with its integrity check value, in place.
    ///
    /// # Errors
    /// If it is forged; then the bytes are of no use any more.
    pub(crate) fn open<'a>(
        &self,
        iv: &[u8; 8],
        aad: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a mut [u8], Forged> {
        self.key.open_in_place(self.nonce(iv), Aad::from(aad), sealed).map_err(|_| Forged)
    }

    fn nonce(&self, iv: &[u8; 8]) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&self.salt);
        nonce[4..].copy_from_slice(iv);
        Nonce::assume_unique_for_key(nonce)
    }
}

/// What is authenticated of a packet's place (RFC 4106, section 5).
pub(crate) fn aad(spi: Spi, sequence: u64) -> [u8; 12] {
    let mut aad = [0; 12];
    aad[..4].copy_from_slice(&spi.get().to_be_bytes());
    aad[4..].copy_from_slice(&sequence.to_be_bytes());
    aad
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Key, salt and initialization vector, associated data, text, ciphertext, integrity check value: those of
    /// draft-mcgrew-gcm-test-01, section 4, whose keys have 128 bits. Associated data of 8 bytes are of associations
    /// with sequence numbers of 32 bits; the cipher is the same.
    const VECTORS: [[&str; 6]; 9] = [
        [
            "4c80cdefbb5d10da906ac73c3613a634",
            "2e443b684956ed7e3b244cfe",
            "000043218765432100000000",
            "45000048699a000080114db7c0a80102c0a801010a9bf15638d301000001000000000000045f736970045f756470037369700963796265726369747902646b000021000101020201",
            "fecf537e729d5b07dc30df528dd22b768d1b98736696a6fd348509fa13ceac34cfa2436f14a3f3cf65925bf1f4a13c5d15b21e1884f5ff6247aeabb786b93bce61bc17d768fd9732",
            "459018148f6cbe722fd04796562dfdb4",
        ],
        [
            "feffe9928665731c6d6a8f9467308308",
            "cafebabefacedbaddecaf888",
            "0000a5f80000000a",
            "4500003e698f000080114dccc0a80102c0a801010a980035002a2343b2d001000001000000000000037369700963796265726369747902646b00000100010001",
            "deb22cd9b07c72c16e3a65beeb8df304a5a5897d33ae530f1ba76d5d114d2a5c3de81827c10e9a4f51330d0eec416642cfbb85a5b47e48a4ec3b9ba95d918bd1",
            "83b70d3aa8bc6ee4c309e9d85a41ad4a",
        ],
        [
            "00000000000000000000000000000000",
            "000000000000000000000000",
            "0000000000000001",
            "4500003c99c500008001cb7a40679318010101010800075c020044006162636465666768696a6b6c6d6e6f707172737475767761626364656667686901020201",
            "4688daf2f973a392732909c331d56d60f694abaa414b5e7ff5fdcdfff5e9a284456476492719ffb64de7d9dca1e1d894bc3bd57873ed4d181d19d4d5c8c18af3",
            "f821d496eeb096e98ad2b69e4799c71d",
        ],
        [
            "3de09874b388e6491988d0c3607eae1f",
            "57690e434e280000a2fca1a3",
            "42f67e3f1010101010101010",
            "4500003c99c300008001cb7c40679318010101010800085c020043006162636465666768696a6b6c6d6e6f707172737475767761626364656667686901020201",
            "fba2caa4853cf9f0f22cb10d86dd83b0fec75691cf1a04b00d1138ec9c35791765acbd8701ad79845bf9fe3fba487bc91755e6662b4c8d0d1f5e22739530320a",
            "e0d731cc978ecafaeae88f00e80d6e48",
        ],
        [
            "3de09874b388e6491988d0c3607eae1f",
            "57690e434e280000a2fca1a3",
            "42f67e3f1010101010101010",
            "4500001c42a200008001441f406793b6e00000020a00f5ff01020201",
            "fba2ca845e5df9f0f22c3e6e86dd831e1fc65792cd1af9130e1379ed",
            "369f071f35e034be95f112e4e7d05d35",
        ],
        [
            "abbccddef00112233445566778899aab",
            "decaf888cafedebaceface74",
            "000001000000000000000001",
            "4500004933ba00007f119106c3fb1d10c2b1d326c02831ce0035dd7b800302d500004e20001e8c18d75b81dc91baa0476b91b924b280389d92c963bac046ec959b6266c04722b14923010101",
            "18a6fd42f72cbf4ab2a2ea901f73d814e3e7f243d95412e1c349c1d2fbec168f9190feebaf2cb01984e65863965d7472b79da345e0e780191f0d2f0e0f496c226f2127b27db35724e7845d68",
            "651f57e65f354f75ff17015769623436",
        ],
        [
            "3de09874b388e6491988d0c3607eae1f",
            "57690e434e280000a2fca1a3",
            "42f67e3f1010101010101010",
            "45000049333e00007f119182c3fb1d10c2b1d326c02831ce0035cb458003025b000001e0001e8c18d65759d52284a0352c71475c8880391c764d6e5ee0496b325ae270c03899493915010101",
            "fba2cad12fc1f9f00d3cebf305410db83d7784b607323d220f24b0a97d54182800cadb0f68d99ef0e0c0c89ae9bea8884e52d65bc1afd0740f742444747b5b39ab533163aad4550ee5160975",
            "cdb608c5769189609763b8e18caa81e2",
        ],
        [
            "7d773d00c144c525ac619d18c84a3f47",
            "d966426743457e9182443bc6",
            "335467aeffffffff",
            "01020201",
            "437f866b",
            "cb3f699fe9b0822bac961c4504bef270",
        ],
        [
            "abbccddef00112233445566778899aab",
            "decaf888cafedebaceface74",
            "000001000000000000000001",
            "746f016265016f72016e6f7401746f0162650001",
            "29c9fc69a197d038ccdd14e2ddfcaa0543332164",
            "412503524303ed3c6c5f283843af8c3e",
        ],
    ];

    #[test]
    fn published_vectors_come_out() {
        for vector in VECTORS {
            let [key, nonce, aad, text, sealed, icv] = vector.map(|field| hex::decode(field).expect("hex"));
            let material = [&key[..], &nonce[..4]].concat();
            let keys = Keys::from_material(material.as_slice().try_into().expect("20 bytes"));
            let iv = nonce[4..].try_into().expect("8 bytes");
            let cipher = Cipher::new(&keys);
            let mut bytes = text.clone();
            assert_eq!(cipher.seal(iv, &aad, &mut bytes)[..], icv);
            assert_eq!(bytes, sealed);
            bytes.extend(&icv);
            let opened = cipher.open(iv, &aad, &mut bytes).map_err(|_| "forged").expect("authentic");
            assert_eq!(opened[..text.len()], text);
        }
    }
}
