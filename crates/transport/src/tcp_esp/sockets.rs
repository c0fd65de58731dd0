//! The sockets of the endpoint on its stack, and what it wants of the driver for them, in order.

use super::spares::Spares;
use crate::connections::ConnKey;
use core::net::SocketAddr;
use foldhash::fast::FixedState;
use heddle_esp::beet;
use heddle_seam::language::Plain;
use heddle_seam::node::{Output, SocketId, StackId};
use std::collections::{HashMap, VecDeque};

/// Bytes that are read of a socket at once.
const READ_LEN: usize = 32 * 1024;
/// Bytes of packets that are handed over at once, all of one length.
const PACKETS_BYTES_MAX: usize = 64 * 1024;

/// What is wanted. The driver takes all of it after each input, so there is at most what one input brings about: what a
/// batch of datagrams had in it, or what credits allow to be sent.
#[derive(Debug)]
enum Wish {
    Connect { socket: SocketId, to: SocketAddr },
    Interest { socket: SocketId, read: bool, write: bool },
    Send { socket: SocketId, bytes: Vec<u8> },
    Abort { socket: SocketId },
    Packets { stride: usize, bytes: Vec<u8> },
}

/// What the driver still opens, and whether it accepts what others open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) sockets: usize,
    pub(super) accepts: bool,
}

pub(crate) struct Sockets {
    stack: StackId,
    dialled: u64,
    room: Room,
    /// Whether connections are to hear of it.
    is_room_news: bool,
    /// Whose each is; never iterated.
    owners: HashMap<SocketId, ConnKey, FixedState>,
    wishes: VecDeque<Wish>,
    scratch: Box<[u8]>,
    /// For what is handed over in batches.
    pub(super) spares: Spares,
}

impl Sockets {
    pub(super) fn new(stack: StackId) -> Self {
        Sockets {
            stack,
            dialled: 0,
            // A driver that never says how many it opens opens all.
            room: Room { sockets: usize::MAX, accepts: true },
            is_room_news: false,
            owners: HashMap::with_hasher(FixedState::with_seed(0)),
            wishes: VecDeque::new(),
            scratch: vec![0; READ_LEN].into_boxed_slice(),
            spares: Spares::default(),
        }
    }

    pub(super) fn owner(&self, socket: SocketId) -> Option<ConnKey> {
        self.owners.get(&socket).copied()
    }

    /// The driver says what it opens and accepts from now on.
    pub(super) fn set_room(&mut self, room: Room) {
        (self.room, self.is_room_news) = (room, true);
    }

    pub(super) fn room(&self) -> Room {
        self.room
    }

    /// The same, if the driver said so since this was last asked, or it opens no more.
    pub(super) fn take_room_news(&mut self) -> Option<Room> {
        core::mem::take(&mut self.is_room_news).then_some(self.room)
    }

    pub(super) fn connect(&mut self, key: ConnKey, to: SocketAddr) -> SocketId {
        let socket = SocketId::dialled(self.dialled).on(self.stack);
        self.dialled += 1;
        if self.room.sockets < usize::MAX {
            self.room.sockets = self.room.sockets.saturating_sub(1);
            self.is_room_news |= self.room.sockets == 0;
        }
        self.owners.insert(socket, key);
        self.wishes.push_back(Wish::Connect { socket, to });
        socket
    }

    /// The driver accepted one.
    pub(super) fn take(&mut self, socket: SocketId, key: ConnKey) {
        self.owners.insert(socket, key);
    }

    pub(super) fn interest(&mut self, socket: SocketId, read: bool, write: bool) {
        self.wishes.push_back(Wish::Interest { socket, read, write });
    }

    pub(super) fn send(&mut self, socket: SocketId, more: &[u8]) {
        match self.wishes.back_mut() {
            Some(Wish::Send { socket: last, bytes }) if *last == socket => bytes.extend_from_slice(more),
            _ => {
                let mut bytes = self.spares.take();
                bytes.extend_from_slice(more);
                self.wishes.push_back(Wish::Send { socket, bytes });
            }
        }
    }

    /// Ends one, if there is one.
    pub(super) fn abort(&mut self, socket: SocketId) {
        if self.owners.remove(&socket).is_some() {
            self.wishes.push_back(Wish::Abort { socket });
        }
    }

    /// Ends one that the driver accepted for nobody.
    pub(super) fn refuse(&mut self, socket: SocketId) {
        self.wishes.push_back(Wish::Abort { socket });
    }

    /// The driver says that one is gone. Tells whose it was.
    pub(super) fn forget(&mut self, socket: SocketId) -> Option<ConnKey> {
        self.owners.remove(&socket)
    }

    /// A packet came for the stack.
    pub(super) fn receive(&mut self, header: &[u8; beet::HEADER_LEN], payload: &[u8]) {
        let len = header.len() + payload.len();
        let fits = |stride: usize, bytes: &[u8]| {
            let is_whole = bytes.len().is_multiple_of(stride);
            is_whole && len <= stride && bytes.len() + len <= PACKETS_BYTES_MAX
        };
        match self.wishes.back_mut() {
            Some(Wish::Packets { stride, bytes }) if fits(*stride, bytes) => {
                bytes.extend_from_slice(header);
                bytes.extend_from_slice(payload);
            }
            _ => {
                let mut bytes = self.spares.take();
                bytes.extend_from_slice(header);
                bytes.extend_from_slice(payload);
                self.wishes.push_back(Wish::Packets { stride: len, bytes });
            }
        }
    }

    pub(super) fn poll(&mut self, out: &mut Vec<u8>) -> Option<Output<Plain>> {
        Some(match self.wishes.pop_front()? {
            Wish::Connect { socket, to } => Output::Connect { socket, to },
            Wish::Interest { socket, read, write } => Output::Interest { socket, read, write },
            Wish::Abort { socket } => Output::Abort { socket },
            Wish::Send { socket, bytes } => {
                self.spares.hand_over(bytes, out);
                Output::Send { socket }
            }
            Wish::Packets { stride, bytes } => {
                self.spares.hand_over(bytes, out);
                Output::Packets { stack: self.stack, stride }
            }
        })
    }

    pub(super) fn recv_buf(&mut self) -> &mut [u8] {
        &mut self.scratch
    }

    /// What the driver put there.
    pub(super) fn read(&self, len: usize) -> &[u8] {
        &self.scratch[..len.min(self.scratch.len())]
    }
}
