//! Adding hops to a circuit and dropping them (tor-spec, "EXTEND and EXTENDED cells").
//!
//! TRUNCATE has no body; TRUNCATED has that of DESTROY, a [`DestroyReason`](super::create::DestroyReason).

use core::net::{SocketAddrV4, SocketAddrV6};

use super::create::Created2;
use super::read::{Malformed, Reader, write_counted};
use super::relay::DATA_LEN;

/// The longest handshake that fits EXTENDED2, in bytes.
pub const EXTENDED2_HDATA_LEN_MAX: usize = DATA_LEN - 2;

/// EXTEND2: the client asks its last hop to make one more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extend2<'a> {
    /// In the order of the wire, unknown ones among them; at most 255.
    pub specs: Vec<LinkSpec<'a>>,
    /// The handshake type for CREATE2.
    pub htype: u16,
    /// The handshake for CREATE2, which it always fits.
    pub hdata: &'a [u8],
}

/// One way to find or to recognise the next relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkSpec<'a> {
    /// \[00\] TLS over TCP over IPv4.
    Ipv4(SocketAddrV4),
    /// \[01\] TLS over TCP over IPv6.
    Ipv6(SocketAddrV6),
    /// \[02\] SHA-1 of the RSA identity key.
    RsaId([u8; 20]),
    /// \[03\] The Ed25519 identity.
    Ed25519Id([u8; 32]),
    /// A kind that we don't know, and ignore.
    Unknown { kind: u8, value: &'a [u8] },
}

/// The relay to extend to, as far as EXTEND2 describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendTarget {
    /// At least one of the two addresses is there, and no port is zero.
    pub ipv4: Option<SocketAddrV4>,
    pub ipv6: Option<SocketAddrV6>,
    /// Not all zeros.
    pub rsa_id: [u8; 20],
    /// `None` also when it was sent as zeros.
    pub ed25519_id: Option<[u8; 32]>,
}

impl<'a> Extend2<'a> {
    pub fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(data);
        let count = reader.u8()?;
        let mut specs = Vec::new();
        for _ in 0..count {
            specs.push(LinkSpec::parse(&mut reader)?);
        }
        Ok(Extend2 { specs, htype: reader.u16()?, hdata: reader.counted()? })
    }

    /// # Panics
    ///
    /// When there are more than 255 specifiers, or lengths that their fields cannot state.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::try_from(self.specs.len()).expect("a target takes four specifiers"));
        for spec in &self.specs {
            spec.encode(out);
        }
        out.extend_from_slice(&self.htype.to_be_bytes());
        write_counted(out, self.hdata);
    }

    /// What the specifiers say together, under the rules that stock relays apply: the RSA identity
    /// and an address are required, of several addresses of one family the first counts, and two
    /// identities of one kind are an error.
    pub fn target(&self) -> Result<ExtendTarget, Malformed> {
        let (mut ipv4, mut ipv6, mut rsa_id, mut ed25519_id) = (None, None, None, None);
        for spec in &self.specs {
            match *spec {
                LinkSpec::Ipv4(addr) => ipv4 = ipv4.or(Some(addr)),
                LinkSpec::Ipv6(addr) => ipv6 = ipv6.or(Some(addr)),
                LinkSpec::RsaId(id) => set_once(&mut rsa_id, id)?,
                LinkSpec::Ed25519Id(id) => set_once(&mut ed25519_id, id)?,
                LinkSpec::Unknown { .. } => {}
            }
        }
        let ipv4 = ipv4.filter(|addr| addr.port() != 0 && !addr.ip().is_unspecified());
        let ipv6 = ipv6.filter(|addr| addr.port() != 0 && !addr.ip().is_unspecified());
        if ipv4.is_none() && ipv6.is_none() {
            return Err(Malformed::Invalid("EXTEND2 names no address"));
        }
        let rsa_id =
            rsa_id.filter(|id| *id != [0; 20]).ok_or(Malformed::Invalid("EXTEND2 names no RSA identity"))?;
        Ok(ExtendTarget { ipv4, ipv6, rsa_id, ed25519_id: ed25519_id.filter(|id| *id != [0; 32]) })
    }
}

