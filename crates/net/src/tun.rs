//! TUN devices: a host's network card whose other side is a program.
//!
//! The kernel hands over what a card that segments and checksums by itself would get: packets of up to 64 KiB, each
//! behind a [`HEADER_BYTES`] header that says what is still to be done (`struct virtio_net_hdr`, VIRTIO 1.2, section
//! 5.1.6). It takes packets in the same form. A plain device has packets as they are on a wire instead, for relays' own
//! stacks where the system gives them no better one.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::path::Path;

/// The header in front of each packet.
pub const HEADER_BYTES: usize = 10;

/// The longest packet with its header.
pub const FRAME_BYTES_MAX: usize = HEADER_BYTES + 65_535;

/// An open TUN device. The device ends when this is dropped.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
    has_header: bool,
}

impl Tun {
    /// Makes the device `name` in the calling thread's network namespace. `device` is usually `/dev/net/tun`.
    ///
    /// # Errors
    ///
    /// Those of opening `device`, EPERM without CAP_NET_ADMIN over the namespace, EBUSY when the name is taken, EINVAL
    /// when it is longer than 15 bytes.
    pub fn open(device: &Path, name: &str) -> io::Result<Tun> {
        let tun = Tun::make(device, name, true)?;
        set_header(&tun.fd)?;
        let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        // UDP came in Linux 6.2; without it the kernel segments datagrams itself.
        if offload(&tun.fd, tcp | libc::TUN_F_USO4 | libc::TUN_F_USO6).is_err() {
            offload(&tun.fd, tcp)?;
        }
        Ok(tun)
    }

    /// The same for a device of whole packets, as they are on a wire, without a header.
    ///
    /// # Errors
    ///
    /// As of [`Self::open`].
    pub(crate) fn open_plain(device: &Path, name: &str) -> io::Result<Tun> {
        Tun::make(device, name, false)
    }

    /// A device that somebody else made, plain or with a header.
    pub(crate) fn from_fd(fd: OwnedFd, has_header: bool) -> Tun {
        Tun { fd, has_header }
    }

    /// Whether a header stands in front of each packet, and the kernel leaves segmenting and checksums to us.
    pub(crate) fn has_header(&self) -> bool {
        self.has_header
    }

    fn make(device: &Path, name: &str, has_header: bool) -> io::Result<Tun> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open(device, flags, Mode::empty())?;
        let mut request = [0; size_of::<libc::ifreq>()];
        if name.len() >= libc::IFNAMSIZ {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        request[..name.len()].copy_from_slice(name.as_bytes());
        let header = if has_header { libc::IFF_VNET_HDR } else { 0 };
        let kind = (libc::IFF_TUN | libc::IFF_NO_PI | header) as u16;
        request[libc::IFNAMSIZ..libc::IFNAMSIZ + 2].copy_from_slice(&kind.to_ne_bytes());
        // SAFETY: TUNSETIFF reads and writes a `struct ifreq`, and the array has its size.
        #[allow(unsafe_code)]
        let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, request.as_mut_ptr()) };
        done(result)?;
        Ok(Tun { fd, has_header })
    }

    /// Reads the next packet of the host, with its header if it has one, or `None` when there is none.
    pub fn read(&self, frame: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::read(&self.fd, frame) {
            Ok(len) => Ok(Some(len)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the host a packet; `parts` together are the header and the packet.
    ///
    /// # Errors
    ///
    /// EIO while the device is down, EINVAL for what is no packet. The packet is gone then.
    pub fn write(&self, parts: &[io::IoSlice<'_>]) -> io::Result<()> {
        rustix::io::writev(&self.fd, parts)?;
        Ok(())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn set_header(fd: &OwnedFd) -> io::Result<()> {
    let bytes = HEADER_BYTES as libc::c_int;
    // SAFETY: TUNSETVNETHDRSZ reads one int, which lives until the call returns.
    #[allow(unsafe_code)]
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const bytes) };
    done(result)
}

fn offload(fd: &OwnedFd, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its flags by value.
    #[allow(unsafe_code)]
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(flags)) };
    done(result)
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
