//! Sockets connect: who may have a channel, and whose handshake is under way.

use super::Core;
use crate::admission::Refusal;
use crate::job::Job;
use crate::keys::LinkKey;
use crate::language::Output;
use crate::links::Link;
use core::net::{IpAddr, SocketAddr};
use heddle_proto::channel::{ChannelError, Target, Work};
use heddle_seam::node::{JobId, SocketId};

impl Core {
    /// Whether somebody who connects from an address may have a channel. Returns those that are to end for it.
    pub fn admit_channel(&mut self, addr: IpAddr) -> Option<Vec<LinkKey>> {
        if self.draining {
            return None;
        }
        if !self.links.is_addr_listed(addr)
            && let Some(why) = self.dos.refuses_connection(self.now, addr)
        {
            self.admission.note("channel", why);
            return None;
        }
        self.admission.admit_channel(self.now, self.links.party_at(addr)).ok()
    }

    /// A channel that somebody opened is there, and its handshake begins.
    pub fn begin_accepted(&mut self, link: LinkKey) {
        let Some(party) = self.links.get(link).map(Link::party) else { return };
        self.admission.channel_begins(self.now, link, party);
        self.admission.handshake_begins(self.now, link, party);
    }

    /// Whom a socket is being dialled for, and its address.
    pub fn dial_under_way(&self, socket: SocketId) -> Option<(Target, SocketAddr)> {
        self.dials.under_way(socket)
    }

    /// Whether a channel to an address that was dialled may begin its handshake. Returns one that is to end for it.
    pub fn admit_dialled(&mut self, addr: IpAddr) -> Result<Option<LinkKey>, Refusal> {
        self.admission.admit_handshake(self.now, self.links.party_at(addr))
    }

    /// A channel that we dialled is there, and its handshake begins.
    pub fn begin_dialled(&mut self, link: LinkKey) {
        if let Some(party) = self.links.get(link).map(Link::party) {
            self.admission.handshake_begins(self.now, link, party);
        }
    }

    /// Bytes came on a channel. They count if it still is not open, and may be more than its peer's share.
    pub fn count_handshake(&mut self, link: LinkKey, bytes: u64) -> Result<(), Refusal> {
        match self.links.on_received(link, bytes) {
            Some(before) => self.admission.handshake_received(link, before, bytes),
            None => Ok(()),
        }
    }

    /// A channel has work for a worker.
    pub fn begin_work(&mut self, link: LinkKey, work: Work) {
        let id = self.jobs.begin_of_channel(link);
        self.outputs.push_back(Output::Compute { id, job: Job::Channel(work) });
    }

    /// A worker is done with what a channel wanted.
    pub fn finish_work(&mut self, id: JobId) -> Option<LinkKey> {
        self.jobs.finish_of_channel(id)
    }

    /// Sockets that nobody needs any more.
    pub fn take_unneeded(&mut self) -> Vec<(SocketId, ChannelError)> {
        self.dials.take_unneeded()
    }
}
