//! A directory authority, alone in its network: it takes descriptors, votes with itself, and serves what came of it.
//!
//! 1. `POST /tor/`: a descriptor whose signatures and times hold is kept; another one is refused, with a reason.
//! 2. Every `interval`, if somebody has published, there is a consensus of all whose descriptor is younger than a day.
//! 3. `GET` gives the consensus, the certificate of the key that signed it, and microdescriptors.
//!
//! It believes that whoever publishes is reached, as stock does with `AuthDirTestReachability 0`.

mod documents;

use base64ct::{Base64Unpadded, Encoding};
use core::net::{SocketAddr, SocketAddrV4};
use documents::{Entry, Signer, Times};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use heddle_dir::authority::DirAuthority;
use heddle_dir::iso_time;
use heddle_seam::language::{Language, Plain};
use heddle_seam::node::{Input, Node, Output, SocketId};
use heddle_seam::rng::Rng;
use heddle_seam::time::{Duration, Instant, UnixTime};
use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use tor_checkable::{SelfSigned, TimeBound};
use tor_netdoc::doc::routerdesc::RouterDesc;

/// Where it listens.
pub(crate) const DIR_PORT: u16 = 80;
/// The longest request, in bytes.
const REQUEST_BYTES_MAX: usize = 64 << 10;
const READ_BYTES: usize = 16 << 10;
const DAY_S: u64 = 24 * 3600;
/// How far ahead a descriptor may be dated (dir-spec, section 4.1), in seconds.
const SKEW_MAX_S: u64 = 12 * 3600;

/// A [`Node`] for a host of its own.
pub struct Authority {
    signer: Signer,
    /// Made when the wall clock is known.
    certificate: Option<String>,
    interval: Duration,
    params: BTreeMap<String, i32>,
    descriptors: BTreeMap<[u8; 20], Descriptor>,
    /// From when it holds, in seconds since 1970, and its text.
    consensus: Option<(u64, String)>,
    microdescs: BTreeMap<String, String>,
    /// How many descriptors were taken, and how many refused.
    pub taken: u32,
    pub refused: u32,
    /// When each relay's first descriptor was taken.
    pub first_taken_at: BTreeMap<[u8; 20], Instant>,
    /// The wall clock as it was said last, and when.
    clock: (Instant, UnixTime),
    votes_at: Option<Instant>,
    visitors: BTreeMap<SocketId, Visitor>,
    outputs: VecDeque<Output<Plain>>,
    recv_buf: Vec<u8>,
}

struct Descriptor {
    published_unix_s: u64,
    ed25519_id: [u8; 32],
    entry: Entry,
}

#[derive(Default)]
struct Visitor {
    request: Vec<u8>,
    answer: Option<Vec<u8>>,
    credit_bytes: usize,
}

impl Authority {
    /// An authority at this address that votes so often.
    pub fn new(
        address: SocketAddrV4,
        interval: Duration,
        params: BTreeMap<String, i32>,
        rng: &mut Rng,
    ) -> Self {
        Authority {
            signer: Signer::generate(address, rng),
            certificate: None,
            interval,
            params,
            descriptors: BTreeMap::new(),
            consensus: None,
            microdescs: BTreeMap::new(),
            taken: 0,
            refused: 0,
            first_taken_at: BTreeMap::new(),
            clock: (Instant::ZERO, UnixTime::default()),
            votes_at: None,
            visitors: BTreeMap::new(),
            outputs: VecDeque::new(),
            recv_buf: vec![0; READ_BYTES],
        }
    }

    /// The line by which relays know it.
    pub fn line(&self) -> DirAuthority {
        let (v3_ident, address) = (self.signer.v3_ident(), self.signer.address());
        let line = format!("authority v3ident={v3_ident} {address} {}", "0".repeat(40));
        DirAuthority::parse(&line, &mut Vec::new()).expect("the line is one of the grammar")
    }

    /// The bandwidths that relays say they were observed to carry, in kilobytes per second.
    pub fn bandwidths(&self) -> BTreeMap<[u8; 20], u64> {
        self.descriptors.iter().map(|(relay, descriptor)| (*relay, descriptor.entry.bandwidth)).collect()
    }

    /// Relays that have published.
    pub fn published(&self) -> usize {
        self.descriptors.len()
    }

    fn unix_s(&self, now: Instant) -> u64 {
        UnixTime { ns: self.clock.1.ns + now.ns_since(self.clock.0) }.as_secs()
    }

