//! The documents that a consensus leans on: the authorities' certificates, which say what keys
//! sign it, and the relays' microdescriptors (dir-spec, sections 3.1 and 3.3).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use tor_checkable::{SelfSigned, TimeBound};
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::AllowAnnotations;
use tor_netdoc::doc::authcert::{AuthCert, AuthCertKeyIds};
use tor_netdoc::doc::microdesc::MicrodescReader;
use tor_netdoc::types::policy::PortPolicy;

use crate::authority::DirAuthority;
use crate::iso_time;

/// The longest list of certificates that is read, in bytes.
pub(crate) const CERTS_BYTES_MAX: usize = 1 << 20;

/// The longest microdescriptor that is kept, in bytes. They have some hundreds, or some
/// thousands with a large family.
const MICRODESC_BYTES_MAX: usize = 64 << 10;

/// How many certificates of one authority are kept, the newest: at a change of keys there are two.
const CERTS_OF_ONE_MAX: usize = 4;

/// How long after a newer certificate was published one still counts, as in stock Tor: a consensus from before may be
/// signed by its key.
const SUPERSEDED: Duration = Duration::from_secs(2 * 86_400);

/// The certificates of the authorities' signing keys, verified.
#[derive(Clone, Default)]
pub struct AuthorityCerts(Vec<Cert>);

#[derive(Clone)]
struct Cert {
    parsed: AuthCert,
    text: String,
}

impl AuthorityCerts {
    /// Takes those certificates from `text` that belong to `authorities`, are well signed and
    /// hold now; others are passed over. Those that hold no longer are forgotten, and so are those that others took the
    /// place of. Returns how many were new.
    pub fn add(&mut self, text: &str, authorities: &[DirAuthority], now_unix_s: u64) -> usize {
        let now = iso_time::to_system_time(now_unix_s);
        self.0.retain(|cert| cert.parsed.expires() >= now);
        self.forget_superseded(now);
        let Ok(certs) = AuthCert::parse_multiple(text) else {
            return 0;
        };
        let mut new = 0;
        let ours = |cert: &str| {
            let fingerprint = cert.lines().find_map(|line| line.strip_prefix("fingerprint "));
            let mut identities = authorities.iter().filter_map(|authority| authority.v3_ident);
            fingerprint.is_some_and(|of| identities.any(|ident| hex::encode_upper(ident) == of.trim()))
        };
        // Whoever sends them cannot have us verify as many signatures as he likes.
        let worth_checking = authorities.len() * CERTS_OF_ONE_MAX;
        let certs = certs.flatten().filter_map(|cert| Some((cert.within(text)?.to_owned(), cert)));
        for (text, unchecked) in certs.filter(|(text, _)| ours(text)).take(worth_checking) {
            let checked = unchecked.check_signature().ok();
            let Some(parsed) = checked.and_then(|cert| cert.if_valid_at(&now).ok()) else {
                continue;
            };
            if self.wants(&parsed, authorities) {
                let (keys, published) = (parsed.key_ids(), parsed.published());
                self.0.push(Cert { parsed, text });
                self.forget_superseded(now);
                new += usize::from(self.has(keys, published));
            }
        }
        new
    }

    /// Keeps of each authority the newest certificates, and those that are not superseded yet.
    fn forget_superseded(&mut self, now: SystemTime) {
        self.0.sort_by_key(|cert| Reverse(cert.parsed.published()));
        let newer = |certs: &[Cert], of: &RsaIdentity| -> Vec<SystemTime> {
            let same = certs.iter().filter(|cert| cert.parsed.id_fingerprint() == of);
            same.map(|cert| cert.parsed.published()).collect()
        };
        for place in (0..self.0.len()).rev() {
            let published = newer(&self.0[..place], self.0[place].parsed.id_fingerprint());
            let is_superseded = published.iter().any(|newer| *newer + SUPERSEDED < now);
            if is_superseded || published.len() >= CERTS_OF_ONE_MAX {
                self.0.remove(place);
            }
        }
    }

    /// The texts of all, as stock Tor's `cached-certs` has them.
    pub fn to_text(&self) -> String {
        self.0.iter().map(|cert| cert.text.as_str()).collect()
    }

    /// The certificates of `voters`.
    pub(super) fn of(&self, voters: &[&RsaIdentity]) -> Vec<AuthCert> {
        self.0
            .iter()
            .filter(|cert| voters.contains(&cert.parsed.id_fingerprint()))
            .map(|cert| cert.parsed.clone())
            .collect()
    }

