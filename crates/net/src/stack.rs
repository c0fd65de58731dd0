//! A *stack*: the kernel's TCP in a network namespace of the relay's own, whose only device is one that the relay reads
//! and writes. What connects there meets neither the host's routes nor its firewall, and no packet leaves but through
//! the relay.
//!
//! ```text
//!   relay ──┬── device (TUN) ────────────┐
//!           ├── listening sockets ───────┤ namespace without a name, route to the device alone
//!           └── Unix socket ── helper ───┘
//!                              (a process)
//! ```
//!
//! A socket belongs to the namespace of the thread that makes it, and a program with several threads may not enter one
//! that it made as an ordinary user (user_namespaces(7)). So a *helper*, a process that is forked while the program has
//! one thread, makes namespace, device and sockets, and hands them over (unix(7), SCM_RIGHTS). It is asked for sockets
//! in advance, so that no circuit waits for it. After the device is there it has no rights any more, and nothing
//! open but its socket to the relay: of its namespace it can change nothing.
//!
//! The device is one that segments, checksums and coalesces in the kernel's eyes ([`packets`] does it), or a plain one
//! where the system has no other.
//!
//! Nothing of it has a name or stays: the helper ends when its socket does, and the namespace with the helper, the
//! device and the sockets. Without the helper what is there works on, connections are accepted, and no new ones are
//! made when those that it made in advance are used up.

mod handover;
mod helper;
mod packets;

use crate::options::Options;
use crate::tun::Tun;
use handover::Parcel;
use heddle_seam::node::StackOptions;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::fmt;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::time::Duration;

pub(crate) use handover::SOCKETS_MAX as PARCEL_SOCKETS_MAX;
pub(crate) use packets::{Inbound, send};

/// How long the helper may take for all that is made at the start.
const SETUP_MAX: Duration = Duration::from_secs(20);

/// Packets of the wire that the kernel hands over as one at most: 64 KiB hold 51 of the longest. A peer that has asked
/// for segments of a few bytes gets no more of them for one read of the device.
const FRAME_PACKETS_MAX: usize = 64;

/// What may be chosen about a stack beside what its node asks for.
#[derive(Clone, Debug, Default)]
pub struct StackSetup {
    /// The congestion control of its connections; the system's choice without.
    pub congestion_control: Option<String>,
    /// Options of its sockets.
    pub sockets: Options,
    /// Whether its device takes and gives packets as they are on a wire, as where the system has no other: a system
    /// call, and the kernel's whole way, for each.
    pub plain_device: bool,
}

/// A stack, made and not used yet.
#[derive(Debug)]
pub struct Stack {
    pub(crate) device: Tun,
    /// In the order of [`StackOptions::ports`].
    pub(crate) listeners: Vec<TcpListener>,
    /// Settings that the system refused to have written.
    unwritten: Vec<&'static str>,
    /// The helper; `None` when it is gone.
    helper: Option<Helper>,
}

/// A process, and our end of the socket to it. It does not outlive this.
#[derive(Debug)]
struct Helper {
    socket: OwnedFd,
    pid: Pid,
}

impl Drop for Helper {
    /// Ends it, if it is stopped too, so this waits for a moment only.
    fn drop(&mut self) {
        // It fails for one that has ended.
        let _ = kill_process(self.pid, Signal::KILL);
        while waitpid(Some(self.pid), WaitOptions::empty()).is_err_and(|error| error == Errno::INTR) {}
    }
}

