//! What the kernel knows of TCP connections (sock_diag(7)): windows, what is unacknowledged or unsent, and buffers, of
//! the sockets of any program in the calling thread's network namespace, without its help.

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

// From linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h and linux/tcp.h.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_DUMP: u16 = 0x300;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const IPPROTO_TCP: u8 = 6;
const TCP_ESTABLISHED: u32 = 1;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_SKMEMINFO: u16 = 7;

const HEADER_BYTES: usize = 16;
/// inet_diag_req_v2: family, protocol, what else is wanted, padding, states, and a socket's id.
const REQUEST_BYTES: usize = 56;
/// inet_diag_msg, before attributes.
const ANSWER_BYTES: usize = 72;
/// What the kernel puts into one answer at most is 32 KiB.
const BUFFER_BYTES: usize = 64 * 1024;

/// A connection, as its end in this namespace has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpConnection {
    /// This end's address.
    pub local: SocketAddr,
    /// The other end's.
    pub peer: SocketAddr,
    /// The congestion window, in packets.
    pub cwnd_packets: u32,
    /// Packets that were sent and are not acknowledged.
    pub unacked_packets: u32,
    /// Bytes that were written and not sent.
    pub unsent_bytes: u32,
    /// The window that this end advertises, in bytes; `None` before Linux 6.2, which does not tell.
    pub window_bytes: Option<u32>,
    /// The memory of what was written and is not acknowledged, in bytes.
    pub queued_bytes: u32,
    /// The most that this may be.
    pub buffer_bytes: u32,
}

impl TcpConnection {
    /// Whether the kernel calls the socket writable: a third of the buffer is free, as its `sk_stream_is_writeable` has
    /// it.
    pub fn is_writable(&self) -> bool {
        self.buffer_bytes.saturating_sub(self.queued_bytes) >= self.queued_bytes / 2
    }
}

/// The established TCP connections of the calling thread's namespace.
///
/// # Errors
///
/// The kernel's; those of a kernel without sock_diag among them.
pub fn established() -> io::Result<Vec<TcpConnection>> {
    let fd = net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    let mut all = Vec::new();
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        net::sendto(&fd, &request(family), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        read_answers(&fd, &mut all)?;
    }
    Ok(all)
}

fn request(family: AddressFamily) -> Vec<u8> {
    let len = HEADER_BYTES + REQUEST_BYTES;
    let mut bytes = Vec::with_capacity(len);
    bytes.extend((len as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    bytes.resize(HEADER_BYTES, 0);
    let wanted = [INET_DIAG_INFO, INET_DIAG_SKMEMINFO].map(|attribute| 1u8 << (attribute - 1));
    bytes.extend([family.as_raw() as u8, IPPROTO_TCP, wanted[0] | wanted[1], 0]);
    bytes.extend((1u32 << TCP_ESTABLISHED).to_ne_bytes());
    bytes.resize(len, 0);
    bytes
}

fn read_answers(fd: &OwnedFd, all: &mut Vec<TcpConnection>) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let (len, _) = net::recv(fd, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = &buffer[..len];
        while let Some((kind, body)) = take_message(&mut rest) {
            match kind {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => {
                    let error = word(body, 0).map_or(0, |error| error as i32);
                    return Err(Errno::from_raw_os_error(error.saturating_neg()).into());
                }
                SOCK_DIAG_BY_FAMILY => all.extend(connection(body)),
                _ => {}
            }
        }
    }
}

/// The next message and its kind; messages are padded to four bytes.
fn take_message<'a>(rest: &mut &'a [u8]) -> Option<(u16, &'a [u8])> {
    let len = word(rest, 0)? as usize;
    let message = rest.get(..len).filter(|_| len >= HEADER_BYTES)?;
    *rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    Some((half(message, 4)?, &message[HEADER_BYTES..]))
}

