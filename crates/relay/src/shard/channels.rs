//! Channels begin and are read: bytes of sockets go in, cells go to the core, and what is slow goes to workers.

use super::Relay;
use super::carrier::Carrier;
use crate::job::JobResult;
use crate::keys::LinkKey;
use crate::language::Output;
use core::net::SocketAddr;
use heddle_proto::bucket::Direction;
use heddle_proto::channel::{Channel, ChannelError, Done, Incoming, Opened, Role};
use heddle_proto::credit::CreditCell;
use heddle_seam::node::{JobId, SocketId};
use heddle_seam::stopwatch::Step;
use heddle_seam::time::Instant;

/// Channels begin.
impl Relay {
    pub(super) fn on_accepted(
        &mut self,
        now: Instant,
        socket: SocketId,
        local: SocketAddr,
        peer: SocketAddr,
    ) {
        let Some(instead) = self.core.admit_channel(peer.ip()) else {
            return self.core.push(Output::Abort { socket });
        };
        self.end_crowded(now, instead);
        let channel = self.transport.accept(now, self.wall, local, peer);
        let link = self.add_carrier(socket, channel, Role::Responder, local, peer);
        self.core.begin_accepted(link);
    }

    /// A dialled socket is connected: a channel's, or a stream's.
    pub(super) fn on_connected(&mut self, now: Instant, socket: SocketId, local: SocketAddr) {
        let Some((target, peer)) = self.core.dial_under_way(socket) else {
            return self.core.on_stream_connected(socket);
        };
        match self.core.admit_dialled(peer.ip()) {
            Ok(instead) => self.end_crowded(now, instead),
            Err(_) => {
                self.core.push(Output::Abort { socket });
                self.core.on_dial_failed(socket, None, None);
                return;
            }
        }
        let channel = self.transport.dial(now, self.wall, &target, peer);
        let link = self.add_carrier(socket, channel, Role::Initiator, local, peer);
        self.core.begin_dialled(link);
    }

    fn add_carrier(
        &mut self,
        socket: SocketId,
        channel: Box<dyn Channel>,
        role: Role,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> LinkKey {
        let link = self.core.add_channel(socket, role, peer);
        let limited = self.core.is_limited(peer.ip());
        self.carriers.insert(link, Carrier::new(channel, socket, local, limited));
        self.core.list(link);
        link
    }

    /// Channels end to make room.
    fn end_crowded(&mut self, now: Instant, links: impl IntoIterator<Item = LinkKey>) {
        links.into_iter().for_each(|link| self.end_channel(now, link, ChannelError::Crowded));
    }
}

/// Channels are read.
impl Relay {
    /// Hands the bytes that were read to a channel and works off the cells they complete.
    pub(super) fn on_channel_read(&mut self, now: Instant, link: LinkKey, len: usize) {
        let Some(carrier) = self.carriers.get(link) else {
            return;
        };
        if carrier.is_limited() {
            self.core.on_passed(Direction::Read, len);
        }
        let mut used = 0;
        while used < len {
            let Some(carrier) = self.carriers.get_mut(link) else {
                return;
            };
            match carrier.handle_read(now, &self.scratch[used..len]) {
                Ok(taken) => used += taken,
                Err(error) => return self.end_channel(now, link, error),
            }
            self.drain_channel(now, link);
        }
        self.count_handshake(now, link, len);
        self.start_work(link);
    }

    /// What came is counted if the channel still is not open, and may be more than its peer's share.
    fn count_handshake(&mut self, now: Instant, link: LinkKey, bytes: usize) {
        if self.core.count_handshake(link, bytes as u64).is_err() {
            self.end_channel(now, link, ChannelError::Crowded);
        }
    }

    /// A time that a channel named has come.
    pub(super) fn on_channel_timeout(&mut self, now: Instant, link: LinkKey) {
        let Some(carrier) = self.carriers.get_mut(link) else { return };
        match carrier.channel_mut().handle_timeout(now) {
            Ok(()) => {
                self.core.list(link);
                self.start_work(link);
            }
            Err(error) => self.end_channel(now, link, error),
        }
    }

    /// Works off what a channel has for us.
    fn drain_channel(&mut self, now: Instant, link: LinkKey) {
        loop {
            let Some(carrier) = self.carriers.get_mut(link) else {
                return;
            };
            match carrier.channel_mut().next_incoming(now) {
                Ok(Some(Incoming::Cell { circ_id, command, body })) => {
                    let lap = self.stopwatch.begin();
                    self.core.on_channel_cell(link, circ_id, command, body);
                    self.stopwatch.end(lap, Step::Cell);
                }
                Ok(Some(Incoming::Opened(opened))) => {
                    if let Err(error) = self.on_opened(now, link, opened) {
                        return self.end_channel(now, link, error);
                    }
                }
                Ok(Some(Incoming::Vpadding { body })) => match CreditCell::parse(body) {
                    Some(Ok(cell)) => {
                        if let Some(answer) = self.core.on_credit_cell(link, cell) {
                            carrier.channel_mut().send_vpadding(now, &answer.encode());
                        }
                    }
                    // A later version's: whoever needs to be understood says so in the agreement.
                    Some(Err(_)) => {}
                    None => {
                        if let Some(pairs) = &mut self.pairs {
                            pairs.on_vpadding(&self.core, link, body);
                        }
                    }
                },
                Ok(None) => break,
                Err(error) => return self.end_channel(now, link, error),
            }
        }
        self.core.list(link);
    }

    /// A channel's handshake is over. Before any cell of a circuit the channel says whether we count these.
    fn on_opened(&mut self, now: Instant, link: LinkKey, opened: Opened) -> Result<(), ChannelError> {
        let instead = self.core.on_opened(link, opened)?;
        self.end_crowded(now, instead);
        if let Some(agreement) = self.core.agree_on_credit(link)
            && let Some(carrier) = self.carriers.get_mut(link)
        {
            carrier.channel_mut().send_vpadding(now, &agreement.encode());
        }
        self.on_channel_opened(now, link);
        Ok(())
    }
}

/// What workers do for channels, and what came of it.
impl Relay {
    /// Hands on what a channel wants done, after bytes or a time came.
    fn start_work(&mut self, link: LinkKey) {
        let work = self.carriers.get_mut(link).and_then(|carrier| carrier.channel_mut().poll_work());
        if let Some(work) = work {
            self.core.begin_work(link, work);
        }
    }

    /// A worker is done.
    pub(super) fn on_computed(&mut self, now: Instant, id: JobId, result: JobResult) {
        match result {
            JobResult::Onionskin(result) => self.core.on_answered(id, result),
            JobResult::Channel(done) => {
                if let Some(link) = self.core.finish_work(id) {
                    self.on_work_done(now, link, done);
                }
            }
        }
    }

    fn on_work_done(&mut self, now: Instant, link: LinkKey, done: Done) {
        // The channel may have ended meanwhile.
        let Some(carrier) = self.carriers.get_mut(link) else { return };
        match carrier.channel_mut().handle_work(now, done) {
            Ok(()) => {
                self.drain_channel(now, link);
                self.start_work(link);
            }
            Err(error) => self.end_channel(now, link, error),
        }
    }
}
