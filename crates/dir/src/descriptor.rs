//! The router descriptor: what a relay says about itself, signed with both its identities.
//!
//! The text is written here item by item, because authorities still demand items (the TAP onion
//! key and its cross-certificate) that no library writes any more. In order (dir-spec, section
//! 2.1.1):
//!
//! 1. `router`, and directly after it `identity-ed25519`, the certificate of the signing key;
//! 2. what the relay is: addresses, platform, protocols, times, bandwidth;
//! 3. its keys, each onion key certifying the identity in return;
//! 4. what it does: family, contact, exit policy;
//! 5. `router-sig-ed25519` over the SHA-256 of everything so far, with a prefix, and
//!    `router-signature` over the SHA-1 of everything before, by the RSA identity.

use std::fmt::{self, Write};
use std::net::{Ipv4Addr, SocketAddrV6};

use base64ct::{Base64, Base64Unpadded, Encoding};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use tor_cert::{CertType, CertifiedKey, Ed25519Cert};
use tor_llcrypto::pk::{curve25519, keymanip, rsa};

use crate::authority::is_nickname;
use crate::iso_time;
use crate::keys::{DAY_S, RelayKeys};

/// What prefixes the text that the Ed25519 key signs.
const SIGNATURE_PREFIX: &[u8] = b"Tor router descriptor signature v1";

/// The longest descriptor that authorities take, in bytes.
const DESCRIPTOR_BYTES_MAX: usize = 20_000;

/// How long the ntor key's certificate for the identity lasts.
const CROSSCERT_LIFETIME_S: u64 = 28 * DAY_S;

/// What a descriptor says, apart from the keys.
///
/// Only what the relay really does belongs in it: authorities and clients act on every word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorOptions {
    /// `Nickname`: one to nineteen letters and digits.
    pub nickname: String,
    /// The IPv4 address that others reach.
    pub ipv4: Ipv4Addr,
    /// The ORPort on it; not zero.
    pub or_port: u16,
    /// The DirPort on it; zero for none.
    pub dir_port: u16,
    /// The ORPort over IPv6.
    pub ipv6_or_address: Option<SocketAddrV6>,
    /// The software and its version. Authorities refuse old versions of what calls itself
    /// `Tor`, and take any other name.
    pub platform: String,
    /// The subprotocol versions, `Link=4-5 Relay=2-4` for instance (tor-spec, section 9).
    pub protocols: String,
    /// Since when the relay runs, in seconds before the descriptor is published.
    pub uptime_s: u64,
    /// The bandwidths, in bytes per second.
    pub bandwidth: Bandwidth,
    /// `ContactInfo`.
    pub contact: Option<String>,
    /// `MyFamily`: fingerprints with a `$`, or nicknames.
    pub family: Vec<String>,
    /// Whether the relay hibernates and wants no circuits.
    pub hibernating: bool,
    /// Whether it stores onion service descriptors.
    pub hidden_service_dir: bool,
    /// Whether it answers directory requests inside circuits (BEGIN_DIR).
    pub tunnelled_dir_server: bool,
    /// The exit policy for IPv4, line by line, `accept *:80` for instance. Empty means
    /// `reject *:*`.
    pub exit_policy: Vec<String>,
    /// The ports it exits to over IPv6, `accept 80,443` for instance.
    pub ipv6_policy: Option<String>,
}

/// What a relay offers, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// The average it will keep up; not zero.
    pub rate: u32,
    /// The most in a short time.
    pub burst: u32,
    /// What it has been seen to carry.
    pub observed: u32,
}

/// A signed descriptor, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterDescriptor {
    /// The text.
    pub text: String,
    /// When it says it was made, in seconds since 1970.
    pub published_unix_s: u64,
}

/// Why a descriptor can't be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescriptorError {
    /// This option would break the document.
    Invalid { option: &'static str, value: String },
    /// The text is longer than authorities take.
    TooLong { bytes: usize },
    /// The cryptographic library refused to sign.
    Crypto { what: &'static str },
}

impl fmt::Display for DescriptorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DescriptorError::Invalid { option, value } => {
                write!(f, "a descriptor can't say {option} {value:?}")
            }
            DescriptorError::TooLong { bytes } => write!(
                f,
                "the descriptor has {bytes} bytes and authorities take {DESCRIPTOR_BYTES_MAX}: \
                 shorten the exit policy or the family"
            ),
            DescriptorError::Crypto { what } => {
                write!(f, "{what} could not be made: this is a bug in Heddle; please report it")
            }
        }
    }
}

impl std::error::Error for DescriptorError {}

