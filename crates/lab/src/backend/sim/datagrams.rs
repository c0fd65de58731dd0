//! Numbered datagrams over a wire, one way or there and back: a node that sends, receives and answers them.
//!
//! A datagram begins with its number, the number of its flow and what it is, so that a host may have several flows at a
//! time. Of a flow one way both are zero.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use heddle_relay::RelayLanguage;
use heddle_seam::datagrams::Transmit;
use heddle_seam::node::{Input, Node, Output, PortId, SocketId};
use heddle_seam::time::Instant;

/// The port of each host where datagrams come.
pub(super) const DATAGRAM_PORT: u16 = 9;
/// Bytes of the IPv4 and the UDP header.
const HEADERS_BYTES: usize = 28;
/// What a datagram is.
const ONE_WAY: u8 = 0;
const QUESTION: u8 = 1;
const ANSWER: u8 = 2;

/// A node that does nothing until it is told to, or a question comes.
#[derive(Default)]
pub(super) struct DatagramNode {
    sending: BTreeMap<u32, Sending>,
    arrived: BTreeMap<u32, Arrived>,
    answers: VecDeque<(SocketAddr, Vec<u8>)>,
}

/// What a sender sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagrams {
    pub(super) to: SocketAddr,
    /// With their headers.
    pub(super) bytes: usize,
    /// From one to the next, and before the first.
    pub(super) interval: Duration,
    pub(super) count: usize,
    /// Whether they are to come back.
    pub(super) come_back: bool,
}

/// What of it was sent.
struct Sending {
    what: Datagrams,
    sends: Instant,
    sent: Vec<Instant>,
}

/// What came of a flow.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    /// When each arrived for the first time, by its number, as far as any did.
    pub(super) times: Vec<Option<Instant>>,
    /// How many of them.
    pub(super) count: usize,
}

impl DatagramNode {
    /// Has it send datagrams of a flow, the first after one interval.
    pub(super) fn send(&mut self, now: Instant, flow: u32, what: Datagrams) {
        self.sending.insert(flow, Sending { what, sends: now + what.interval, sent: Vec::new() });
    }

    /// When each datagram of a flow was sent so far.
    pub(super) fn sent(&self, flow: u32) -> &[Instant] {
        self.sending.get(&flow).map_or(&[], |sending| &sending.sent)
    }

    /// What arrived of a flow so far; `None` before anything did.
    pub(super) fn arrived(&self, flow: u32) -> Option<&Arrived> {
        self.arrived.get(&flow)
    }

    fn take(&mut self, now: Instant, from: SocketAddr, data: &[u8]) {
        let Some((number, rest)) = data.split_first_chunk::<8>() else { return };
        let Some((flow, rest)) = rest.split_first_chunk::<4>() else { return };
        if rest.first() == Some(&QUESTION) {
            let mut answer = data.to_vec();
            answer[12] = ANSWER;
            self.answers.push_back((from, answer));
            return;
        }
        let number = u64::from_be_bytes(*number) as usize;
        let arrived = self.arrived.entry(u32::from_be_bytes(*flow)).or_default();
        if arrived.times.len() <= number {
            arrived.times.resize(number + 1, None);
        }
        // Of a duplicate, the first counts.
        if arrived.times[number].is_none() {
            arrived.times[number] = Some(now);
            arrived.count += 1;
        }
    }
}

impl Node<RelayLanguage> for DatagramNode {
    fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
        &mut []
    }

    fn handle_input(&mut self, now: Instant, input: Input<RelayLanguage>) {
        let Input::Datagrams { datagrams, .. } = input else { return };
        for data in datagrams.data.chunks(datagrams.stride.max(1)) {
            self.take(now, datagrams.from, data);
        }
    }

    fn poll_output(&mut self, now: Instant, buf: &mut Vec<u8>) -> Output<RelayLanguage> {
        if let Some((to, answer)) = self.answers.pop_front() {
            let transmit = Transmit { to, from: None, ecn: 0, stride: answer.len() };
            buf.extend(answer);
            return Output::Datagrams { port: PortId(0), transmit };
        }
        let under_way =
            self.sending.iter_mut().filter(|(_, sending)| sending.sent.len() < sending.what.count);
        let Some((flow, sending)) = under_way.min_by_key(|(_, sending)| sending.sends) else {
            return Output::Timeout(None);
        };
        if now < sending.sends {
            return Output::Timeout(Some(sending.sends));
        }
        let Datagrams { to, bytes, interval, come_back, .. } = sending.what;
        let len = bytes - HEADERS_BYTES;
        buf.extend((sending.sent.len() as u64).to_be_bytes());
        buf.extend(flow.to_be_bytes());
        buf.push(if come_back { QUESTION } else { ONE_WAY });
        buf.resize(len, 0);
        sending.sent.push(now);
        sending.sends += interval;
        let transmit = Transmit { to, from: None, ecn: 0, stride: len };
        Output::Datagrams { port: PortId(0), transmit }
    }
}
