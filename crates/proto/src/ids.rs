//! Who a relay is.

use core::fmt;

/// A relay's RSA identity: SHA-1 of its PKCS#1 public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RsaId(pub [u8; 20]);

/// A relay's Ed25519 identity: its master public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ed25519Id(pub [u8; 32]);

/// Both identities of a relay. A peer that proved only one of them is not a relay to us: every
/// relay of link protocol 4 and later with `LinkAuth=3` proves both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayIds {
    pub rsa: RsaId,
    pub ed25519: Ed25519Id,
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
}

impl fmt::Debug for RsaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("$")?;
        hex(&self.0, f)
    }
}

impl fmt::Display for RsaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Debug for Ed25519Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ed25519:")?;
        hex(&self.0, f)
    }
}
