//! `DirAuthority` lines: whom to believe, and where they listen.
//!
//! `[nickname] [flag ...] ip:port fingerprint`, with the flags `orport=`, `v3ident=`, `upload=`,
//! `download=`, `vote=`, `ipv6=`, `weight=`, `bridge` and `no-v2` (tor(1), DirAuthority).

use std::fmt;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

/// A directory authority as the configuration names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirAuthority {
    /// Its nickname, when the line has one.
    pub nickname: Option<String>,
    /// Where its DirPort listens.
    pub dir_address: SocketAddrV4,
    /// Further DirPorts, and what each is for.
    pub more_dir_addresses: Vec<(DirUse, SocketAddr)>,
    /// Its ORPort, on the same IPv4 address.
    pub or_port: Option<u16>,
    /// Its ORPort over IPv6.
    pub ipv6_or_address: Option<SocketAddrV6>,
    /// The SHA-1 of its RSA relay identity.
    pub rsa_id: [u8; 20],
    /// The SHA-1 of its voting identity key; without it, it does not sign consensuses.
    pub v3_ident: Option<[u8; 20]>,
    /// Whether it is an authority for bridges only.
    pub bridge: bool,
}

/// What a DirPort is for, if not for everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirUse {
    /// Relays post their descriptors there.
    Upload,
    /// Documents are fetched there.
    Download,
    /// Authorities vote there.
    Vote,
}

/// What is wrong with a `DirAuthority` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirAuthorityError {
    problem: &'static str,
    word: String,
}

impl fmt::Display for DirAuthorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DirAuthorityError { problem, word } = self;
        write!(f, "`{word}` is not {problem}")
    }
}

impl std::error::Error for DirAuthorityError {}

impl DirAuthority {
    /// Reads the value of a `DirAuthority` line. As in stock Tor, a flag that is not known or has no
    /// good value is a warning, while the addresses and the fingerprint must be right.
    ///
    /// ```
    /// let line = "moria1 orport=9201 v3ident=F533C81CEF0BC0267857C99B2F471ADF249FA232 \
    ///             128.31.0.39:9231 1A25 C635 8DB9 1342 AA51 720A 5038 B727 4273 2498";
    /// let mut warnings = Vec::new();
    /// let authority = heddle_dir::authority::DirAuthority::parse(line, &mut warnings).unwrap();
    /// assert_eq!(authority.or_port, Some(9201));
    /// assert!(warnings.is_empty());
    /// ```
    pub fn parse(line: &str, warnings: &mut Vec<String>) -> Result<Self, DirAuthorityError> {
        let mut words = line.split_ascii_whitespace().peekable();
        let nickname = words.next_if(|word| is_nickname(word)).map(str::to_owned);
        let mut authority = DirAuthority {
            nickname,
            dir_address: SocketAddrV4::new([0, 0, 0, 0].into(), 0),
            more_dir_addresses: Vec::new(),
            or_port: None,
            ipv6_or_address: None,
            rsa_id: [0; 20],
            v3_ident: None,
            bridge: false,
        };
        while let Some(flag) = words.next_if(|word| !word.starts_with(|c: char| c.is_ascii_digit())) {
            authority.set_flag(flag, warnings)?;
        }
        let address = words.next().unwrap_or("");
        authority.dir_address = address
            .parse()
            .ok()
            .filter(|address: &SocketAddrV4| address.port() != 0)
            .ok_or_else(|| error("an IPv4 address with a port", address))?;
        let fingerprint: String = words.collect();
        authority.rsa_id = parse_fingerprint(&fingerprint)
            .ok_or_else(|| error("a fingerprint of 40 hexadecimal digits", &fingerprint))?;
        Ok(authority)
    }

