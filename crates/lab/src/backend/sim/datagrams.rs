//! Numbered datagrams, one way over a wire: a node that sends or receives them.

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
/// Bytes of a probe's number, at the start of its payload.
const NUMBER_BYTES: usize = 8;

/// A node that does neither until it is told to.
#[derive(Default)]
pub(super) struct DatagramNode {
    sending: Option<Sending>,
    /// When each probe arrived for the first time, by its number.
    arrived: Vec<Option<Instant>>,
}

/// What a sender sends.
struct Sending {
    to: SocketAddr,
    bytes: usize,
    interval: Duration,
    left: usize,
    sends: Instant,
    sent: Vec<Instant>,
}

impl DatagramNode {
    /// Has it send so many probes of so many bytes with their headers, the first after one interval.
    pub(super) fn send(
        &mut self,
        now: Instant,
        to: SocketAddr,
        bytes: usize,
        interval: Duration,
        count: usize,
    ) {
        let sends = now + interval;
        self.sending = Some(Sending { to, bytes, interval, left: count, sends, sent: Vec::new() });
    }

    /// When each probe was sent so far.
    pub(super) fn sent(&self) -> &[Instant] {
        self.sending.as_ref().map_or(&[], |sending| &sending.sent)
    }

    /// When each probe arrived for the first time, by its number, as far as any did.
    pub(super) fn arrived(&self) -> &[Option<Instant>] {
        &self.arrived
    }
}

impl Node<RelayLanguage> for DatagramNode {
    fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
        &mut []
    }

    fn handle_input(&mut self, now: Instant, input: Input<RelayLanguage>) {
        let Input::Datagrams { datagrams, .. } = input else { return };
        for data in datagrams.data.chunks(datagrams.stride.max(1)) {
            let Some(number) = data.first_chunk::<NUMBER_BYTES>().copied() else { continue };
            let number = u64::from_be_bytes(number) as usize;
            if self.arrived.len() <= number {
                self.arrived.resize(number + 1, None);
            }
            // Of a duplicate, the first counts.
            self.arrived[number].get_or_insert(now);
        }
    }

    fn poll_output(&mut self, now: Instant, buf: &mut Vec<u8>) -> Output<RelayLanguage> {
        let Some(sending) = self.sending.as_mut().filter(|sending| sending.left > 0) else {
            return Output::Timeout(None);
        };
        if now < sending.sends {
            return Output::Timeout(Some(sending.sends));
        }
        let len = sending.bytes - HEADERS_BYTES;
        buf.extend((sending.sent.len() as u64).to_be_bytes());
        buf.resize(len, 0);
        sending.sent.push(now);
        sending.left -= 1;
        sending.sends += sending.interval;
        let transmit = Transmit { to: sending.to, from: None, ecn: 0, stride: len };
        Output::Datagrams { port: PortId(0), transmit }
    }
}
