//! What an association is made of.

use core::fmt;
use zeroize::Zeroizing;

/// Bytes of keying material for an association: the key of AES-128 and the salt (RFC 4106, section 8.1).
pub const KEY_MATERIAL_LEN: usize = 20;

/// The highest SPI that is not to be used: zero means no ESP at all, and the others are reserved (RFC 4303, section
/// 2.1).
const RESERVED_MAX: u32 = 255;

/// The number by which a receiver knows an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spi(u32);

impl Spi {
    /// Unless it is one of the reserved ones, 0 to 255.
    pub const fn new(number: u32) -> Option<Self> {
        if number > RESERVED_MAX { Some(Spi(number)) } else { None }
    }

    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The key and the salt of one association, for one direction. They must never serve another one, because sequence
/// numbers begin anew and would make nonces come twice.
pub struct Keys {
    pub(crate) key: Zeroizing<[u8; 16]>,
    pub(crate) salt: [u8; 4],
}

impl Keys {
    /// Of the order in which key exchanges give the bytes: the key, then the salt.
    pub fn from_material(material: &[u8; KEY_MATERIAL_LEN]) -> Self {
        let (key, salt) = material.split_at(16);
        let mut keys = Keys { key: Zeroizing::new([0; 16]), salt: [0; 4] };
        keys.key.copy_from_slice(key);
        keys.salt.copy_from_slice(salt);
        keys
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}
