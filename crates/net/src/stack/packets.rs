//! Packets between a stack's device and its node. The node has them as they are on a wire. The kernel has those of one
//! connection that come together as one, so they cost one system call and one way through its TCP, in either direction.
//!
//! Bounds: a round of [`Inbound`] is over when it has brought [`ROUND_BYTES`], and so at most [`ROUND_BYTES_MAX`]; what
//! goes out is a part of the caller's buffer and needs none.

use super::FRAME_PACKETS_MAX;
use crate::counters::Counters;
use crate::offload::{Cut, Run};
use crate::tun::{FRAME_BYTES_MAX, Tun};
use bytes::BytesMut;
use heddle_seam::datagrams::Packets;
use std::io::{self, IoSlice};
use std::mem;

/// Reads of a device in one round.
const ROUND_READS: usize = 64;
/// Bytes of packets after which a round ends: what as many packets of a datagram's length have.
const ROUND_BYTES: usize = ROUND_READS * 1350;
/// What stands in front of a packet's data: headers of IPv4 and TCP, with as many options as they may have.
const HEADERS_BYTES_MAX: usize = 60 + 60;
/// Bytes of packets of one round at most: just not enough to end it, and one read more, whose data may be in as many
/// packets as the kernel leaves to us.
const ROUND_BYTES_MAX: usize = ROUND_BYTES + FRAME_BYTES_MAX + FRAME_PACKETS_MAX * HEADERS_BYTES_MAX;

/// Packets on their way out of stacks: those of one length go on together, with one behind them that is shorter.
#[derive(Default)]
pub(crate) struct Inbound {
    /// What a device hands over at once. It holds nothing between reads.
    frame: Vec<u8>,
    /// The packets that were not handed on yet, all of length `stride`.
    buffer: BytesMut,
    stride: usize,
    packets: u64,
    bytes: usize,
}

impl Inbound {
    /// Reads what a stack sends, for one round, and hands it on. Returns how many bytes of packets, and whether there
    /// may be more. A frame that is none goes nowhere.
    pub fn recv(
        &mut self,
        device: &Tun,
        counters: &mut Counters,
        mut take: impl FnMut(Packets),
    ) -> (usize, bool) {
        self.frame.resize(FRAME_BYTES_MAX, 0);
        if !self.buffer.try_reclaim(ROUND_BYTES_MAX) {
            self.buffer.reserve(ROUND_BYTES_MAX);
        }
        (self.packets, self.bytes) = (0, 0);
        let mut has_more = true;
        for _ in 0..ROUND_READS {
            counters.stack_recvs += 1;
            // A device that is down, or gone, has nothing any more.
            has_more = self.read(device, &mut take);
            if !has_more || self.bytes >= ROUND_BYTES {
                break;
            }
        }
        self.hand_on(self.buffer.len(), &mut take);
        counters.stack_packets_received += self.packets;
        (self.bytes, has_more)
    }

    /// Reads once. False when there is nothing.
    fn read(&mut self, device: &Tun, take: &mut impl FnMut(Packets)) -> bool {
        let mut frame = mem::take(&mut self.frame);
        let len = device.read(&mut frame).ok().flatten().unwrap_or(0);
        if !device.has_header() {
            self.buffer.extend_from_slice(&frame[..len]);
            self.on_packet(len, take);
        } else if let Ok(mut cut) = Cut::new(&frame[..len]) {
            loop {
                let packet_bytes = cut.next_bytes();
                if !cut.append_next(&mut self.buffer) {
                    break;
                }
                self.on_packet(packet_bytes, take);
            }
        }
        self.frame = frame;
        len > 0
    }

    /// A packet of so many bytes was added to the buffer.
    fn on_packet(&mut self, len: usize, take: &mut impl FnMut(Packets)) {
        if len == 0 {
            return;
        }
        self.packets += 1;
        self.bytes += len;
        let before = self.buffer.len() - len;
        if before > 0 && len > self.stride {
            self.hand_on(before, take);
        }
        if self.buffer.len() == len {
            self.stride = len;
        }
        if len < self.stride {
            self.hand_on(self.buffer.len(), take);
        }
    }

    /// Hands so many bytes of packets on.
    fn hand_on(&mut self, bytes: usize, take: &mut impl FnMut(Packets)) {
        if bytes > 0 {
            take(Packets { stride: self.stride, data: self.buffer.split_to(bytes) });
        }
    }
}

/// Hands a stack packets that are cut every `stride` bytes, those of one connection as one where its device takes them
/// so. What it does not take is lost. Says whether the device turned out to be down, or gone.
///
/// The packets are as they were sent, of which the node has made sure, as ESP does: the kernel does not look at the
/// checksums of those that it gets as one.
pub(crate) fn send(device: &Tun, stride: usize, packets: &mut [u8], counters: &mut Counters) -> bool {
    let stride = stride.max(1);
    let (mut rest, mut is_down) = (packets, false);
    while !rest.is_empty() {
        let (count, bytes, written) = write(device, stride, rest);
        counters.stack_sends += 1;
        let is_lost = written.is_err();
        let counter =
            if is_lost { &mut counters.stack_packets_lost } else { &mut counters.stack_packets_sent };
        *counter += count;
        is_down = written.is_err_and(|error| matches!(error.raw_os_error(), Some(libc::EIO | libc::EBADFD)));
        rest = &mut rest[bytes..];
    }
    is_down
}

/// Writes as many of the first packets as go at once: how many and how many bytes that is, and whether they were taken.
fn write(device: &Tun, stride: usize, packets: &mut [u8]) -> (u64, usize, io::Result<()>) {
    let first_bytes = stride.min(packets.len());
    let (first, others) = packets.split_at(first_bytes);
    if !device.has_header() {
        return (1, first_bytes, device.write(&[IoSlice::new(first)]));
    }
    let run = Run::of(first, others.chunks(stride));
    let bytes = packets.len().min(run.packets() * stride);
    let together = &mut packets[..bytes];
    let header = run.begin(&mut together[..first_bytes]);
    let written = device.write(run.parts(&header, together.chunks(stride)).as_slice());
    (run.packets() as u64, bytes, written)
}