    fn wants(&self, cert: &AuthCert, authorities: &[DirAuthority]) -> bool {
        let identity = cert.id_fingerprint().to_bytes();
        let ours = authorities.iter().any(|authority| authority.v3_ident == Some(identity));
        ours && !self.has(cert.key_ids(), cert.published())
    }

    /// Whether there is a certificate of these keys that is not older.
    fn has(&self, keys: AuthCertKeyIds, published: SystemTime) -> bool {
        self.0.iter().any(|cert| cert.parsed.key_ids() == keys && cert.parsed.published() >= published)
    }
}

/// What a microdescriptor says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Microdesc {
    /// The relay's Ed25519 identity.
    pub ed25519_id: [u8; 32],
    /// Its ntor onion key.
    pub ntor_onion_key: [u8; 32],
    /// The ports that it lets out to most IPv4 addresses, first and last of each range.
    pub exit_ports: Vec<(u16, u16)>,
    text: String,
}

/// Microdescriptors by their SHA-256.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Microdescs(BTreeMap<[u8; 32], Microdesc>);

impl Microdescs {
    /// Takes those microdescriptors from `text`, with or without annotations, whose digest
    /// `wanted` wants. Malformed ones are passed over. Returns how many were taken.
    pub fn add(&mut self, text: &str, wanted: impl Fn(&[u8; 32]) -> bool) -> usize {
        let Ok(reader) = MicrodescReader::new(text, &AllowAnnotations::AnnotationsAllowed) else {
            return 0;
        };
        let mut taken = 0;
        for annotated in reader.flatten() {
            let digest = *annotated.md().digest();
            let body = annotated.within(text).unwrap_or_default();
            let fits = (1..=MICRODESC_BYTES_MAX).contains(&body.len());
            if !fits || self.0.contains_key(&digest) || !wanted(&digest) {
                continue;
            }
            let microdesc = Microdesc {
                ed25519_id: (*annotated.md().ed25519_id()).into(),
                ntor_onion_key: annotated.md().ntor_key().to_bytes(),
                exit_ports: allowed(annotated.md().ipv4_policy()),
                text: body.to_owned(),
            };
            self.0.insert(digest, microdesc);
            taken += 1;
        }
        taken
    }

    /// The microdescriptor whose SHA-256 is `digest`.
    pub fn get(&self, digest: &[u8; 32]) -> Option<&Microdesc> {
        self.0.get(digest)
    }

    /// Forgets those that `wanted` does not want.
    pub fn retain(&mut self, wanted: impl Fn(&[u8; 32]) -> bool) {
        self.0.retain(|digest, _| wanted(digest));
    }

    /// All of them as stock Tor's `cached-microdescs` has them, each with the time at which a
    /// consensus listed it last.
    pub fn to_text(&self, last_listed_unix_s: u64) -> String {
        let annotation = format!("@last-listed {}\n", iso_time::format(last_listed_unix_s));
        self.0.values().flat_map(|microdesc| [annotation.as_str(), &microdesc.text]).collect()
    }
}

/// What a policy of ports allows, which it spells as what it accepts or as what it rejects.
fn allowed(policy: &PortPolicy) -> Vec<(u16, u16)> {
    let text = policy.to_string();
    let (word, list) = text.split_once(' ').unwrap_or_default();
    let range = |item: &str| {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    let named: Vec<(u16, u16)> = list.split(',').filter_map(range).collect();
    if word == "accept" {
        return named;
    }
    let mut first = 1_u32;
    let mut others = Vec::new();
    for (from, to) in
        named.into_iter().map(|(from, to)| (u32::from(from), u32::from(to))).chain([(65_536, 65_536)])
    {
        if first < from {
            others.push((first as u16, (from - 1) as u16));
        }
        first = to + 1;
    }
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_ports_are_told_in_ranges() {
        for (policy, ranges) in [
            ("reject 1-65535", &[][..]),
            ("accept 1-65535", &[(1, 65535)]),
            ("accept 80,443-444", &[(80, 80), (443, 444)]),
            ("reject 25,119", &[(1, 24), (26, 118), (120, 65535)]),
            ("reject 1-24,65535", &[(25, 65534)]),
        ] {
            let policy: PortPolicy = policy.parse().unwrap();
            assert_eq!(allowed(&policy), ranges);
            let is_in = |port| ranges.iter().any(|(first, last)| (*first..=*last).contains(&port));
            assert!((1..=u16::MAX).all(|port| policy.allows_port(port) == is_in(port)));
        }
    }
}