/// One connection, if all of it is there.
fn connection(message: &[u8]) -> Option<TcpConnection> {
    let family = *message.first()?;
    let address = |at: usize| -> Option<IpAddr> {
        match i32::from(family) {
            libc::AF_INET => Some(Ipv4Addr::from(*message.get(at..)?.first_chunk::<4>()?).into()),
            libc::AF_INET6 => Some(Ipv6Addr::from(*message.get(at..)?.first_chunk::<16>()?).into()),
            _ => None,
        }
    };
    // The id's ports and addresses are in the network's order.
    let port = |at: usize| Some(u16::from_be_bytes(*message.get(at..)?.first_chunk::<2>()?));
    let local = SocketAddr::new(address(8)?, port(4)?);
    let peer = SocketAddr::new(address(24)?, port(6)?);
    let (mut info, mut memory): (&[u8], &[u8]) = (&[], &[]);
    let mut rest = message.get(ANSWER_BYTES..)?;
    while let Some((kind, value)) = take_attribute(&mut rest) {
        match kind {
            INET_DIAG_INFO => info = value,
            INET_DIAG_SKMEMINFO => memory = value,
            _ => {}
        }
    }
    // Places of tcp_info's fields and of SK_MEMINFO_VARS.
    Some(TcpConnection {
        local,
        peer,
        cwnd_packets: word(info, 80)?,
        unacked_packets: word(info, 24)?,
        unsent_bytes: word(info, 144)?,
        window_bytes: word(info, 232),
        queued_bytes: word(memory, 20)?,
        buffer_bytes: word(memory, 12)?,
    })
}

fn take_attribute<'a>(rest: &mut &'a [u8]) -> Option<(u16, &'a [u8])> {
    let (len, kind) = (usize::from(half(rest, 0)?), half(rest, 2)?);
    let value = rest.get(4..len)?;
    *rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, value))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    /// The connection's end at `local`.
    fn of(local: SocketAddr) -> TcpConnection {
        let all = established().unwrap();
        *all.iter().find(|connection| connection.local == local).unwrap()
    }

    #[test]
    fn what_nobody_reads_is_seen_to_wait() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(host) else { continue };
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            let (here, there) = (near.local_addr().unwrap(), far.local_addr().unwrap());
            let idle = of(here);
            assert_eq!((idle.peer, idle.unsent_bytes, idle.unacked_packets), (there, 0, 0));
            assert!(idle.is_writable() && idle.cwnd_packets > 0 && idle.buffer_bytes > 0);

            near.set_nonblocking(true).unwrap();
            let mut written = 0;
            while let Ok(some) = near.write(&[7; 65536]) {
                written += some;
            }
            // The reader's buffer is full, and then the writer's: neither takes anything more.
            let full = of(here);
            assert!(!full.is_writable() && full.unsent_bytes > 0, "{full:?}");
            assert!(full.queued_bytes as usize >= full.unsent_bytes as usize, "{full:?}");
            // What it may have more of is less than what it has.
            let window = of(there).window_bytes;
            assert!(window.is_none_or(|bytes| (bytes as usize) < written), "{window:?}");

            let mut read = vec![0; written];
            far.read_exact(&mut read).unwrap();
            assert!(read.iter().all(|byte| *byte == 7));
            assert!(of(here).is_writable());
        }
    }

    #[test]
    fn an_answer_that_is_cut_short_has_no_connection() {
        let mut message = vec![0; ANSWER_BYTES];
        message[0] = libc::AF_INET as u8;
        let attribute = |kind: u16, len: usize| -> Vec<u8> {
            let head = [(4 + len as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
            [head, vec![1; len]].concat()
        };
        let whole =
            [message.clone(), attribute(INET_DIAG_INFO, 232), attribute(INET_DIAG_SKMEMINFO, 36)].concat();
        let found = connection(&whole).unwrap();
        assert_eq!((found.window_bytes, found.cwnd_packets), (None, 0x0101_0101), "an older kernel's");
        for len in 0..whole.len() - 12 {
            assert_eq!(connection(&whole[..len]), None, "{len}");
        }
        let mut rest: &[u8] = &[200, 0, 0, 0, 1, 0];
        assert!(take_message(&mut rest).is_none());
        let mut rest: &[u8] = &[2, 0, 1, 0];
        assert!(take_attribute(&mut rest).is_none(), "shorter than its own head");
    }
}
