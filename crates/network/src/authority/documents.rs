//! What an authority signs: the certificate of its signing key, and consensuses of the microdesc flavour (dir-spec,
//! sections 3.1 and 3.9.2).

use base64ct::{Base64, Base64Unpadded, Encoding};
use core::fmt::Write;
use core::net::SocketAddrV4;
use heddle_dir::entropy::Entropy;
use heddle_dir::iso_time;
use heddle_seam::rng::Rng;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use tor_llcrypto::pk::rsa::KeyPair;

/// How long the certificate holds.
const CERT_S: u64 = 365 * 24 * 3600;

/// The keys of an authority, and where it is.
pub(crate) struct Signer {
    identity: KeyPair,
    signing: KeyPair,
    address: SocketAddrV4,
}

/// A relay as a consensus lists it.
#[derive(Clone)]
pub struct Entry {
    pub nickname: String,
    pub rsa_id: [u8; 20],
    pub or_port: SocketAddrV4,
    pub flags: &'static str,
    pub protocols: String,
    /// In kilobytes per second.
    pub bandwidth: u64,
    pub microdesc: String,
}

/// When a consensus holds, in seconds since 1970.
#[derive(Clone, Copy)]
pub struct Times {
    pub valid_after_unix_s: u64,
    pub fresh_until_unix_s: u64,
    pub valid_until_unix_s: u64,
}

impl Signer {
    pub fn generate(address: SocketAddrV4, rng: &mut Rng) -> Self {
        let mut key = || KeyPair::generate(&mut Entropy(rng)).expect("an RSA key can be made");
        Signer { identity: key(), signing: key(), address }
    }

    /// From now on another key signs.
    #[cfg(test)]
    pub fn change_signing_key(&mut self, rng: &mut Rng) {
        self.signing = KeyPair::generate(&mut Entropy(rng)).expect("an RSA key can be made");
    }

    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// The digest of the identity key, by which relays know whom to believe (`v3ident`).
    pub fn v3_ident(&self) -> String {
        fingerprint(&self.identity)
    }

    /// The certificate of the signing key.
    pub fn certificate(&self, now_unix_s: u64) -> String {
        let identity_der = self.identity.to_public_key().to_der();
        let mut text = format!(
            "dir-key-certificate-version 3\nfingerprint {}\ndir-key-published {}\ndir-key-expires {}\n",
            self.v3_ident(),
            iso_time::format(now_unix_s),
            iso_time::format(now_unix_s + CERT_S),
        );
        text += &format!("dir-identity-key\n{}", object("RSA PUBLIC KEY", &identity_der));
        let signing_der = self.signing.to_public_key().to_der();
        text += &format!("dir-signing-key\n{}", object("RSA PUBLIC KEY", &signing_der));
        let crossed = sign(&self.signing, &Sha1::digest(&identity_der));
        text += &format!("dir-key-crosscert\n{}dir-key-certification\n", object("ID SIGNATURE", &crossed));
        let signature = sign(&self.identity, &Sha1::digest(&text));
        text + &object("SIGNATURE", &signature)
    }

    /// A consensus of this authority alone.
    pub fn consensus(&self, times: Times, params: &BTreeMap<String, i32>, entries: &[Entry]) -> String {
        let mut text = self.preamble(times, params);
        let mut entries: Vec<&Entry> = entries.iter().collect();
        entries.sort_by_key(|entry| entry.rsa_id);
        entries.into_iter().for_each(|entry| entry.write(&mut text));
        text += "directory-footer\ndirectory-signature ";
        // The digest ends with the space after the keyword (dir-spec, section 3.4.1).
        let signature = sign(&self.signing, &Sha256::digest(&text));
        let keys = format!("sha256 {} {}\n", self.v3_ident(), fingerprint(&self.signing));
        text + &keys + &object("SIGNATURE", &signature)
    }

    fn preamble(&self, times: Times, params: &BTreeMap<String, i32>) -> String {
        let params: Vec<String> = params.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let (ip, port) = (self.address.ip(), self.address.port());
        format!(
            "network-status-version 3 microdesc\nvote-status consensus\nconsensus-method 33\n\
             valid-after {}\nfresh-until {}\nvalid-until {}\nvoting-delay 2 2\n\
             client-versions \nserver-versions \n\
             known-flags Authority Exit Fast Guard HSDir Running Stable StaleDesc V2Dir Valid\n\
             recommended-client-protocols Link=4 Microdesc=2 Relay=2\n\
             recommended-relay-protocols Link=4 Microdesc=2 Relay=2\n\
             required-client-protocols Link=4 Microdesc=2 Relay=2\n\
             required-relay-protocols Link=4 Microdesc=2 Relay=2\n\
             params {}\ndir-source authority {} {ip} {ip} {port} {port}\n\
             contact nobody@example.com\nvote-digest {}\n",
            iso_time::format(times.valid_after_unix_s),
            iso_time::format(times.fresh_until_unix_s),
            iso_time::format(times.valid_until_unix_s),
            params.join(" "),
            self.v3_ident(),
            "0".repeat(40),
        )
    }
}

impl Entry {
    /// The SHA-256 of its microdescriptor, as consensuses and requests write it.
    pub fn digest(&self) -> String {
        Base64Unpadded::encode_string(&Sha256::digest(&self.microdesc))
    }

    fn write(&self, text: &mut String) {
        let written = writeln!(
            text,
            "r {} {} 2038-01-01 00:00:00 {} {} 0\nm {}\ns {}\npr {}\nw Bandwidth={}",
            self.nickname,
            Base64Unpadded::encode_string(&self.rsa_id),
            self.or_port.ip(),
            self.or_port.port(),
            self.digest(),
            self.flags,
            self.protocols,
            self.bandwidth,
        );
        written.expect("a string takes all text");
    }
}

/// A descriptor's body between its lines, in PEM.
fn object(kind: &str, bytes: &[u8]) -> String {
    let text = Base64::encode_string(bytes);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| core::str::from_utf8(line).expect("it is ASCII")).collect();
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", lines.join("\n"))
}

fn sign(key: &KeyPair, digest: &[u8]) -> Vec<u8> {
    key.sign(digest).expect("an RSA key signs any digest")
}

fn fingerprint(key: &KeyPair) -> String {
    key.to_public_key().to_rsa_identity().as_hex_upper()
}
