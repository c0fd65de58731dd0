//! Network namespaces without names: what holds one is a descriptor, a thread or a process, so nothing of it stays
//! behind when the program ends, however it ends.
//!
//! 1. [`gain_privilege`], once and before the program has a second thread.
//! 2. [`Namespace::new`] for each host.
//! 3. [`Namespace::run`] to set it up from inside, [`Namespace::enter_on_exec`] to start programs in it.

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::thread::{
    CapabilitySet, LinkNameSpaceType, UnshareFlags, capabilities, move_into_link_name_space, unshare_unsafe,
};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

/// The namespaces of the calling thread; unlike `/proc/self`, which means those of the first thread.
const OWN_NETWORK: &str = "/proc/thread-self/ns/net";

/// What gives the program the right to make namespaces and devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// It has the capabilities CAP_SYS_ADMIN and CAP_NET_ADMIN, as root does.
    Capabilities,
    /// It is in a user namespace of its own, in which its user is root. Outside it has no more rights than before.
    UserNamespace,
}

/// Makes sure that the program may make namespaces: with its own capabilities, else by moving it into a user namespace
/// for good. There its user and group become 0, and no others exist.
///
/// # Errors
///
/// Those of `unshare` and of writing the maps: EINVAL when the program has several threads already, EPERM or ENOSPC
/// when the system allows no unprivileged user namespaces.
pub fn gain_privilege() -> io::Result<Privilege> {
    if has_capabilities() {
        return Ok(Privilege::Capabilities);
    }
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    unshare(UnshareFlags::NEWUSER)?;
    // An unprivileged program may map its group only after it gave up changing the others (user_namespaces(7)).
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    Ok(Privilege::UserNamespace)
}

fn has_capabilities() -> bool {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// A network namespace. It ends when this is dropped, the programs in it have ended and its devices are closed.
#[derive(Debug)]
pub struct Namespace {
    network: OwnedFd,
}

impl Namespace {
    /// An empty network namespace: only a loopback device, which is down.
    ///
    /// # Errors
    ///
    /// EPERM without the privilege, ENOSPC at the limit `user.max_net_namespaces`.
    pub fn new() -> io::Result<Namespace> {
        let make = || -> io::Result<OwnedFd> {
            enter_new_network()?;
            Ok(File::open(OWN_NETWORK)?.into())
        };
        // The thread that moves into the new namespace ends here, and the descriptor stays.
        thread::scope(|scope| join(scope.spawn(make)))?.map(|network| Namespace { network })
    }

    /// Calls `work` on a thread inside the namespace and waits for it. `/proc/sys/net`, sockets and new devices are
    /// those of the namespace there.
    ///
    /// # Errors
    ///
    /// Those of entering the namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let inside = || -> io::Result<T> {
            move_into_link_name_space(self.network.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        };
        thread::scope(|scope| join(scope.spawn(inside)))?
    }

    /// Has the process of `command` move into the namespace before its program begins. The namespace must still exist
    /// when the command is spawned; the process then keeps it.
    pub fn enter_on_exec(&self, command: &mut Command) -> io::Result<()> {
        let network = self.network.try_clone()?;
        let hook = move || {
            // SAFETY: setns takes two integers; the descriptor belongs to this hook and is open.
            #[allow(unsafe_code)]
            let result = unsafe { libc::setns(network.as_raw_fd(), libc::CLONE_NEWNET) };
            if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        };
        // SAFETY: the hook makes one system call and allocates nothing, as `pre_exec` demands.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(hook);
        }
        Ok(())
    }
}

/// Gives the calling thread's children a process namespace of their own: the first child becomes its process 1, and
/// with that one's end the kernel kills all others, their own children included.
///
/// # Errors
///
/// EPERM without the privilege, EINVAL when the thread did this before.
pub fn contain_children() -> io::Result<()> {
    unshare(UnshareFlags::NEWPID)
}

/// Moves the calling thread, and what it will start, into an empty network namespace for good.
///
/// # Errors
///
/// As of [`Namespace::new`].
pub(crate) fn enter_new_network() -> io::Result<()> {
    unshare(UnshareFlags::NEWNET)
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: only unsharing the table of descriptors is unsafe, and no caller here does that.
    #[allow(unsafe_code)]
    unsafe { unshare_unsafe(flags) }.map_err(io::Error::from)
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> io::Result<T> {
    thread.join().map_err(|_| io::Error::other("the thread inside the namespace panicked"))
}
