//! The peer's acknowledgements and windows.

use super::{CloseReason, Connection, State};
use crate::segment::{Header, Range, SACK_BLOCKS_MAX, SackBlocks};
use crate::send::AckInput;
use crate::time::Instant;

impl Connection {
    /// Takes the acknowledgement, the window and the SACK blocks of a segment.
    pub(super) fn acknowledge(
        &mut self,
        now: Instant,
        header: &Header,
        ack: u64,
        sacks: &SackBlocks,
        payload_bytes: usize,
    ) {
        let window_before = self.peer_edge();
        self.update_window(header, ack);
        if self.peer.window == 0 {
            // It has no room even for what was sent, and says so: it is there (RFC 9293, section 3.8.6.1).
            self.sender.excuse();
        }
        let is_bare = payload_bytes == 0
            && !header.flags.fin
            && ack == self.sender.una
            && self.peer_edge() == window_before;
        let mut blocks = [Range::default(); SACK_BLOCKS_MAX];
        let mut count = 0;
        for block in sacks.as_slice().iter().filter(|block| self.is_sent(**block)) {
            blocks[count] = *block;
            count += 1;
        }
        self.sender.on_ack(&AckInput {
            now,
            ack,
            sack: &blocks[..count],
            echoed_ms: self.echoed_ms(header),
            is_bare,
            ece: self.ecn.enabled && header.flags.ece && !header.flags.syn,
            has_unsent: self.has_unsent() && self.peer_edge() > self.sender.next,
        });
        self.free_acknowledged();
        self.on_fin_acknowledged(now);
    }

    /// The timestamp that a segment echoes, on our clock.
    pub(super) fn echoed_ms(&self, header: &Header) -> Option<u32> {
        let timestamps = header.timestamps.filter(|_| self.clock.enabled && header.ack.is_some())?;
        Some(timestamps.echo.wrapping_sub(self.clock.offset)).filter(|_| timestamps.echo != 0)
    }

    /// RFC 9293, section 3.10.7.4: an older segment must not take back what a newer one offered. One that acknowledges
    /// more is no older, whatever its sequence number, as in Linux.
    pub(super) fn update_window(&mut self, header: &Header, ack: u64) {
        let peer = &mut self.peer;
        let is_newer = peer.window_seq < header.seq
            || peer.window_seq == header.seq && peer.window_ack <= ack
            || self.sender.una < ack;
        if !is_newer {
            return;
        }
        let edge_before = peer.window_ack + peer.window;
        peer.window = u64::from(header.window_bytes);
        peer.window_max = peer.window_max.max(peer.window);
        peer.window_seq = header.seq;
        peer.window_ack = ack;
        if peer.window_ack + peer.window > edge_before {
            self.timers.persist = None;
            self.timers.persist_backoff = 0;
        }
        self.sender.set_shut(peer.window == 0);
    }

    fn free_acknowledged(&mut self) {
        let una = self.sender.una.clamp(self.iss + 1, self.write_end);
        self.send_buffer.advance(una);
        if una == self.write_end {
            self.send_buffer.clear();
        }
    }

    fn on_fin_acknowledged(&mut self, now: Instant) {
        if !self.fin_queued || self.sender.una <= self.write_end {
            return;
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                if self.receiver.is_discarding {
                    self.timers.linger = Some(now.plus_ns(self.options.time_wait_ns));
                }
            }
            State::Closing => self.enter_time_wait(now),
            State::LastAck => self.enter_closed(CloseReason::Finished),
            _ => {}
        }
    }
}
