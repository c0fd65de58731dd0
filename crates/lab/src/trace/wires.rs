//! Packets on wires.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use heddle_netem::pcapng::{self, Captured, Place};
use heddle_seam::time::Instant;
use heddle_sim::{HostId, WireWatch};

use super::files::Files;
use super::{TraceOptions, locked};
use crate::error::{Error, Result};

/// The protocol numbers of TCP and UDP.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Whoever hears of packets, and writes them down.
pub(super) struct Wires {
    names: Vec<String>,
    /// The wires that are wanted, where not all are; the lower host first.
    wanted: Option<BTreeSet<(HostId, HostId)>>,
    headers_only: bool,
    files: Arc<Mutex<Files>>,
    /// The file of each wire that has one.
    by_wire: BTreeMap<(HostId, HostId), usize>,
}

impl Wires {
    /// Of hosts that are called so.
    pub(super) fn new(options: &TraceOptions, names: &[String], files: Arc<Mutex<Files>>) -> Result<Wires> {
        let wanted = (!options.wires.is_empty()).then(|| wanted(&options.wires, names)).transpose()?;
        let (names, headers_only) = (names.to_vec(), options.headers_only);
        Ok(Wires { names, wanted, headers_only, files, by_wire: BTreeMap::new() })
    }
}

impl WireWatch for Wires {
    fn wants(&self, from: HostId, to: HostId) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| wanted.contains(&(from.min(to), from.max(to))))
    }

    fn on_packet(&mut self, at: Instant, from: HostId, to: HostId, place: Place, packet: &[u8]) {
        let wire = (from.min(to), from.max(to));
        let mut files = locked(&self.files);
        let file = *self.by_wire.entry(wire).or_insert_with(|| {
            let ends = [wire.0, wire.1].map(|host| self.names[host.0].as_str());
            let (file, mut head) = (files.add(&pcapng::file_name(ends)), Vec::new());
            pcapng::begin(ends, &mut head);
            files.append(at, file, &head);
            file
        });
        let headers = if self.headers_only { headers(packet) } else { None };
        let bytes = headers.as_deref().unwrap_or(packet);
        let mut block = Vec::new();
        let captured = Captured { bytes, len_bytes: packet.len() };
        pcapng::packet(place, from > to, at.as_nanos(), captured, &mut block);
        files.append(at, file, &block);
    }
}

/// The wires that these names are of, each of which is one's.
fn wanted(patterns: &[String], names: &[String]) -> Result<BTreeSet<(HostId, HostId)>> {
    let mut all = BTreeSet::new();
    for pattern in patterns {
        let mut is_known = false;
        for (number, one) in names.iter().enumerate() {
            for (behind, other) in names[number..].iter().enumerate() {
                let is_meant = [(one, other), (other, one)]
                    .into_iter()
                    .any(|(one, other)| matches(pattern.as_bytes(), format!("{one}-{other}").as_bytes()));
                if is_meant {
                    is_known = true;
                    all.insert((HostId(number), HostId(number + behind)));
                }
            }
        }
        if !is_known {
            return Err(Error::Options(format!(
                "no wire is called {pattern:?}: wires are called by their hosts, as {:?}, and * stands for anything",
                names.iter().take(2).map(String::as_str).collect::<Vec<_>>().join("-")
            )));
        }
    }
    Ok(all)
}

/// Whether a pattern, of which `*` stands for anything, is of a text.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // Where the last star is, and what it stood for when this was last tried.
    let mut star = None;
    while read < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(byte) if *byte == text[read] => (at, read) = (at + 1, read + 1),
            _ => {
                let Some((place, until)) = star else { return false };
                star = Some((place, until + 1));
                (at, read) = (place + 1, until + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// The headers of a packet, without the checksum of TCP or UDP, which is of what comes behind as well.
fn headers(packet: &[u8]) -> Option<Vec<u8>> {
    let (begin, protocol) = match packet.first()? >> 4 {
        4 => (usize::from(packet[0] & 15) * 4, *packet.get(9)?),
        6 => (40, *packet.get(6)?),
        _ => return None,
    };
    let (len, checksum) = match protocol {
        TCP => (usize::from(*packet.get(begin + 12)? >> 4) * 4, 16),
        UDP => (8, 6),
        _ => return None,
    };
    let mut headers = packet.get(..begin + len)?.to_vec();
    headers.get_mut(begin + checksum..begin + checksum + 2)?.fill(0);
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    use heddle_utcp::segment::Ecn;
    use heddle_utcp::wire::{TcpHeader, emit, emit_datagram};

    fn matches_text(pattern: &str, text: &str) -> bool {
        matches(pattern.as_bytes(), text.as_bytes())
    }

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text) in
            [("*", ""), ("*", "a-b"), ("a-*", "a-b"), ("*-b", "a-b-b"), ("a*b*c", "aXbYbc"), ("a-b", "a-b")]
        {
            assert!(matches_text(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a", "a-b"), ("a-*c", "a-b"), ("", "a"), ("*a", "ab"), ("a-b", "a")] {
            assert!(!matches_text(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn wires_are_named_either_way_round() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let of = |patterns: &[&str]| -> Result<Vec<[usize; 2]>> {
            let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
            wanted(&patterns, &names).map(|all| all.iter().map(|(one, other)| [one.0, other.0]).collect())
        };
        let expected: Vec<[usize; 2]> = vec![[0, 1], [1, 1], [1, 2]];
        assert_eq!(of(&["b-*"]).unwrap(), expected);
        assert_eq!(of(&["b-a", "b-b", "c-b"]).unwrap(), expected);
        let error = of(&["a-b", "a-d"]).unwrap_err().to_string();
        assert!(error.contains(r#"no wire is called "a-d""#) && error.contains(r#""a-b""#), "{error}");
    }

    #[test]
    fn headers_end_where_what_they_carry_begins() {
        for address in ["10.0.0.1", "fc00::1"] {
            let of = |port| SocketAddr::new(address.parse().unwrap(), port);
            let (from, to) = (of(1), of(2));
            let packet = |payload: &[u8], is_tcp| {
                let mut packet = Vec::new();
                match is_tcp {
                    true => emit(from, to, Ecn::Ect, &TcpHeader::default(), payload, &mut packet),
                    false => emit_datagram(from, to, 2, payload, &mut packet),
                }
                packet
            };
            for is_tcp in [true, false] {
                let kept = headers(&packet(b"secret", is_tcp)).unwrap();
                assert_eq!(headers(&packet(b"others", is_tcp)).unwrap(), kept);
                assert_eq!(kept.len() + 6, packet(b"secret", is_tcp).len());
            }
        }
        assert_eq!((headers(&[]), headers(&[0x45; 20]), headers(&[0x60; 44])), (None, None, None));
    }
}