fn set_once<T>(slot: &mut Option<T>, id: T) -> Result<(), Malformed> {
    match slot.replace(id) {
        None => Ok(()),
        Some(_) => Err(Malformed::Invalid("EXTEND2 names two identities of one kind")),
    }
}

impl ExtendTarget {
    /// The specifiers in the order that every client uses, so that they don't tell clients apart.
    pub fn specs(&self) -> Vec<LinkSpec<'static>> {
        let ipv4 = self.ipv4.map(LinkSpec::Ipv4);
        let ed25519_id = self.ed25519_id.map(LinkSpec::Ed25519Id);
        let ipv6 = self.ipv6.map(LinkSpec::Ipv6);
        [ipv4, Some(LinkSpec::RsaId(self.rsa_id)), ed25519_id, ipv6].into_iter().flatten().collect()
    }
}

impl<'a> LinkSpec<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let kind = reader.u8()?;
        let len = reader.u8()?;
        let value = reader.bytes(usize::from(len))?;
        let mut fields = Reader::new(value);
        let spec = match kind {
            0 => LinkSpec::Ipv4(SocketAddrV4::new(fields.array::<4>()?.into(), fields.u16()?)),
            1 => LinkSpec::Ipv6(SocketAddrV6::new(fields.array::<16>()?.into(), fields.u16()?, 0, 0)),
            2 => LinkSpec::RsaId(fields.array()?),
            3 => LinkSpec::Ed25519Id(fields.array()?),
            _ => return Ok(LinkSpec::Unknown { kind, value }),
        };
        if fields.is_empty() { Ok(spec) } else { Err(Malformed::Invalid("a link specifier is too long")) }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            LinkSpec::Ipv4(addr) => {
                out.extend_from_slice(&[0, 6]);
                out.extend_from_slice(&addr.ip().octets());
                out.extend_from_slice(&addr.port().to_be_bytes());
            }
            LinkSpec::Ipv6(addr) => {
                out.extend_from_slice(&[1, 18]);
                out.extend_from_slice(&addr.ip().octets());
                out.extend_from_slice(&addr.port().to_be_bytes());
            }
            LinkSpec::RsaId(id) => {
                out.extend_from_slice(&[2, 20]);
                out.extend_from_slice(id);
            }
            LinkSpec::Ed25519Id(id) => {
                out.extend_from_slice(&[3, 32]);
                out.extend_from_slice(id);
            }
            LinkSpec::Unknown { kind, value } => {
                let len = u8::try_from(value.len()).expect("a parsed specifier has at most 255 bytes");
                out.extend_from_slice(&[*kind, len]);
                out.extend_from_slice(value);
            }
        }
    }
}

/// EXTENDED2: the new hop's half of the handshake, on its way back to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended2<'a> {
    /// At most [`EXTENDED2_HDATA_LEN_MAX`] bytes.
    hdata: &'a [u8],
}

impl<'a> Extended2<'a> {
    pub fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        Self::new(Reader::new(data).counted()?)
    }

    /// What a CREATED2 from the next hop becomes. One that was longer than a relay cell is that
    /// hop's fault.
    pub fn from_created(created: &Created2<'a>) -> Result<Self, Malformed> {
        Self::new(created.hdata)
    }

    fn new(hdata: &'a [u8]) -> Result<Self, Malformed> {
        if hdata.len() > EXTENDED2_HDATA_LEN_MAX {
            return Err(Malformed::Invalid("a handshake does not fit EXTENDED2"));
        }
        Ok(Extended2 { hdata })
    }

    /// The handshake.
    pub fn hdata(&self) -> &'a [u8] {
        self.hdata
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        write_counted(out, self.hdata);
    }
}