    fn vote(&mut self, now: Instant) {
        let now_unix_s = self.unix_s(now);
        self.descriptors.retain(|_, descriptor| descriptor.published_unix_s + DAY_S > now_unix_s);
        if self.descriptors.is_empty() {
            return;
        }
        let interval_s = self.interval.as_secs();
        let times = Times {
            valid_after_unix_s: now_unix_s,
            fresh_until_unix_s: now_unix_s + interval_s,
            valid_until_unix_s: now_unix_s + 3 * interval_s,
        };
        let entries = self.descriptors.values().map(|descriptor| descriptor.entry.clone());
        let entries: Vec<Entry> = entries.collect();
        self.consensus = Some((now_unix_s, self.signer.consensus(times, &self.params, &entries)));
        self.microdescs = entries.into_iter().map(|entry| (entry.digest(), entry.microdesc)).collect();
    }

    fn on_read(&mut self, now: Instant, socket: SocketId, len: usize) {
        let Some(visitor) = self.visitors.get_mut(&socket) else { return };
        if visitor.answer.is_some() {
            return;
        }
        visitor.request.extend_from_slice(&self.recv_buf[..len]);
        let answer = match whole(&visitor.request) {
            Ok(None) => return,
            Ok(Some((head, body))) => self.answer(now, &head, &body),
            Err(status) => respond(status, b""),
        };
        if let Some(visitor) = self.visitors.get_mut(&socket) {
            visitor.answer = Some(answer);
        }
        self.outputs.push_back(Output::Interest { socket, read: true, write: true });
        self.outputs.push_back(Output::Send { socket });
    }

    fn answer(&mut self, now: Instant, head: &str, body: &str) -> Vec<u8> {
        let mut words = head.lines().next().unwrap_or_default().split(' ');
        let found = match (words.next(), words.next()) {
            (Some("POST"), Some("/tor/")) => {
                return match self.take(now, body) {
                    Ok(()) => respond("200 OK", b""),
                    Err(reason) => {
                        self.refused += 1;
                        let reason: String = reason.chars().filter(|c| !c.is_control()).collect();
                        respond(&format!("400 {reason}"), b"")
                    }
                };
            }
            (Some("GET"), Some("/tor/status-vote/current/consensus-microdesc")) => {
                let since =
                    self.consensus.as_ref().map(|(valid_after, _)| iso_time::format_http(*valid_after));
                if since.is_some_and(|since| head.contains(&format!("If-Modified-Since: {since}"))) {
                    return respond("304 Not modified", b"");
                }
                self.consensus.as_ref().map(|(_, text)| text.clone())
            }
            (Some("GET"), Some("/tor/keys/all")) => self.certificate.clone(),
            (Some("GET"), Some(path)) => path.strip_prefix("/tor/micro/d/").map(|digests| {
                digests
                    .split('-')
                    .filter_map(|digest| self.microdescs.get(digest).map(String::as_str))
                    .collect()
            }),
            _ => None,
        };
        match found {
            None => respond("404 Not found", b""),
            Some(found) if head.contains("deflate") => {
                respond("200 OK\r\nContent-Encoding: deflate", &deflate(found.as_bytes()))
            }
            Some(found) => respond("200 OK", found.as_bytes()),
        }
    }

    fn is_asking(&self, socket: SocketId) -> bool {
        self.visitors.get(&socket).is_some_and(|visitor| visitor.answer.is_none())
    }

    /// Takes a descriptor, or says why not.
    fn take(&mut self, now: Instant, text: &str) -> Result<(), String> {
        let now_unix_s = self.unix_s(now);
        let parsed = RouterDesc::parse(text).map_err(|error| error.to_string())?;
        let parsed = parsed.check_signature().map_err(|error| error.to_string())?;
        let parsed =
            parsed.if_valid_at(&iso_time::to_system_time(now_unix_s)).map_err(|error| error.to_string())?;
        let (rsa_id, ed25519_id) = (parsed.rsa_identity().to_bytes(), (*parsed.ed_identity()).into());
        let published_unix_s = iso_time::from_system_time(parsed.published());
        if published_unix_s + DAY_S <= now_unix_s {
            return Err("it is older than a day".to_owned());
        }
        if published_unix_s > now_unix_s + SKEW_MAX_S {
            return Err("it is of the future".to_owned());
        }
        // As stock does with AuthDirPinKeys.
        if self.descriptors.iter().any(|(of, known)| (*of == rsa_id) != (known.ed25519_id == ed25519_id)) {
            return Err("its two identities belong to others".to_owned());
        }
        if self.descriptors.get(&rsa_id).is_some_and(|known| published_unix_s < known.published_unix_s) {
            return Err("there is a newer one".to_owned());
        }
        let or_port = parsed.or_ports().find_map(|port| match port {
            SocketAddr::V4(port) => Some(port),
            SocketAddr::V6(_) => None,
        });
        let bandwidth = word(text, "bandwidth", 2).and_then(|rate| rate.parse::<u64>().ok());
        let entry = Entry {
            nickname: word(text, "router", 0).ok_or("it has no nickname")?.to_owned(),
            rsa_id,
            or_port: or_port.ok_or("it has no ORPort")?,
            flags: if exits(text) { "Exit Fast Running Stable Valid" } else { "Fast Running Stable Valid" },
            protocols: line(text, "proto").ok_or("it has no subprotocols")?.to_owned(),
            bandwidth: bandwidth.ok_or("it has no bandwidth")? / 1000,
            microdesc: microdesc(text, &ed25519_id).ok_or("it has no onion keys")?,
        };
        self.taken += 1;
        self.first_taken_at.entry(rsa_id).or_insert(now);
        self.descriptors.insert(rsa_id, Descriptor { published_unix_s, ed25519_id, entry });
        Ok(())
    }