impl DescriptorOptions {
    /// Checks that every value keeps to its line and its syntax.
    pub fn validate(&self) -> Result<(), DescriptorError> {
        let invalid = |option, value: &str| DescriptorError::Invalid {
            option,
            value: value.chars().take(80).collect(),
        };
        let port = |option, port: u16| match port {
            0 => Err(invalid(option, "0")),
            _ => Ok(()),
        };
        if !is_nickname(&self.nickname) {
            return Err(invalid("Nickname", &self.nickname));
        }
        port("ORPort", self.or_port)?;
        if let Some(address) = self.ipv6_or_address {
            port("ORPort", address.port())?;
        }
        if self.bandwidth.rate == 0 {
            return Err(invalid("BandwidthRate", "0"));
        }
        let texts = [("platform", &self.platform), ("proto", &self.protocols)];
        let contact = self.contact.iter().map(|value| ("ContactInfo", value));
        let policy6 = self.ipv6_policy.iter().map(|value| ("ipv6-policy", value));
        for (option, value) in texts.into_iter().chain(contact).chain(policy6) {
            if value.is_empty() || value.contains(char::is_control) {
                return Err(invalid(option, value));
            }
        }
        for member in &self.family {
            if !is_family_member(member) {
                return Err(invalid("MyFamily", member));
            }
        }
        for line in &self.exit_policy {
            if !is_policy_line(line) {
                return Err(invalid("ExitPolicy", line));
            }
        }
        Ok(())
    }
}

/// Writes and signs the descriptor of the relay that has `keys`.
pub fn sign_descriptor(
    options: &DescriptorOptions,
    keys: &RelayKeys,
    now_unix_s: u64,
) -> Result<RouterDescriptor, DescriptorError> {
    options.validate()?;
    let mut text = String::with_capacity(4096);
    write_head(&mut text, options, keys, now_unix_s);
    write_keys(&mut text, keys, now_unix_s)?;
    write_services(&mut text, options);
    write_signatures(&mut text, keys)?;
    if text.len() > DESCRIPTOR_BYTES_MAX {
        return Err(DescriptorError::TooLong { bytes: text.len() });
    }
    Ok(RouterDescriptor { text, published_unix_s: now_unix_s })
}

/// Who and where the relay is.
fn write_head(text: &mut String, options: &DescriptorOptions, keys: &RelayKeys, now_unix_s: u64) {
    item(
        text,
        format_args!(
            "router {} {} {} 0 {}",
            options.nickname, options.ipv4, options.or_port, options.dir_port
        ),
    );
    // "It MUST appear as the first or second item."
    item(text, format_args!("identity-ed25519"));
    object(text, "ED25519 CERT", keys.signing_cert());
    let master = Base64Unpadded::encode_string(&keys.ed25519_id());
    item(text, format_args!("master-key-ed25519 {master}"));
    if let Some(address) = options.ipv6_or_address {
        item(text, format_args!("or-address [{}]:{}", address.ip(), address.port()));
    }
    item(text, format_args!("platform {}", options.platform));
    item(text, format_args!("proto {}", options.protocols));
    item(text, format_args!("published {}", iso_time::format(now_unix_s)));
    item(text, format_args!("fingerprint {}", in_fours(&keys.fingerprint())));
    item(text, format_args!("uptime {}", options.uptime_s));
    let Bandwidth { rate, burst, observed } = options.bandwidth;
    item(text, format_args!("bandwidth {rate} {burst} {observed}"));
}

/// The RSA identity and the onion keys, which certify the identities in return.
fn write_keys(text: &mut String, keys: &RelayKeys, now_unix_s: u64) -> Result<(), DescriptorError> {
    let tap = keys.tap_onion_key();
    item(text, format_args!("onion-key"));
    object(text, "RSA PUBLIC KEY", &tap.to_public_key().to_der());
    item(text, format_args!("signing-key"));
    let identity = keys.rsa_identity().to_public_key().to_der();
    object(text, "RSA PUBLIC KEY", &identity);

    // "A signature of the SHA1 digest of the RSA identity key and the Ed25519 identity key."
    let identities = [&keys.rsa_id()[..], &keys.ed25519_id()].concat();
    item(text, format_args!("onion-key-crosscert"));
    object(text, "CROSSCERT", &rsa_sign(tap, &identities)?);

    let (sign_bit, crosscert) = certify_by_ntor_key(keys, now_unix_s)?;
    item(text, format_args!("ntor-onion-key-crosscert {sign_bit}"));
    object(text, "ED25519 CERT", &crosscert);
    let ntor = Base64Unpadded::encode_string(&current_ntor_key(keys).public);
    item(text, format_args!("ntor-onion-key {ntor}"));
    Ok(())
}

