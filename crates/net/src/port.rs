//! One UDP socket: datagrams in and out, and what the kernel does not take at once.
//!
//! Where the kernel has them, segmentation and coalescing (UDP_SEGMENT, UDP_GRO) carry many datagrams in one call,
//! control messages carry ECN and our own address, and datagrams are never fragmented; all of that is `quinn-udp`'s.
//! Where it has not, or where the operator wants none of it, the port is *plain*: no special socket options, one
//! datagram a call, no ECN, and the kernel picks the source address.

use crate::counters::Counters;
use crate::sys;
use bytes::BytesMut;
use heddle_seam::datagrams::{Datagrams, IdPrefix, Transmit};
use quinn_udp::{EcnCodepoint, RecvMeta, UdpSocketState};
use rustix::fd::OwnedFd;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};

/// Messages of one receive. With coalescing each may hold 64 datagrams, but one in two is an acknowledgement alone.
const RECV_BATCH: usize = 8;
/// Datagrams of one round of a plain port.
const RECV_BATCH_PLAIN: usize = 32;
/// The longest message: what an IPv4 packet can carry, coalesced or not.
const MESSAGE_LEN_MAX: usize = 64 * 1024;
/// What one segmented send may carry: an IPv4 packet less its headers.
const SEND_LEN_MAX: usize = 65_535 - 20 - 8;
/// Bytes that wait while the kernel has no room, a segmented send or a few. What comes beyond is dropped.
const WAITING_BYTES_MAX: usize = 256 * 1024;
/// What is asked of the kernel for each direction. It gives as much as `net.core.rmem_max` and `wmem_max` let it.
const BUFFER_BYTES: usize = 4 << 20;

/// What a port turned out to be, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortInfo {
    pub local: SocketAddr,
    /// Whether the kernel segments, coalesces and tells ECN and addresses; otherwise the port is plain.
    pub offload: bool,
    /// What the kernel keeps for datagrams that were not read yet, as it counts (SO_RCVBUF).
    pub recv_buffer_bytes: usize,
    /// What the kernel keeps for datagrams that did not leave yet, as it counts (SO_SNDBUF).
    pub send_buffer_bytes: usize,
}

pub(crate) struct Port {
    socket: UdpSocket,
    info: PortInfo,
    /// `None` for a plain port.
    offload: Option<UdpSocketState>,
    /// A receive may find something.
    pub readable: bool,
    /// A send may find room.
    pub writable: bool,
    /// Whether the kernel is to tell when there is room.
    pub room_watched: bool,
    /// Whether it stands in the loop's queue of ports to receive from.
    pub queued: bool,
    /// What waits for room, each with how much of it is sent; oldest first.
    waiting: VecDeque<Waiting>,
    buffered_bytes: usize,
}

struct Waiting {
    transmit: Transmit,
    data: Vec<u8>,
    sent: usize,
}

