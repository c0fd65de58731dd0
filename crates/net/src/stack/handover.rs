//! What a stack's helper and the relay say to each other: a number of sockets that are wanted, and parcels.
//!
//! | from | message |
//! |---|---|
//! | relay | how many sockets (1 byte) |
//! | helper | 0, and descriptors of sockets beside it |
//! | helper | 1, the step that failed (1 byte), the system's error (4 bytes) |
//! | helper | 2, settings that it could not write, a bit each (4 bytes), 1 if the device has a header else 0 (1 byte), and descriptors of device and listeners beside it |

use rustix::cmsg_space;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, send, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// Descriptors of a parcel; the kernel takes 253 at most (unix(7), SCM_RIGHTS).
pub(crate) const SOCKETS_MAX: usize = 64;
/// Bytes of the longest message.
const LEN_MAX: usize = 6;
const SOCKETS: u8 = 0;
const REFUSED: u8 = 1;
const MADE: u8 = 2;

/// What a helper sends.
#[derive(Debug)]
pub(super) enum Parcel {
    Sockets(Vec<OwnedFd>),
    Refused {
        step: u8,
        error: Errno,
    },
    /// The stack is there: its device and its listening sockets, which settings could not be written, a bit each, and
    /// whether the device has a header in front of packets.
    Made {
        descriptors: Vec<OwnedFd>,
        unwritten: u32,
        has_header: bool,
    },
}

/// Asks for so many sockets.
pub(super) fn ask(helper: impl AsFd, count: u8) -> io::Result<()> {
    send(helper, &[count], SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Hands sockets over; they stay open here.
pub(super) fn hand_over(relay: impl AsFd, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_beside(relay, &[SOCKETS], sockets)
}

/// Hands a stack over that is made.
pub(super) fn hand_over_made(
    relay: impl AsFd,
    descriptors: &[BorrowedFd<'_>],
    unwritten: u32,
    has_header: bool,
) -> io::Result<()> {
    let [a, b, c, d] = unwritten.to_ne_bytes();
    send_beside(relay, &[MADE, a, b, c, d, has_header.into()], descriptors)
}

fn send_beside(relay: impl AsFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(relay, &[IoSlice::new(message)], &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Says that a step failed.
pub(super) fn refuse(relay: impl AsFd, step: u8, error: &io::Error) -> io::Result<()> {
    let code = error.raw_os_error().unwrap_or(libc::EIO);
    let mut message = vec![REFUSED, step];
    message.extend(code.to_ne_bytes());
    send(relay, &message, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next parcel; `None` when the helper is gone. Descriptors for which this process has no room are missing.
///
/// # Errors
/// The system's; `WouldBlock` when there is none and the socket does not wait.
pub(super) fn receive(helper: impl AsFd) -> io::Result<Option<Parcel>> {
    let mut message = [0; LEN_MAX];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut message)];
    let received = recvmsg(helper, &mut slices, &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for piece in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = piece {
            descriptors.extend(came);
        }
    }
    match message[..received.bytes] {
        [SOCKETS] => Ok(Some(Parcel::Sockets(descriptors))),
        [REFUSED, step, a, b, c, d] => {
            let error = Errno::from_raw_os_error(i32::from_ne_bytes([a, b, c, d]));
            Ok(Some(Parcel::Refused { step, error }))
        }
        [MADE, a, b, c, d, has_header] => {
            let unwritten = u32::from_ne_bytes([a, b, c, d]);
            Ok(Some(Parcel::Made { descriptors, unwritten, has_header: has_header != 0 }))
        }
        [] => Ok(None),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

pub(super) fn set_nonblocking(socket: impl AsFd) -> Result<(), Errno> {
    let flags = fcntl_getfl(&socket)?;
    fcntl_setfl(&socket, flags | OFlags::NONBLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::fs::File;
    use std::io::Read;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn descriptors_and_refusals_arrive_and_then_the_end() {
        let (relay, helper) = pair();
        let files: Vec<File> = (0..SOCKETS_MAX).map(|_| File::open("/proc/self/comm").unwrap()).collect();
        let lent: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        hand_over(&helper, &lent).unwrap();
        hand_over(&helper, &[]).unwrap();
        refuse(&helper, 3, &Errno::PERM.into()).unwrap();
        hand_over_made(&helper, &lent[..2], 5, true).unwrap();
        let Some(Parcel::Sockets(came)) = receive(&relay).unwrap() else { panic!("descriptors came") };
        assert_eq!(came.len(), SOCKETS_MAX);
        let mut text = String::new();
        File::from(came.into_iter().next_back().unwrap()).read_to_string(&mut text).unwrap();
        assert!(!text.is_empty());
        assert!(matches!(receive(&relay).unwrap(), Some(Parcel::Sockets(none)) if none.is_empty()));
        assert!(matches!(receive(&relay).unwrap(), Some(Parcel::Refused { step: 3, error: Errno::PERM })));
        let Some(Parcel::Made { descriptors, unwritten: 5, has_header: true }) = receive(&relay).unwrap()
        else {
            panic!("it is made")
        };
        assert_eq!(descriptors.len(), 2);
        set_nonblocking(&relay).unwrap();
        assert_eq!(receive(&relay).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        ask(&relay, 7).unwrap();
        drop(helper);
        assert!(receive(&relay).is_err() || receive(&relay).unwrap().is_none());
    }
}