    fn set_flag(&mut self, flag: &str, warnings: &mut Vec<String>) -> Result<(), DirAuthorityError> {
        let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
        let mut ignore = |why: &str| warnings.push(format!("the flag `{flag}` {why} and is ignored"));
        match name.to_ascii_lowercase().as_str() {
            "orport" => match value.parse() {
                Ok(port) if port != 0 => self.or_port = Some(port),
                _ => ignore("has no port from 1 to 65535"),
            },
            "v3ident" => match parse_fingerprint(value) {
                Some(identity) => self.v3_ident = Some(identity),
                None => ignore("has no 40 hexadecimal digits"),
            },
            "ipv6" => {
                let address = value.parse().ok();
                self.ipv6_or_address = Some(address.ok_or_else(|| error("an [ADDRESS]:PORT", flag))?);
            }
            "bridge" => self.bridge = true,
            name @ ("upload" | "download" | "vote") => match (parse_url(value), name) {
                (Some(address), "upload") => self.more_dir_addresses.push((DirUse::Upload, address)),
                (Some(address), "download") => self.more_dir_addresses.push((DirUse::Download, address)),
                (Some(address), _) => self.more_dir_addresses.push((DirUse::Vote, address)),
                (None, _) => ignore("has no http://ADDRESS:PORT/"),
            },
            // What these say does not concern a relay, or no longer means anything.
            "weight" | "hs" | "no-hs" | "no-v2" => {}
            _ => ignore("is not known"),
        }
        Ok(())
    }

    /// Every port on which it listens, as far as the line says.
    pub fn ports(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let or_address = self.or_port.map(|port| SocketAddrV4::new(*self.dir_address.ip(), port).into());
        let ipv6_or_address = self.ipv6_or_address.map(SocketAddr::from);
        let dir_addresses =
            [self.dir_address.into()].into_iter().chain(self.more_dir_addresses.iter().map(|(_, at)| *at));
        dir_addresses.chain(or_address).chain(ipv6_or_address)
    }

    /// Where it takes descriptors.
    pub fn upload_address(&self) -> SocketAddr {
        self.address_for(DirUse::Upload)
    }

    /// Where it has documents.
    pub(crate) fn download_address(&self) -> SocketAddr {
        self.address_for(DirUse::Download)
    }

    /// The first IPv4 address that the line names for this, as in stock Tor, or the DirPort that is for everything.
    fn address_for(&self, wanted: DirUse) -> SocketAddr {
        let named = self.more_dir_addresses.iter().find(|(of, at)| *of == wanted && at.is_ipv4());
        named.map_or(self.dir_address.into(), |(_, at)| *at)
    }
}