impl Port {
    /// Takes a bound socket. `offload` asks for what the kernel can do; see the module.
    pub fn new(socket: UdpSocket, offload: bool) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let state = match offload {
            true => UdpSocketState::new((&socket).into()).ok(),
            false => None,
        };
        // A kernel that gives less gives what it can.
        let _ = sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES);
        let _ = sockopt::set_socket_send_buffer_size(&socket, BUFFER_BYTES);
        let info = PortInfo {
            local: socket.local_addr()?,
            offload: state.is_some(),
            recv_buffer_bytes: sockopt::socket_recv_buffer_size(&socket)?,
            send_buffer_bytes: sockopt::socket_send_buffer_size(&socket)?,
        };
        Ok(Port {
            socket,
            info,
            offload: state,
            readable: true,
            writable: true,
            room_watched: false,
            queued: false,
            waiting: VecDeque::new(),
            buffered_bytes: 0,
        })
    }

    /// A second socket of this port, which receives what has `prefix` from now on. It has a buffer of its own, so what
    /// fills this one keeps nothing from there.
    ///
    /// The two are of one group (SO_REUSEPORT) in which a program chooses. This one was bound without that option, so
    /// it is certain that nobody else had the port. Whoever of the same user joins the group later is not chosen, but
    /// may put another program in the place of ours, or bind a single address where we have all: nobody but the relay
    /// ought to run as its user. The group cannot be closed behind the two, because Linux asks the program only where
    /// the socket that it finds first still has the option, and by that socket it also judges whoever would join.
    ///
    /// Where it fails the port is as it was, and nobody can join it.
    pub fn split(&self, prefix: IdPrefix) -> io::Result<Port> {
        if self.offload.is_none() {
            return Err(io::Error::new(ErrorKind::Unsupported, "the port is plain"));
        }
        let one_family = !self.info.local.is_ipv6() || sockopt::ipv6_v6only(&self.socket)?;
        let second = open(self.info.local.ip(), one_family)?;
        sockopt::set_socket_reuseport(&self.socket, true)?;
        // Whatever fails closes the second socket.
        let second =
            join(&self.socket, second, self.info.local, prefix).and_then(|second| Port::new(second, true));
        if second.is_err() {
            self.unsplit();
        }
        second
    }

    /// The second socket is closed, or is about to be: the port has one again, which nobody can join.
    pub fn unsplit(&self) {
        // Neither can fail but where there is nothing to undo.
        let _ = sys::choose_no_more(&self.socket);
        let _ = sockopt::set_socket_reuseport(&self.socket, false);
    }

    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    pub fn info(&self) -> PortInfo {
        PortInfo { offload: self.offload.is_some(), ..self.info }
    }

    /// Receives once, or a few times from a plain port, and hands on what came. Returns how many bytes.
    ///
    /// What is handed on is a part of `buffer`, which is replaced while anybody keeps some of it: who wants to keep a
    /// datagram copies it.
    pub fn recv(
        &mut self,
        buffer: &mut RecvBuffer,
        counters: &mut Counters,
        mut take: impl FnMut(Datagrams),
    ) -> usize {
        let received = match &self.offload {
            Some(state) => recv_offloaded(state, &self.socket, buffer, counters, &mut take),
            None => recv_plain(&self.socket, buffer, counters, &mut take),
        };
        match received {
            Ok((bytes, more)) => {
                self.readable = more;
                bytes
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                0
            }
            // The sandbox has no such call; from now on the port is plain.
            Err(error) if self.offload.is_some() && is_missing(&error) => {
                self.offload = None;
                // A plain receive could not tell where a coalesced message is to be cut.
                let _ = sys::set_option(&self.socket, libc::SOL_UDP, libc::UDP_GRO, 0);
                0
            }
            // Errors of an earlier send, which the next receive does not see again.
            Err(_) => 0,
        }
    }

    /// Sends what the node handed over, or holds it while the kernel has no room. `data` is empty afterwards, and may
    /// be another buffer.
    pub fn send(&mut self, transmit: Transmit, data: &mut Vec<u8>, counters: &mut Counters) {
        let sent = match self.waiting.is_empty() {
            true => self.send_from(&transmit, data, 0, counters),
            false => 0,
        };
        if sent < data.len() {
            if self.buffered_bytes + data.len() > WAITING_BYTES_MAX {
                counters.datagrams_dropped += datagrams(data.len() - sent, transmit.stride);
            } else {
                self.buffered_bytes += data.len();
                self.waiting.push_back(Waiting { transmit, data: std::mem::take(data), sent });
            }
        }
        data.clear();
    }

    /// Sends what waits, as far as the kernel has room.
    pub fn flush(&mut self, counters: &mut Counters) {
        while self.writable
            && let Some(mut first) = self.waiting.pop_front()
        {
            first.sent = self.send_from(&first.transmit, &first.data, first.sent, counters);
            if first.sent < first.data.len() {
                return self.waiting.push_front(first);
            }
            self.buffered_bytes -= first.data.len();
        }
    }

    /// Sends `data` from `sent` on and returns how far it got: to the end unless the kernel has no room.
    fn send_from(
        &mut self,
        transmit: &Transmit,
        data: &[u8],
        mut sent: usize,
        counters: &mut Counters,
    ) -> usize {
        debug_assert!(transmit.stride > 0, "datagrams have a length");
        let stride = transmit.stride.max(1);
        while self.writable && sent < data.len() {
            let segments = self.offload.as_ref().map_or(1, UdpSocketState::max_gso_segments);
            let len = (SEND_LEN_MAX / stride).clamp(1, segments).saturating_mul(stride);
            let batch = &data[sent..data.len().min(sent.saturating_add(len))];
            counters.datagram_sends += 1;
            let result = self.send_batch(transmit, batch);
            match result {
                Ok(()) => {
                    counters.datagrams_sent += datagrams(batch.len(), stride);
                    counters.datagram_send_bytes += batch.len() as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    counters.datagram_sends_blocked += 1;
                    self.writable = false;
                    return sent;
                }
                // A card that cannot segment said so just now; the same datagrams go one by one.
                Err(_) if batch.len() > stride && self.segments_max() < segments => continue,
                // Too long for the path, no route, not allowed: lost, as anywhere on the way.
                Err(_) => counters.datagrams_dropped += datagrams(batch.len(), stride),
            }
            sent += batch.len();
        }
        sent
    }

    fn segments_max(&self) -> usize {
        self.offload.as_ref().map_or(1, UdpSocketState::max_gso_segments)
    }

    fn send_batch(&self, transmit: &Transmit, batch: &[u8]) -> io::Result<()> {
        let to = self.on_this_family(transmit.to);
        let Some(state) = &self.offload else {
            return self.socket.send_to(batch, to).map(drop);
        };
        let transmit = quinn_udp::Transmit {
            destination: to,
            ecn: EcnCodepoint::from_bits(transmit.ecn),
            contents: batch,
            segment_size: Some(transmit.stride),
            src_ip: transmit.from.filter(|from| !from.is_unspecified()),
        };
        state.try_send((&self.socket).into(), &transmit)
    }

    /// An IPv4 address as a socket of both families wants it.
    fn on_this_family(&self, to: SocketAddr) -> SocketAddr {
        match to {
            SocketAddr::V4(to) if self.info.local.is_ipv6() => {
                SocketAddrV6::new(to.ip().to_ipv6_mapped(), to.port(), 0, 0).into()
            }
            _ => to,
        }
    }
}