    /// Appends what a visitor can be sent now; false when that is nothing.
    fn flush(&mut self, socket: SocketId, buf: &mut Vec<u8>) -> bool {
        let Some(visitor) = self.visitors.get_mut(&socket) else { return false };
        let Some(answer) = &mut visitor.answer else { return false };
        let bytes = answer.len().min(core::mem::take(&mut visitor.credit_bytes));
        buf.extend(answer.drain(..bytes));
        if answer.is_empty() {
            self.visitors.remove(&socket);
            self.outputs.push_back(Output::Close { socket });
        }
        bytes > 0
    }
}

impl<L: Language> Node<L> for Authority {
    fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
        &mut self.recv_buf
    }

    fn handle_input(&mut self, now: Instant, input: Input<L>) {
        match input {
            Input::WallClock(time) => {
                self.clock = (now, time);
                self.votes_at.get_or_insert(now + self.interval);
                self.certificate.get_or_insert_with(|| self.signer.certificate(time.as_secs()));
            }
            Input::Timeout if self.votes_at.is_some_and(|at| at <= now) => {
                self.vote(now);
                self.votes_at = Some(now + self.interval);
            }
            Input::Accepted { socket, .. } => {
                self.visitors.insert(socket, Visitor::default());
                self.outputs.push_back(Output::Interest { socket, read: true, write: false });
            }
            Input::Read { socket, len } => self.on_read(now, socket, len),
            Input::Writable { socket, bytes, .. } => {
                if let Some(visitor) = self.visitors.get_mut(&socket) {
                    visitor.credit_bytes = bytes;
                    self.outputs.push_back(Output::Send { socket });
                }
            }
            // Whoever has asked may still read.
            Input::Eof { socket } if self.is_asking(socket) => {
                self.visitors.remove(&socket);
                self.outputs.push_back(Output::Close { socket });
            }
            Input::Failed { socket, .. } => drop(self.visitors.remove(&socket)),
            _ => {}
        }
    }

    fn poll_output(&mut self, _: Instant, buf: &mut Vec<u8>) -> Output<L> {
        loop {
            match self.outputs.pop_front() {
                Some(Output::Send { socket }) if !self.flush(socket, buf) => {}
                Some(output) => return output.widen(),
                None => return Output::Timeout(self.votes_at),
            }
        }
    }
}

/// A request's head and body, once they are whole.
fn whole(request: &[u8]) -> Result<Option<(String, String)>, &'static str> {
    if request.len() > REQUEST_BYTES_MAX {
        return Err("413 Too long");
    }
    let Ok(text) = core::str::from_utf8(request) else { return Err("400 Not a text") };
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return Ok(None) };
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let length: usize = length.map_or(Ok(0), str::parse).map_err(|_| "400 No length")?;
    Ok(body.get(..length).map(|body| (head.to_owned(), body.to_owned())))
}

fn respond(status: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.0 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("a vector takes all bytes")
}

/// Whether a descriptor's policy accepts anything.
fn exits(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("accept "))
}

/// What stands in a descriptor's line after its keyword.
fn line<'a>(text: &'a str, keyword: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(keyword)?.strip_prefix(' '))
}

fn word<'a>(text: &'a str, keyword: &str, place: usize) -> Option<&'a str> {
    line(text, keyword)?.split(' ').nth(place)
}

/// The microdescriptor of a descriptor (dir-spec, section 3.3).
fn microdesc(text: &str, ed25519_id: &[u8; 32]) -> Option<String> {
    let tap = text.find("\nonion-key\n")? + 1;
    const END: &str = "-----END RSA PUBLIC KEY-----\n";
    let end = tap + text[tap..].find(END)? + END.len();
    Some(format!(
        "{}ntor-onion-key {}\nid ed25519 {}\n",
        &text[tap..end],
        line(text, "ntor-onion-key")?.trim_end_matches('='),
        Base64Unpadded::encode_string(ed25519_id)
    ))
}

#[cfg(test)]
mod tests;