/// One to nineteen letters and digits (dir-spec, section 2.1.1 "router").
pub fn is_nickname(word: &str) -> bool {
    (1..=19).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Reads the SHA-1 of a key as forty hexadecimal digits of either case.
pub fn parse_fingerprint(text: &str) -> Option<[u8; 20]> {
    let mut id = [0; 20];
    hex::decode_to_slice(text, &mut id).ok()?;
    Some(id)
}

/// The address and port of `http://ADDRESS:PORT` with or without a slash behind it, which is all that stock Tor takes.
fn parse_url(url: &str) -> Option<SocketAddr> {
    let address = url.strip_prefix("http://")?;
    let address: SocketAddr = address.strip_suffix('/').unwrap_or(address).parse().ok()?;
    (address.port() != 0).then_some(address)
}

fn error(problem: &'static str, word: &str) -> DirAuthorityError {
    let word = word.chars().take(80).collect();
    DirAuthorityError { problem, word }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FINGERPRINT: &str = "9695DFC35FFEB861329B9F1AB04C46397020CE31";

    /// The authority of a line without faults.
    fn parse(line: &str) -> DirAuthority {
        let mut warnings = Vec::new();
        let authority = DirAuthority::parse(line, &mut warnings).unwrap();
        assert_eq!(warnings, Vec::<String>::new());
        authority
    }

    #[test]
    fn every_part_but_address_and_fingerprint_may_be_absent() {
        let bare = parse(&format!("127.0.0.1:7000 {FINGERPRINT}"));
        assert_eq!(bare.nickname, None);
        assert_eq!(bare.dir_address.to_string(), "127.0.0.1:7000");
        assert_eq!(hex::encode_upper(bare.rsa_id), FINGERPRINT);
        assert_eq!((bare.or_port, bare.v3_ident, bare.bridge), (None, None, false));

        let line = format!(
            "test000a orport=5001 no-v2 v3ident={FINGERPRINT} ipv6=[2001:db8::1]:443 \
             upload=http://10.0.0.2:81/ vote=http://[2001:db8::2]:82 \
             weight=0.5 bridge 10.0.0.1:80 9695 DFC3 5FFE B861 329B 9F1A B04C 4639 7020 CE31"
        );
        let full = parse(&line);
        assert_eq!(full.nickname.as_deref(), Some("test000a"));
        assert_eq!(full.or_port, Some(5001));
        assert_eq!(full.v3_ident, Some(full.rsa_id));
        assert_eq!(full.ipv6_or_address, Some("[2001:db8::1]:443".parse().unwrap()));
        assert!(full.bridge);
        let ports: Vec<String> = full.ports().map(|port| port.to_string()).collect();
        let wanted = ["10.0.0.1:80", "10.0.0.2:81", "[2001:db8::2]:82", "10.0.0.1:5001", "[2001:db8::1]:443"];
        assert_eq!(ports, wanted);
        assert_eq!(bare.ports().collect::<Vec<_>>(), [bare.dir_address.into()]);
    }

    #[test]
    fn a_fault_names_the_word() {
        for (line, word) in [
            ("name ipv6=127.0.0.1:80 127.0.0.1:80 00", "ipv6=127.0.0.1:80"),
            ("name 127.0.0.1 00", "127.0.0.1"),
            ("name 127.0.0.1:0 00", "127.0.0.1:0"),
            ("name 127.0.0.1:80 00", "00"),
            ("", "``"),
        ] {
            let error = DirAuthority::parse(line, &mut Vec::new()).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn ports_for_one_use_are_taken_for_it() {
        let plain = parse(&format!("a 127.0.0.1:80 {FINGERPRINT}"));
        assert_eq!(plain.upload_address(), plain.dir_address.into());
        assert_eq!(plain.download_address(), plain.dir_address.into());
        let flags = "upload=http://[2001:db8::1]:81/ upload=http://127.0.0.2:82/ download=http://127.0.0.3:83/ \
                     vote=http://127.0.0.4:84/";
        let apart = parse(&format!("a {flags} 127.0.0.1:80 {FINGERPRINT}"));
        assert_eq!(apart.upload_address().to_string(), "127.0.0.2:82", "over IPv4");
        assert_eq!(apart.download_address().to_string(), "127.0.0.3:83");
        assert_eq!(apart.ports().count(), 5);
    }

    #[test]
    fn a_bad_flag_is_told_and_ignored() {
        let line = format!(
            "bridge orport=x v3ident=12 blubber vote=1 upload=http://1.2.3.4/x 127.0.0.1:80 {FINGERPRINT}"
        );
        let mut warnings = Vec::new();
        let authority = DirAuthority::parse(&line, &mut warnings).unwrap();
        assert_eq!(authority.nickname.as_deref(), Some("bridge"));
        assert_eq!((authority.or_port, authority.v3_ident, authority.bridge), (None, None, false));
        let told: Vec<&str> = warnings.iter().filter_map(|warning| warning.split('`').nth(1)).collect();
        assert_eq!(told, ["orport=x", "v3ident=12", "blubber", "vote=1", "upload=http://1.2.3.4/x"]);
    }

    proptest! {
        #[test]
        fn any_line_is_read_without_a_panic(line in ".{0,200}") {
            let _ = DirAuthority::parse(&line, &mut Vec::new());
        }
    }
}