/// Room for one receive, shared by all ports of a loop: [`MESSAGE_LEN_MAX`] bytes for each message.
pub(crate) struct RecvBuffer([BytesMut; RECV_BATCH]);

impl RecvBuffer {
    pub fn new() -> Self {
        RecvBuffer(std::array::from_fn(|_| BytesMut::zeroed(MESSAGE_LEN_MAX)))
    }

    /// Makes a message whole again that was handed on in part.
    fn restore(message: &mut BytesMut) {
        message.clear();
        if message.try_reclaim(MESSAGE_LEN_MAX) {
            // SAFETY: reclaiming allocates nothing, so these are bytes of the allocation that `zeroed` made. All of
            // them were initialised then, and nobody can make them otherwise.
            #[allow(unsafe_code)]
            unsafe {
                message.set_len(MESSAGE_LEN_MAX);
            }
        } else {
            *message = BytesMut::zeroed(MESSAGE_LEN_MAX);
        }
    }
}

/// Returns the bytes that came, and whether there may be more.
fn recv_offloaded(
    state: &UdpSocketState,
    socket: &UdpSocket,
    buffer: &mut RecvBuffer,
    counters: &mut Counters,
    take: &mut impl FnMut(Datagrams),
) -> io::Result<(usize, bool)> {
    let mut meta = [RecvMeta::default(); RECV_BATCH];
    counters.datagram_recvs += 1;
    let count = {
        let mut slices = buffer.0.each_mut().map(|message| IoSliceMut::new(message));
        state.recv(socket.into(), &mut slices, &mut meta)?
    };
    let mut bytes = 0;
    for (meta, message) in meta[..count].iter().zip(&mut buffer.0) {
        let data = message.split_to(meta.len.min(MESSAGE_LEN_MAX));
        if data.is_empty() {
            continue;
        }
        let stride = meta.stride.clamp(1, data.len());
        counters.datagrams_received += datagrams(data.len(), stride);
        bytes += data.len();
        take(Datagrams {
            from: plain_family(meta.addr),
            to: meta.dst_ip.map(|ip| ip.to_canonical()),
            ecn: meta.ecn.map_or(0, |ecn| ecn as u8),
            stride,
            data,
        });
        RecvBuffer::restore(message);
    }
    counters.datagram_recv_bytes += bytes as u64;
    Ok((bytes, count == RECV_BATCH))
}

