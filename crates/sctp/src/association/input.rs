//! Packets that come.

use super::{Association, Closed, Event, Peer, State};
use crate::wire::{self, Chunk, Malformed, data, field, init, kind, sack};
use heddle_seam::time::Instant;

/// The tag in a packet is the sender's own, because it does not know ours (RFC 9260, section 8.5.1).
const TAG_REFLECTED: u8 = 1;
/// A chunk of an unknown kind without this bit has the rest of its packet dropped (RFC 9260, section 3.2).
const SKIPPED: u8 = 0x80;
/// Questions of the peer that wait for their answers, and bytes of one.
const HEARTBEAT_ACKS_MAX: usize = 4;
const HEARTBEAT_BYTES_MAX: usize = 512;

const LACKING: Malformed = Malformed("it does not interleave messages, or resets no streams");

impl Association {
    /// Takes a packet. What is not right is dropped; what no honest peer sends ends the association.
    pub fn handle_packet(&mut self, now: Instant, packet: &[u8]) {
        if self.state == State::Ended {
            return;
        }
        let Ok((head, mut rest)) = wire::split_head(packet, self.options.zero_checksum) else { return };
        self.sender.window.begin();
        self.resets.begin_packet();
        while let Ok(Some((chunk, after))) = wire::split_chunk(rest) {
            rest = after;
            if !self.is_for_us(head.tag, &chunk) {
                break;
            }
            match self.on_chunk(now, &chunk) {
                Ok(true) => {}
                Ok(false) => break,
                Err(Malformed(what)) => return self.end(Closed::Misbehaved(what)),
            }
            if self.state == State::Ended {
                return;
            }
        }
        self.receiver.end_packet(now);
        if core::mem::take(&mut self.is_marked) {
            self.is_marked = !self.sender.window.on_marked(now);
        }
        self.go_on_ending();
    }

    /// Whether a chunk has the tag that its kind wants (RFC 9260, section 8.5).
    fn is_for_us(&self, tag: u32, chunk: &Chunk<'_>) -> bool {
        let is_reflected = chunk.flags & TAG_REFLECTED != 0 && self.peer.is_some_and(|peer| peer.tag == tag);
        match chunk.kind {
            kind::INIT => tag == 0,
            kind::ABORT | kind::SHUTDOWN_COMPLETE => tag == self.random.tag || is_reflected,
            _ => tag == self.random.tag,
        }
    }