/// What the relay does for others.
fn write_services(text: &mut String, options: &DescriptorOptions) {
    if !options.family.is_empty() {
        item(text, format_args!("family {}", options.family.join(" ")));
    }
    if options.hibernating {
        item(text, format_args!("hibernating 1"));
    }
    if options.hidden_service_dir {
        item(text, format_args!("hidden-service-dir"));
    }
    if let Some(contact) = &options.contact {
        item(text, format_args!("contact {contact}"));
    }
    if options.exit_policy.is_empty() {
        item(text, format_args!("reject *:*"));
    }
    for line in &options.exit_policy {
        item(text, format_args!("{line}"));
    }
    if let Some(policy) = &options.ipv6_policy {
        item(text, format_args!("ipv6-policy {policy}"));
    }
    if options.tunnelled_dir_server {
        item(text, format_args!("tunnelled-dir-server"));
    }
}

fn write_signatures(text: &mut String, keys: &RelayKeys) -> Result<(), DescriptorError> {
    // The keyword and its space are signed too, the signature and the newline are not.
    text.push_str("router-sig-ed25519 ");
    let digest = Sha256::new().chain_update(SIGNATURE_PREFIX).chain_update(text.as_bytes()).finalize();
    let signature = keys.signing_key().sign(&digest).to_bytes();
    text.push_str(&Base64Unpadded::encode_string(&signature));
    text.push('\n');

    item(text, format_args!("router-signature"));
    let signature = rsa_sign(keys.rsa_identity(), &Sha1::digest(text.as_bytes()))?;
    object(text, "SIGNATURE", &signature);
    Ok(())
}

/// The ntor key, as an Ed25519 key, signs the identity; with the sign that the conversion lost
/// (dir-spec, section 2.1.1 "ntor-onion-key-crosscert").
fn certify_by_ntor_key(keys: &RelayKeys, now_unix_s: u64) -> Result<(u8, Vec<u8>), DescriptorError> {
    let failed = || DescriptorError::Crypto { what: "the ntor onion key's certificate" };
    let secret = curve25519::StaticSecret::from(*current_ntor_key(keys).secret);
    let (signer, sign_bit) = keymanip::convert_curve25519_to_ed25519_private(&secret).ok_or_else(failed)?;
    let cert = Ed25519Cert::builder()
        .cert_type(CertType::NTOR_CC_IDENTITY)
        .cert_key(CertifiedKey::Ed25519(keys.ed25519_id().into()))
        .expiration(iso_time::to_system_time(now_unix_s + CROSSCERT_LIFETIME_S))
        .encode_and_sign(&signer)
        .map_err(|_| failed())?;
    Ok((sign_bit, cert.into()))
}

fn current_ntor_key(keys: &RelayKeys) -> crate::keys::NtorKey {
    keys.ntor_keys().swap_remove(0)
}

fn rsa_sign(key: &rsa::KeyPair, message: &[u8]) -> Result<Vec<u8>, DescriptorError> {
    key.sign(message).map_err(|_| DescriptorError::Crypto { what: "an RSA signature" })
}

fn item(text: &mut String, line: fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a string takes any text");
}

/// An object in base 64, at most 64 characters to a line.
fn object(text: &mut String, label: &str, bytes: &[u8]) {
    item(text, format_args!("-----BEGIN {label}-----"));
    for line in Base64::encode_string(bytes).as_bytes().chunks(64) {
        let line = core::str::from_utf8(line).expect("base 64 is ASCII");
        item(text, format_args!("{line}"));
    }
    item(text, format_args!("-----END {label}-----"));
}

/// A fingerprint as this document shows it: a space after every four digits.
fn in_fours(fingerprint: &str) -> String {
    let fours: Vec<&str> = fingerprint
        .as_bytes()
        .chunks(4)
        .map(|four| core::str::from_utf8(four).expect("hexadecimal digits are ASCII"))
        .collect();
    fours.join(" ")
}

/// A nickname, or `$` and 40 hexadecimal digits, maybe with `=nickname` or `~nickname` after it.
fn is_family_member(word: &str) -> bool {
    let Some(rest) = word.strip_prefix('$') else {
        return is_nickname(word);
    };
    let Some((digits, name)) = rest.split_at_checked(40) else {
        return false;
    };
    let named = name.strip_prefix(['=', '~']).map_or(name.is_empty(), is_nickname);
    named && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// `accept` or `reject` and a pattern; whether the pattern means something is for `torrc` to say.
fn is_policy_line(line: &str) -> bool {
    let Some((verb, pattern)) = line.split_once(' ') else {
        return false;
    };
    matches!(verb, "accept" | "reject")
        && pattern.contains(':')
        && pattern.bytes().all(|byte| byte.is_ascii_graphic())
}
