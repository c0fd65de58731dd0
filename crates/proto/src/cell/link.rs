//! Link messages: what two relays say about their channel (tor-spec, "Negotiating and initializing
//! connections", and padding-spec for PADDING_NEGOTIATE).
//!
//! `parse` reads the body of a cell, `encode` appends one. Bytes behind a message are ignored, as
//! specified, except in VERSIONS, which must not have any.

use core::net::{IpAddr, Ipv4Addr};

use subtle::ConstantTimeEq;

use super::read::{Malformed, Reader, write_counted};

/// VERSIONS: the link protocols that a side speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    pub list: Vec<u16>,
}

impl Versions {
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let (pairs, odd) = body.as_chunks();
        if !odd.is_empty() {
            return Err(Malformed::Invalid("VERSIONS has an odd number of bytes"));
        }
        Ok(Versions { list: pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect() })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.list.iter().flat_map(|version| version.to_be_bytes()));
    }

    /// The highest version that is also in `ours`.
    pub fn best_common(&self, ours: &[u16]) -> Option<u16> {
        ours.iter().copied().filter(|version| self.list.contains(version)).max()
    }
}

/// A certificate's type in CERTS (tor-spec, "CERTS cells").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CertType(pub u8);

impl CertType {
    /// X.509: the RSA identity, self-signed.
    pub const RSA_ID_X509: CertType = CertType(2);
    /// Ed25519: the identity signs the signing key.
    pub const IDENTITY_V_SIGNING: CertType = CertType(4);
    /// Ed25519: the signing key signs the SHA-256 of the TLS certificate.
    pub const SIGNING_V_TLS_CERT: CertType = CertType(5);
    /// Ed25519: the signing key signs the key of AUTHENTICATE type 3.
    pub const SIGNING_V_LINK_AUTH: CertType = CertType(6);
    /// The RSA identity signs the Ed25519 identity.
    pub const RSA_ID_V_IDENTITY: CertType = CertType(7);

    const fn is_known(self) -> bool {
        matches!(self.0, 1..=7)
    }
}

/// CERTS: certificates, still encoded, at most one of each known type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certs<'a> {
    /// At most 255.
    pub list: Vec<(CertType, &'a [u8])>,
}

impl<'a> Certs<'a> {
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let count = reader.u8()?;
        let mut list: Vec<(CertType, &[u8])> = Vec::new();
        for _ in 0..count {
            let cert_type = CertType(reader.u8()?);
            let cert = reader.counted()?;
            // "A CERTS cell may have no more than one certificate of each CertType."
            if cert_type.is_known() && list.iter().any(|(earlier, _)| *earlier == cert_type) {
                return Err(Malformed::Invalid("CERTS has two certificates of one type"));
            }
            list.push((cert_type, cert));
        }
        Ok(Certs { list })
    }

    /// The certificate of a type, if it is there.
    pub fn get(&self, cert_type: CertType) -> Option<&'a [u8]> {
        self.list.iter().find(|(listed, _)| *listed == cert_type).map(|(_, cert)| *cert)
    }

    /// # Panics
    ///
    /// When there are more than 255 certificates or one is longer than 65,535 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::try_from(self.list.len()).expect("CERTS holds at most 255 certificates"));
        for (cert_type, cert) in &self.list {
            out.push(cert_type.0);
            write_counted(out, cert);
        }
    }
}

/// AUTHENTICATE by Ed25519 and the TLS exporter: the method in use.
pub const AUTH_ED25519_SHA256_RFC5705: u16 = 3;
/// The TLS exporter's label for TLSSECRETS. Its context is CID, the SHA-256 of the initiator's RSA
/// identity key: tor-spec names the Ed25519 identity, but stock relays use CID.
pub const AUTH_EXPORTER_LABEL: &[u8] = b"EXPORTER FOR TOR TLS CLIENT BINDING AUTH0003";

/// AUTH_CHALLENGE: what the initiator has to answer, and how it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthChallenge {
    pub challenge: [u8; 32],
    /// For instance [`AUTH_ED25519_SHA256_RFC5705`].
    pub methods: Vec<u16>,
}

