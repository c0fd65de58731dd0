//! Channels whose cells are tampered with as they leave.

use super::{Deed, Mischief};
use core::net::SocketAddr;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::cell::{BODY_LEN, Body, CircId, Command};
use heddle_proto::channel::{Channel, ChannelError, Done, Incoming, StreamTransport, Target, Work};
use heddle_proto::transport::Transport;
use heddle_seam::rng::Rng;
use heddle_seam::time::{Instant, UnixTime};
use std::collections::VecDeque;
use std::sync::Arc;

/// Circuit ids that a channel remembers, to send cells under another's.
const SEEN_MAX: usize = 32;

/// Makes them.
pub(super) struct RogueTransport {
    pub channels: Box<dyn StreamTransport>,
    pub mischief: Arc<Mischief>,
}

impl RogueTransport {
    fn channel(&self, inner: Box<dyn Channel>) -> Box<dyn Channel> {
        let mischief = self.mischief.clone();
        Box::new(RogueChannel { inner, mischief, held: None, seen: VecDeque::new(), is_over: false })
    }
}

impl StreamTransport for RogueTransport {
    fn transport(&self) -> &'static Transport {
        self.channels.transport()
    }

    fn accept(
        &mut self,
        now: Instant,
        wall: UnixTime,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Box<dyn Channel> {
        let channel = self.channels.accept(now, wall, local, peer);
        self.channel(channel)
    }

    fn dial(&mut self, now: Instant, wall: UnixTime, target: &Target, peer: SocketAddr) -> Box<dyn Channel> {
        let channel = self.channels.dial(now, wall, target, peer);
        self.channel(channel)
    }
}

struct RogueChannel {
    inner: Box<dyn Channel>,
    mischief: Arc<Mischief>,
    /// A cell that the next one overtakes.
    held: Option<(CircId, Command, Body)>,
    /// The ids of circuits that cells were sent for lately.
    seen: VecDeque<CircId>,
    /// Whether the channel ends by whatever comes next.
    is_over: bool,
}

impl RogueChannel {
    /// Sends a cell, unless there is no room.
    fn pass(&mut self, now: Instant, circ_id: CircId, command: Command, body: &Body) {
        if self.inner.capacity() > 0 {
            self.inner.send(now, circ_id, command, body);
        }
    }

    /// The id of any circuit of the channel, or of none.
    fn any_id(&mut self, not: CircId) -> CircId {
        let (seen, mischief) = (&self.seen, &self.mischief);
        mischief.random(|rng| {
            let place = rng.below(seen.len() as u64 + 1) as usize;
            seen.get(place).copied().or(CircId::new(rng.next_u32())).unwrap_or(not)
        })
    }

    fn note(&mut self, circ_id: CircId) {
        if !self.seen.contains(&circ_id) {
            self.seen.truncate(SEEN_MAX - 1);
            self.seen.push_front(circ_id);
        }
    }

    fn destroy(&mut self, now: Instant, circ_id: CircId) {
        let mut body = [0; BODY_LEN];
        body[0] = self.mischief.random(|rng| rng.below(u64::from(DestroyReason::PROTOCOL.0) + 12) as u8);
        self.pass(now, circ_id, Command::DESTROY, &body);
    }
}

impl Channel for RogueChannel {
    fn send(&mut self, now: Instant, circ_id: CircId, command: Command, body: &Body) {
        self.note(circ_id);
        let overtaken = self.held.take();
        match self.mischief.deed() {
            None => self.inner.send(now, circ_id, command, body),
            Some(Deed::Drop) => {}
            Some(Deed::Change) => {
                let changed = self.mischief.changed(body);
                self.inner.send(now, circ_id, command, &changed);
            }
            Some(Deed::Double) => {
                self.inner.send(now, circ_id, command, body);
                self.pass(now, circ_id, command, body);
            }
            Some(Deed::HoldBack) => self.held = Some((circ_id, command, *body)),
            Some(Deed::Stray) => {
                let other = self.any_id(circ_id);
                self.inner.send(now, other, command, body);
            }
            Some(Deed::Forge) => {
                let random = self.mischief.random(Rng::array);
                self.inner.send(now, circ_id, Command::RELAY, &random);
                self.pass(now, circ_id, command, body);
            }
            Some(Deed::Destroy) => {
                self.inner.send(now, circ_id, command, body);
                let other = self.any_id(circ_id);
                self.destroy(now, other);
            }
            Some(Deed::End) => self.is_over = true,
        }
        if let Some((circ_id, command, body)) = overtaken {
            self.pass(now, circ_id, command, &body);
        }
    }

    fn handle_read(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, ChannelError> {
        if self.is_over { Err(ChannelError::Shutdown) } else { self.inner.handle_read(now, bytes) }
    }

    fn handle_eof(&mut self, now: Instant) -> Result<(), ChannelError> {
        self.inner.handle_eof(now)
    }

    fn handle_writable(&mut self, now: Instant, bytes: usize) {
        self.inner.handle_writable(now, bytes);
    }

    fn handle_window(&mut self, bytes: usize) {
        self.inner.handle_window(bytes);
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ChannelError> {
        self.inner.handle_timeout(now)
    }

    fn poll_work(&mut self) -> Option<Work> {
        self.inner.poll_work()
    }

    fn handle_work(&mut self, now: Instant, done: Done) -> Result<(), ChannelError> {
        self.inner.handle_work(now, done)
    }

    fn handle_wall_clock(&mut self, now: UnixTime) {
        self.inner.handle_wall_clock(now);
    }

    fn next_incoming(&mut self, now: Instant) -> Result<Option<Incoming<'_>>, ChannelError> {
        self.inner.next_incoming(now)
    }

    fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    fn propose_circ_id(&self, rng: &mut Rng) -> CircId {
        self.inner.propose_circ_id(rng)
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        self.inner.poll_transmit(now, out)
    }

    fn send_vpadding(&mut self, now: Instant, body: &[u8]) {
        self.inner.send_vpadding(now, body);
    }

    fn export_secret(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> bool {
        self.inner.export_secret(label, context, out)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.inner.poll_timeout()
    }

    fn buffered_bytes(&self) -> usize {
        self.inner.buffered_bytes()
    }

    fn state_bytes(&self) -> usize {
        self.inner.state_bytes()
    }

    fn give_back(&mut self) {
        self.inner.give_back();
    }

    fn close(&mut self) {
        self.inner.close();
    }
}