fn recv_plain(
    socket: &UdpSocket,
    buffer: &mut RecvBuffer,
    counters: &mut Counters,
    take: &mut impl FnMut(Datagrams),
) -> io::Result<(usize, bool)> {
    let mut bytes = 0;
    for _ in 0..RECV_BATCH_PLAIN {
        counters.datagram_recvs += 1;
        let message = &mut buffer.0[0];
        let (len, from) = match socket.recv_from(message) {
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok((bytes, false)),
            Err(_) => return Ok((bytes, true)),
        };
        if len == 0 {
            continue;
        }
        counters.datagrams_received += 1;
        counters.datagram_recv_bytes += len as u64;
        bytes += len;
        let data = message.split_to(len);
        take(Datagrams { from: plain_family(from), to: None, ecn: 0, stride: len, data });
        RecvBuffer::restore(message);
    }
    Ok((bytes, true))
}

fn datagrams(bytes: usize, stride: usize) -> u64 {
    bytes.div_ceil(stride.max(1)) as u64
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::ENOPROTOOPT))
}

/// The address as the rest of the relay knows it: IPv4 as IPv4, also from a socket of both families.
fn plain_family(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddrV4::new(v4, v6.port()).into(),
            None => addr,
        },
        SocketAddr::V4(_) => addr,
    }
}

/// Binds a UDP socket. `None` is every address of both families, or of IPv4 where there is no IPv6.
pub fn bind_udp(ip: Option<IpAddr>, port: u16) -> io::Result<UdpSocket> {
    match ip {
        Some(ip) => bind(ip, port, true),
        None => bind(Ipv6Addr::UNSPECIFIED.into(), port, false)
            .or_else(|_| bind(Ipv4Addr::UNSPECIFIED.into(), port, true)),
    }
}

fn bind(ip: IpAddr, port: u16, one_family: bool) -> io::Result<UdpSocket> {
    let fd = open(ip, one_family)?;
    net::bind(&fd, &SocketAddr::new(ip, port))?;
    Ok(UdpSocket::from(fd))
}

/// A socket that may be bound to such an address.
fn open(ip: IpAddr, one_family: bool) -> io::Result<OwnedFd> {
    let family = if ip.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = net::socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
    if ip.is_ipv6() {
        sys::set_one_family(&fd, one_family);
    }
    Ok(fd)
}

/// Has `second` share the address of `first`, and receive what has `prefix`.
fn join(first: &UdpSocket, second: OwnedFd, local: SocketAddr, prefix: IdPrefix) -> io::Result<UdpSocket> {
    sockopt::set_socket_reuseport(&second, true)?;
    net::bind(&second, &local)?;
    sys::choose_by_prefix(first, prefix)?;
    Ok(UdpSocket::from(second))
}

#[cfg(test)]
mod tests;