impl AuthChallenge {
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let challenge = reader.array()?;
        let count = usize::from(reader.u16()?);
        let (pairs, _) = reader.bytes(2 * count)?.as_chunks();
        let methods = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
        Ok(AuthChallenge { challenge, methods })
    }

    /// # Panics
    ///
    /// When there are more than 65,535 methods.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.challenge);
        let count = u16::try_from(self.methods.len()).expect("we offer a handful of methods");
        out.extend_from_slice(&count.to_be_bytes());
        out.extend(self.methods.iter().flat_map(|method| method.to_be_bytes()));
    }
}

/// AUTHENTICATE: the initiator's proof of its identity, by any method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authenticate<'a> {
    pub auth_type: u16,
    pub authentication: &'a [u8],
}

impl<'a> Authenticate<'a> {
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        Ok(Authenticate { auth_type: reader.u16()?, authentication: reader.counted()? })
    }

    /// # Panics
    ///
    /// When the authentication is longer than 65,535 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.auth_type.to_be_bytes());
        write_counted(out, self.authentication);
    }

    /// The parts of a proof by [`AUTH_ED25519_SHA256_RFC5705`].
    pub fn ed25519(&self) -> Result<Ed25519Auth<'a>, Malformed> {
        if self.auth_type != AUTH_ED25519_SHA256_RFC5705 {
            return Err(Malformed::Invalid("AUTHENTICATE uses a method we did not offer"));
        }
        let (signed, signature) = self.authentication.split_last_chunk().ok_or(Malformed::Truncated)?;
        if signed.len() < AUTH_SIGNED_LEN {
            return Err(Malformed::Truncated);
        }
        let fields = signed.first_chunk().ok_or(Malformed::Truncated)?;
        Ok(Ed25519Auth { fields, signed, signature })
    }
}

/// Bytes from TYPE through TLSSECRETS.
const AUTH_FIELDS_LEN: usize = 8 + 8 * 32;
/// Bytes that are signed: the fields and RAND.
pub(crate) const AUTH_SIGNED_LEN: usize = AUTH_FIELDS_LEN + 24;

/// A proof by [`AUTH_ED25519_SHA256_RFC5705`], not yet checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ed25519Auth<'a> {
    fields: &'a [u8; AUTH_FIELDS_LEN],
    /// What the signature covers, which may go on behind RAND.
    pub signed: &'a [u8],
    pub signature: &'a [u8; 64],
}

impl Ed25519Auth<'_> {
    /// Whether everything from TYPE through TLSSECRETS is what it has to be, in constant time.
    pub fn matches(&self, expected: &AuthFields) -> bool {
        self.fields.ct_eq(&expected.fields()).into()
    }
}

/// The inputs of AUTHENTICATE type 3, in the order and with the names of tor-spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthFields {
    /// CID: SHA-256 of the initiator's RSA identity key.
    pub initiator_rsa: [u8; 32],
    /// SID: SHA-256 of the responder's RSA identity key.
    pub responder_rsa: [u8; 32],
    /// CID_ED: the initiator's Ed25519 identity.
    pub initiator_ed25519: [u8; 32],
    /// SID_ED: the responder's Ed25519 identity, or zeros.
    pub responder_ed25519: [u8; 32],
    /// SLOG: SHA-256 of all that the responder sent, through AUTH_CHALLENGE.
    pub responder_log: [u8; 32],
    /// CLOG: SHA-256 of all that the initiator sent before AUTHENTICATE.
    pub initiator_log: [u8; 32],
    /// SCERT: SHA-256 of the responder's TLS certificate.
    pub responder_tls_cert: [u8; 32],
    /// TLSSECRETS: 32 bytes from the TLS exporter under [`AUTH_EXPORTER_LABEL`].
    pub tls_secrets: [u8; 32],
}

impl AuthFields {
    /// What the initiator signs, ending in the 24 random bytes of its own choice.
    pub fn signed_part(&self, rand: &[u8; 24]) -> [u8; AUTH_SIGNED_LEN] {
        let mut part = [0; AUTH_SIGNED_LEN];
        part[..AUTH_FIELDS_LEN].copy_from_slice(&self.fields());
        part[AUTH_FIELDS_LEN..].copy_from_slice(rand);
        part
    }

