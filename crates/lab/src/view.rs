//! What somebody on a wire between two relays learns who has no keys: he reads a [`Capture`] and nothing else, and
//! knows what is published of packets' formats.
//!
//! - `packet` finds the parts of IP packets with TCP or UDP.
//! - `clear` says which bytes of their payload a format leaves in clear, and which of them could name something.
//! - `cipher` looks at all other bytes, whether they look as if they were encrypted.
//! - `names` says how many circuits at most whatever is in clear tells apart.
//! - `moments` says whether moments at which something happened can be told from others by lengths of packets.
//!
//! Any bytes may be in a packet. What is kept of a capture is a few times as large as the capture.

mod cipher;
mod clear;
mod moments;
mod names;
mod packet;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use heddle_net::packet::TCP;

use crate::arm::Transport;
use crate::capture::{Capture, Captured};
use cipher::Bytes;
use clear::{Clear, Records};
use names::Names;
use packet::Packet;

pub(crate) use clear::Format;
pub(crate) use moments::{Lengths, lengths, told_apart};

/// The most connections over TCP whose records are followed.
const CONNECTIONS_MAX: usize = 1000;
/// The greatest length of each bucket but the last, which has all that is longer.
const BUCKETS: [usize; 4] = [100, 300, 600, 1000];
/// The names of the buckets.
pub(crate) const BUCKET_NAMES: [&str; 5] = ["1-100", "101-300", "301-600", "601-1000", "1001-"];

/// What a wire shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Shown {
    /// Pairs of addresses and ports over TCP, and over UDP, in whichever direction.
    pub(crate) flows: [usize; 2],
    /// How many circuits what is in clear tells apart at most; `None` where too little passed.
    pub(crate) circuits: Option<usize>,
    /// From the wire's first host to its second, and back.
    pub(crate) ways: [Way; 2],
}

/// What one direction shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Way {
    /// All packets.
    pub(crate) packets: usize,
    /// Those whose format was not understood to its end.
    pub(crate) unread: usize,
    /// How many of the packets have a length from each bucket.
    pub(crate) by_length: [usize; BUCKET_NAMES.len()],
    /// How many different lengths there are.
    pub(crate) lengths: usize,
    /// From each packet to the next one.
    pub(crate) gaps: Vec<Duration>,
    /// How many values each of the fields has that could name something.
    pub(crate) names: BTreeMap<&'static str, usize>,
    /// The share of bytes that are in clear, headers included, of packets that were understood; `None` without any.
    pub(crate) clear: Option<f64>,
    /// How many places of a payload do not look encrypted though the format does not leave them in clear; `None` where
    /// too little passed.
    pub(crate) unexplained: Option<usize>,
}

/// Says what a wire shows on which datagrams have this format.
pub(crate) fn view(capture: &Capture, format: Format) -> Shown {
    let mut viewer = Viewer { format, ..Viewer::default() };
    capture.packets().iter().for_each(|captured| viewer.look(captured));
    viewer.shown()
}

impl Format {
    /// What datagrams of a transport between relays are.
    pub(crate) fn of(transport: Transport) -> Format {
        match transport.name() {
            "quic" | "quic-per-circuit" => Format::Quic,
            "tcp-dtls" | "sctp-dtls" | "torchestra-dtls" | "imux-dtls" => Format::SessionDtls,
            "tcp-esp" => Format::Esp,
            _ => Format::Unknown,
        }
    }
}

/// Who reads a capture.
#[derive(Default)]
struct Viewer {
    format: Format,
    flows: [BTreeSet<[SocketAddr; 2]>; 2],
    names: Names,
    ways: [Reading; 2],
    /// By who sends to whom.
    records: BTreeMap<[SocketAddr; 2], Records>,
}

/// What was read of a direction so far.
#[derive(Default)]
struct Reading {
    shown: Way,
    lengths: BTreeSet<usize>,
    last: Option<Duration>,
    /// Bytes of packets that were understood, all and those in clear.
    bytes: [usize; 2],
    /// Of payloads over TCP, and over UDP.
    payloads: [Bytes; 2],
}

impl Viewer {
    fn look(&mut self, captured: &Captured) {
        let way = &mut self.ways[usize::from(!captured.is_there)];
        way.pass(captured.at, captured.packet.len());
        let Some(packet) = packet::read(&captured.packet) else {
            way.shown.unread += 1;
            return;
        };
        let over = usize::from(packet.protocol != TCP);
        self.flows[over].insert(packet.both_ways());
        let clear = match packet.sequence {
            Some(number) => self.records(&packet, number),
            None => Some(self.format.read(packet.payload)),
        };
        let clear = clear.unwrap_or_default();
        let (at, is_there) = (captured.at, captured.is_there);
        self.names.add("addresses and ports", is_there, at, &packet.tuple());
        self.names.add("dscp", is_there, at, &[packet.dscp]);
        self.names.add("hops", is_there, at, &[packet.hops]);
        clear.id.iter().for_each(|id| self.names.add("id", is_there, at, id));
        clear.flags.iter().for_each(|flags| self.names.add("flags", is_there, at, &[*flags]));
        self.ways[usize::from(!is_there)].read(&packet, over, &clear);
    }

    /// What is in clear of a segment of TCP; `None` where nobody knows.
    fn records(&mut self, packet: &Packet<'_>, number: u32) -> Option<Clear> {
        if self.records.len() >= CONNECTIONS_MAX && !self.records.contains_key(&packet.ends) {
            return None;
        }
        let records = self.records.entry(packet.ends).or_default();
        records.read(number, packet.payload)
    }

    fn shown(self) -> Shown {
        let Viewer { flows, names, ways, .. } = self;
        let mut shown = Shown {
            flows: flows.map(|flows| flows.len()),
            circuits: names.told_apart(),
            ways: ways.map(Reading::shown),
        };
        for (way, is_there) in shown.ways.iter_mut().zip([true, false]) {
            way.names = names.values(is_there);
        }
        shown
    }
}

impl Reading {
    /// A packet of this length passes.
    fn pass(&mut self, at: Duration, bytes: usize) {
        self.shown.packets += 1;
        let bucket = BUCKETS.iter().position(|greatest| bytes <= *greatest).unwrap_or(BUCKETS.len());
        self.shown.by_length[bucket] += 1;
        self.lengths.insert(bytes);
        self.shown.gaps.extend(self.last.map(|last| at.saturating_sub(last)));
        self.last = Some(at);
    }

    /// What a packet is made of, of which so much is in clear.
    fn read(&mut self, packet: &Packet<'_>, over: usize, clear: &Clear) {
        if !clear.is_read {
            self.shown.unread += 1;
            return;
        }
        let headers = packet.bytes - packet.payload.len();
        self.bytes[0] += packet.bytes;
        self.bytes[1] += headers + clear.ranges.iter().map(|range| range.len()).sum::<usize>();
        self.payloads[over].add(packet.payload, &clear.ranges);
    }

    fn shown(self) -> Way {
        let Reading { mut shown, lengths, bytes: [all, clear], payloads, .. } = self;
        shown.lengths = lengths.len();
        shown.clear = (all > 0).then(|| clear as f64 / all as f64);
        let unexplained = payloads.iter().filter_map(Bytes::not_encrypted);
        shown.unexplained = unexplained.reduce(|one, other| one + other);
        shown
    }
}