impl Stack {
    /// Makes a stack, by a helper that is forked. The program must have one thread.
    ///
    /// # Errors
    ///
    /// What failed, and why: where the system allows neither a namespace nor a device, or where it lacks the congestion
    /// control.
    pub fn open(options: &StackOptions, setup: &StackSetup) -> Result<Stack, StackError> {
        let fork = || -> io::Result<Helper> {
            // What another thread held at this moment, a lock for one, the helper would wait for in vain.
            if fs::read_dir("/proc/self/task")?.count() != 1 {
                return Err(io::Error::other("the program has several threads already"));
            }
            let (socket, theirs) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
            let pid = helper::fork(theirs, options, setup)?;
            Ok(Helper { socket, pid })
        };
        let helper = fork().map_err(|error| StackError { step: "starting its helper", error })?;
        let heard = sockopt::set_socket_timeout(&helper.socket, sockopt::Timeout::Recv, Some(SETUP_MAX))
            .map_err(io::Error::from)
            .and_then(|()| handover::receive(&helper.socket));
        let (made, unwritten, has_header) = match heard {
            Ok(Some(Parcel::Made { descriptors, unwritten, has_header }))
                if descriptors.len() == options.ports.len() + 1 =>
            {
                (descriptors, unwritten, has_header)
            }
            Ok(Some(Parcel::Refused { step, error })) => {
                let step = helper::STEPS.get(usize::from(step)).copied().unwrap_or("making it");
                return Err(StackError { step, error: error.into() });
            }
            Ok(_) => {
                return Err(StackError { step: "making it", error: io::ErrorKind::UnexpectedEof.into() });
            }
            Err(error) => return Err(StackError { step: "hearing of its helper", error }),
        };
        let mut made = made.into_iter();
        let device = made.next().map(|fd| Tun::from_fd(fd, has_header));
        let device = device.ok_or(StackError { step: "making it", error: io::ErrorKind::NotFound.into() })?;
        let ready = handover::set_nonblocking(&helper.socket);
        ready.map_err(|error| StackError { step: "hearing of its helper", error: error.into() })?;
        Ok(Stack {
            device,
            listeners: made.map(TcpListener::from).collect(),
            unwritten: settings(unwritten),
            helper: Some(helper),
        })
    }

    /// Settings of its namespace that the system refused to have written, without which it works less well.
    pub fn unwritten_settings(&self) -> &[&'static str] {
        &self.unwritten
    }

    /// Whether its device takes and gives packets one by one.
    pub fn has_plain_device(&self) -> bool {
        !self.device.has_header()
    }

    /// The process that makes its sockets, unless it is gone.
    pub fn helper_pid(&self) -> Option<u32> {
        self.helper.as_ref().and_then(|helper| u32::try_from(helper.pid.as_raw_nonzero().get()).ok())
    }

    /// What is readable when the helper has sockets or is gone.
    pub(crate) fn helper_fd(&self) -> Option<BorrowedFd<'_>> {
        self.helper.as_ref().map(|helper| helper.socket.as_fd())
    }

    /// Asks the helper for sockets, which [`Self::take_sockets`] gets. False when it is gone, or cannot be asked now.
    pub(crate) fn ask_for_sockets(&mut self, count: usize) -> bool {
        let count = u8::try_from(count.min(PARCEL_SOCKETS_MAX)).unwrap_or(0);
        let asked = self.helper.as_ref().map(|helper| handover::ask(&helper.socket, count));
        match asked {
            Some(Ok(())) => true,
            // Memory is short, which passes.
            Some(Err(error)) if matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM)) => false,
            None => false,
            Some(Err(_)) => {
                self.lose_helper();
                false
            }
        }
    }

    /// What the helper made; `None` when it has nothing at the moment, or is gone. Fewer than were asked for come when
    /// it or we are out of descriptors.
    pub(crate) fn take_sockets(&mut self) -> Option<Vec<OwnedFd>> {
        let helper = self.helper.as_ref()?;
        match handover::receive(&helper.socket) {
            Ok(Some(Parcel::Sockets(sockets))) => Some(sockets),
            Ok(Some(Parcel::Refused { .. } | Parcel::Made { .. })) => Some(Vec::new()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Ok(None) | Err(_) => {
                self.lose_helper();
                None
            }
        }
    }

    fn lose_helper(&mut self) {
        if self.helper.take().is_some() {
            log::warn!(
                "The helper that makes tcp-esp's sockets ended: circuits stay, and new ones take other transports"
            );
        }
    }
}

/// Those that a helper says it could not write.
fn settings(unwritten: u32) -> Vec<&'static str> {
    let refused = helper::SETTINGS.iter().zip(0..).filter(|(_, n)| unwritten >> n & 1 == 1);
    refused.map(|((setting, _), _)| *setting).collect()
}

/// Why there is no stack.
#[derive(Debug)]
pub struct StackError {
    step: &'static str,
    error: io::Error,
}

impl StackError {
    /// Whether it is for the congestion control that was chosen, which the kernel does not have.
    pub fn is_congestion_control(&self) -> bool {
        self.step == helper::STEPS[helper::ROUTE] && self.error.raw_os_error() == Some(libc::EINVAL)
    }
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.step, self.error)
    }
}

impl std::error::Error for StackError {}