    /// Works off a chunk. False if what is behind it is to be dropped.
    fn on_chunk(&mut self, now: Instant, chunk: &Chunk<'_>) -> Result<bool, Malformed> {
        match chunk.kind {
            kind::INIT => return self.on_init(chunk).map(|()| false),
            kind::INIT_ACK => return self.on_init_ack(chunk).map(|()| false),
            kind::COOKIE_ECHO => self.on_cookie_echo(now, chunk.value),
            kind::COOKIE_ACK => self.on_cookie_ack(now),
            kind::ABORT => self.end(Closed::Aborted),
            kind::SHUTDOWN_COMPLETE if self.state == State::ShutdownAckSent => self.end(Closed::Shutdown),
            kind::SHUTDOWN_ACK if matches!(self.state, State::ShutdownSent | State::ShutdownAckSent) => {
                self.end(Closed::Shutdown);
                self.due.shutdown_complete = true;
            }
            unknown if !is_known(unknown) => return Ok(unknown & SKIPPED != 0),
            // COOKIE ACK was lost or overtaken, and what follows says as much as it does.
            kind::DATA | kind::I_DATA | kind::SACK if self.state == State::CookieEchoed => {
                self.on_cookie_ack(now);
                return self.on_open_chunk(now, chunk);
            }
            _ if self.is_established() => return self.on_open_chunk(now, chunk),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn on_open_chunk(&mut self, now: Instant, chunk: &Chunk<'_>) -> Result<bool, Malformed> {
        match chunk.kind {
            kind::DATA | kind::I_DATA => self.on_data(now, chunk)?,
            kind::SACK => self.sender.on_sack(now, &sack::parse(chunk)?)?,
            kind::RE_CONFIG => self.on_reconfig(now, chunk)?,
            kind::HEARTBEAT => {
                let acks = &mut self.due.heartbeat_acks;
                if acks.len() < HEARTBEAT_ACKS_MAX && chunk.value.len() <= HEARTBEAT_BYTES_MAX {
                    acks.push_back(chunk.value.to_vec());
                }
            }
            kind::HEARTBEAT_ACK => {
                self.timers.unanswered = 0;
                self.sender.on_heard();
            }
            kind::SHUTDOWN => self.on_shutdown(now, chunk)?,
            _ => {}
        }
        Ok(true)
    }

    fn on_data(&mut self, now: Instant, chunk: &Chunk<'_>) -> Result<(), Malformed> {
        let is_interleaved = self.peer.is_some_and(|peer| peer.interleaves);
        if (chunk.kind == kind::I_DATA) != is_interleaved {
            return Err(Malformed("fragments of the kind that was not agreed on"));
        }
        let data = data::parse(chunk)?;
        if data.fragment.stream >= self.options.streams_max {
            return Err(Malformed("a stream that there is not"));
        }
        if matches!(self.state, State::ShutdownReceived | State::ShutdownAckSent) {
            return Ok(());
        }
        if let Some(stream) = self.receiver.on_data(now, &data)? {
            self.events.push_back(Event::Readable(stream));
        }
        Ok(())
    }

    fn on_init(&mut self, chunk: &Chunk<'_>) -> Result<(), Malformed> {
        if !matches!(self.state, State::Closed | State::CookieWait | State::CookieEchoed) {
            return Ok(());
        }
        let peer = Peer::of(&init::parse(chunk)?, &self.options);
        // Whoever asked both ways says the same either way (RFC 9260, section 5.2.1), and what it said counts already.
        if self.state != State::CookieEchoed {
            self.peer = Some(peer);
        }
        self.due.init_ack = self.peer.is_some_and(|known| known.tag == peer.tag);
        Ok(())
    }

    fn on_init_ack(&mut self, chunk: &Chunk<'_>) -> Result<(), Malformed> {
        if self.state != State::CookieWait {
            return Ok(());
        }
        let init = init::parse(chunk)?;
        let Some(cookie) = init.cookie else { return Err(Malformed("an INIT ACK without a cookie")) };
        if self.options.wants_extensions && !(init.interleaves && init.resets) {
            return Err(LACKING);
        }
        self.cookie = cookie.to_vec();
        self.peer = Some(Peer::of(&init, &self.options));
        (self.state, self.due.cookie_echo, self.due.init) = (State::CookieEchoed, true, false);
        self.on_step();
        self.begin();
        Ok(())
    }

    fn on_cookie_echo(&mut self, now: Instant, cookie: &[u8]) {
        if cookie != self.random.cookie || self.peer.is_none() {
            return;
        }
        let lacks = self.peer.is_some_and(|peer| !(peer.interleaves && peer.resets));
        if self.options.wants_extensions && lacks {
            return self.end(Closed::Misbehaved(LACKING.0));
        }
        self.due.cookie_ack = true;
        match self.state {
            State::Closed | State::CookieWait => {
                self.begin();
                self.establish(now);
            }
            State::CookieEchoed => self.establish(now),
            // Our answer was lost.
            _ => {}
        }
    }

    fn on_cookie_ack(&mut self, now: Instant) {
        if self.state == State::CookieEchoed {
            self.establish(now);
        }
    }

    /// What the peer said of itself counts from now on.
    fn begin(&mut self) {
        let Some(peer) = self.peer else { return };
        self.receiver.begin(peer.tsn, peer.interleaves);
        self.receiver.on_window_told(self.receiver.window_bytes());
        self.sender.begin(peer.interleaves, peer.window_bytes);
        self.resets.begin(peer.tsn);
    }

    fn establish(&mut self, now: Instant) {
        self.state = State::Established;
        (self.due.init, self.due.cookie_echo) = (false, false);
        self.on_step();
        self.arm_heartbeat(now);
        self.events.push_back(Event::Connected);
    }

    /// The peer sends no more after what it has sent.
    fn on_shutdown(&mut self, now: Instant, chunk: &Chunk<'_>) -> Result<(), Malformed> {
        let cumulative = field(chunk.value, 0).ok_or(Malformed("a SHUTDOWN is cut off"))?;
        self.sender.on_cumulative(now, cumulative)?;
        match self.state {
            State::Established | State::ShutdownPending => self.state = State::ShutdownReceived,
            State::ShutdownSent => (self.state, self.due.shutdown_ack) = (State::ShutdownAckSent, true),
            State::ShutdownAckSent => self.due.shutdown_ack = true,
            _ => {}
        }
        Ok(())
    }
}

fn is_known(kind: u8) -> bool {
    use wire::kind::{DATA, ERROR, I_DATA, INIT, RE_CONFIG};
    matches!(kind, DATA | INIT..=ERROR | 10 | 11 | 14 | I_DATA | RE_CONFIG)
}