    fn fields(&self) -> [u8; AUTH_FIELDS_LEN] {
        let parts = [
            &self.initiator_rsa,
            &self.responder_rsa,
            &self.initiator_ed25519,
            &self.responder_ed25519,
            &self.responder_log,
            &self.initiator_log,
            &self.responder_tls_cert,
            &self.tls_secrets,
        ];
        let mut fields = [0; AUTH_FIELDS_LEN];
        let (auth_type, rest) = fields.split_at_mut(8);
        auth_type.copy_from_slice(b"AUTH0003");
        for (field, part) in rest.as_chunks_mut::<32>().0.iter_mut().zip(parts) {
            *field = *part;
        }
        fields
    }
}

/// The most addresses that fit a NETINFO cell, whatever their family.
pub(crate) const NETINFO_ADDRS_MAX: usize = 27;

/// NETINFO: what a side thinks of the time and of both addresses. None of it is to be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Netinfo {
    /// Seconds since the Unix epoch; zero from clients.
    pub timestamp_s: u32,
    /// The receiver's address as the sender sees it.
    pub other_addr: Option<IpAddr>,
    /// The sender's own addresses; only the first [`NETINFO_ADDRS_MAX`] are encoded.
    pub my_addrs: Vec<IpAddr>,
}

impl Netinfo {
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let timestamp_s = reader.u32()?;
        let other_addr = parse_addr(&mut reader)?.filter(|addr| !addr.is_unspecified());
        let count = reader.u8()?;
        let mut my_addrs = Vec::new();
        for _ in 0..count {
            my_addrs.extend(parse_addr(&mut reader)?);
        }
        Ok(Netinfo { timestamp_s, other_addr, my_addrs })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.timestamp_s.to_be_bytes());
        encode_addr(out, self.other_addr.unwrap_or(Ipv4Addr::UNSPECIFIED.into()));
        let count = self.my_addrs.len().min(NETINFO_ADDRS_MAX);
        out.push(count as u8);
        for addr in &self.my_addrs[..count] {
            encode_addr(out, *addr);
        }
    }
}

/// "If the ALEN value is wrong for the given ATYPE value, then the provided address should be
/// ignored": then, and for unknown types, there is none.
fn parse_addr(reader: &mut Reader<'_>) -> Result<Option<IpAddr>, Malformed> {
    let addr_type = reader.u8()?;
    let len = reader.u8()?;
    let value = reader.bytes(usize::from(len))?;
    Ok(match addr_type {
        4 => <[u8; 4]>::try_from(value).ok().map(IpAddr::from),
        6 => <[u8; 16]>::try_from(value).ok().map(IpAddr::from),
        _ => None,
    })
}

fn encode_addr(out: &mut Vec<u8>, addr: IpAddr) {
    match addr {
        IpAddr::V4(addr) => {
            out.extend_from_slice(&[4, 4]);
            out.extend_from_slice(&addr.octets());
        }
        IpAddr::V6(addr) => {
            out.extend_from_slice(&[6, 16]);
            out.extend_from_slice(&addr.octets());
        }
    }
}

/// PADDING_NEGOTIATE: a client asks its guard to pad the channel, or not to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaddingNegotiate {
    Stop,
    /// Bounds of the time between padding cells; zeros ask for the consensus' own.
    Start {
        low_ms: u16,
        high_ms: u16,
    },
}

impl PaddingNegotiate {
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        if reader.u8()? != 0 {
            return Err(Malformed::Invalid("PADDING_NEGOTIATE has an unknown version"));
        }
        match reader.u8()? {
            1 => Ok(PaddingNegotiate::Stop),
            2 => Ok(PaddingNegotiate::Start { low_ms: reader.u16()?, high_ms: reader.u16()? }),
            _ => Err(Malformed::Invalid("PADDING_NEGOTIATE has an unknown command")),
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        let (command, low_ms, high_ms) = match *self {
            PaddingNegotiate::Stop => (1, 0, 0),
            PaddingNegotiate::Start { low_ms, high_ms } => (2, low_ms, high_ms),
        };
        out.extend_from_slice(&[0, command]);
        out.extend_from_slice(&u16::to_be_bytes(low_ms));
        out.extend_from_slice(&u16::to_be_bytes(high_ms));
    }
}
