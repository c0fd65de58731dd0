//! The process that makes a stack and its sockets: what it does, from its first instruction to its end.
//!
//! 1. It leaves the relay's terminal and signals, and closes what it inherited, but its end of the socket to the relay.
//! 2. It moves into a network namespace of its own, in a user namespace of its own if it has no rights outside.
//! 3. There it makes the device, its address and its route, and the listening sockets, and hands them over.
//! 4. It gives up all rights for good.
//! 5. It makes as many sockets as it is asked for, each time, until the relay is gone.

use super::handover::{self, SOCKETS_MAX};
use super::{FRAME_PACKETS_MAX, StackSetup};
use crate::namespace::{enter_new_network, gain_privilege};
use crate::netlink::{Netlink, Route};
use crate::sys;
use crate::tun::Tun;
use heddle_seam::node::StackOptions;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto, recv, socket_with};
use rustix::process::{
    DumpableBehavior, Pid, Signal, set_dumpable_behavior, set_parent_process_death_signal, setsid,
};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_name, set_no_new_privs};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// What is done, for whoever is told that it failed.
pub(super) const STEPS: &[&str] = &[
    "leaving what it inherited",
    "making a user namespace",
    "making a network namespace",
    "opening /dev/net/tun",
    "setting up its device",
    "setting its route",
    "listening in it",
    "giving up its rights",
];
const LEAVE: usize = 0;
const USER: usize = 1;
const NETWORK: usize = 2;
const DEVICE: usize = 3;
const DEVICE_SETUP: usize = 4;
pub(super) const ROUTE: usize = 5;
const LISTEN: usize = 6;
const RIGHTS: usize = 7;

const DEVICE_NAME: &str = "esp0";
/// Packets that wait for the relay to read them: what the windows of hundreds of circuits hold at once. Beyond that
/// they are lost, as they would be on a full wire. With offloads each may be 64 KiB, of bytes that their sockets keep
/// until they are acknowledged anyway, and that are counted there.
const DEVICE_QUEUE_PACKETS: u32 = 10_000;

/// Settings of the namespace's. A sandbox may refuse them, and everything works without, if not as well.
pub(super) const SETTINGS: &[(&str, &str)] = &[
    // Nothing of it is spoken here, and it would look for routers.
    ("net/ipv6/conf/all/disable_ipv6", "1"),
    ("net/ipv6/conf/default/disable_ipv6", "1"),
    // Both ends of an association are authentic and no packet comes from elsewhere, so a circuit's first cell goes with
    // the segment that opens the connection, and needs no cookie: 1 and 2 have it at all, 4 and 0x200 without cookies,
    // 0x400 on each listening socket (RFC 7413; ip-sysctl).
    ("net/ipv4/tcp_fastopen", "1543"),
    // A lost first segment says nothing of others here.
    ("net/ipv4/tcp_fastopen_blackhole_timeout_sec", "0"),
    // The number of flows that one peer may have is bounded elsewhere.
    ("net/ipv4/ip_local_port_range", "1024 65535"),
    ("net/core/somaxconn", "65535"),
    ("net/ipv4/tcp_max_syn_backlog", "65535"),
    // Where a peer's openings nevertheless fill the queue that listening sockets have for all peers, others' find their
    // way past it, and what is not completed goes after 7 s.
    ("net/ipv4/tcp_syncookies", "1"),
    ("net/ipv4/tcp_synack_retries", "2"),
    // A flow asks for marks, which datagrams carry there and back; by itself a kernel only grants them.
    ("net/ipv4/tcp_ecn", "1"),
    // A path that carries less than the longest datagram says so to nobody inside: a connection that nothing of is
    // acknowledged for three time-outs goes on in shorter segments.
    ("net/ipv4/tcp_mtu_probing", "1"),
    // What a socket may have unread, and unacknowledged: at least, at first, at most. A flow of 200 Mbit/s over 150 ms
    // fills the last.
    ("net/ipv4/tcp_rmem", "4096 131072 4194304"),
    ("net/ipv4/tcp_wmem", "4096 16384 4194304"),
];

/// Starts it. In the calling process this returns.
pub(super) fn fork(socket: OwnedFd, options: &StackOptions, setup: &StackSetup) -> io::Result<Pid> {
    // SAFETY: the caller made sure that there is one thread, so the copy may do whatever the original may.
    #[allow(unsafe_code)]
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // Nothing of what the relay had is to be run or dropped here, whatever happens.
            let _ = catch_unwind(AssertUnwindSafe(|| run(&socket, options, setup)));
            // SAFETY: it ends the process and touches no memory.
            #[allow(unsafe_code)]
            unsafe {
                libc::_exit(0)
            }
        }
        pid => Pid::from_raw(pid).ok_or_else(|| io::ErrorKind::Other.into()),
    }
}

fn run(socket: &OwnedFd, options: &StackOptions, setup: &StackSetup) {
    match make(socket, options, setup) {
        Ok((device, listeners, unwritten)) => {
            let has_header = device.has_header();
            let made: Vec<BorrowedFd<'_>> =
                [device.as_fd()].into_iter().chain(listeners.iter().map(AsFd::as_fd)).collect();
            if handover::hand_over_made(socket, &made, unwritten, has_header).is_err() {
                return;
            }
        }
        Err((step, error)) => {
            let _ = handover::refuse(socket, step as u8, &error);
            return;
        }
    }
    serve(socket, setup);
}

/// Makes sockets until the relay is gone.
fn serve(socket: &OwnedFd, setup: &StackSetup) {
    let mut wanted = [0];
    loop {
        match recv(socket, &mut wanted, RecvFlags::empty()) {
            Ok((_, 1)) => {}
            Err(Errno::INTR) => continue,
            _ => return,
        }
        let count = usize::from(wanted[0]).min(SOCKETS_MAX);
        // Those that there are descriptors for.
        let made: Vec<OwnedFd> = (0..count).map_while(|_| dialler(setup).ok()).collect();
        let lent: Vec<BorrowedFd<'_>> = made.iter().map(AsFd::as_fd).collect();
        if let Err(error) = handover::hand_over(socket, &lent)
            && handover::refuse(socket, 0, &error).is_err()
        {
            return;
        }
    }
}

/// A socket that is to be connected. Its first bytes go with the segment that opens the connection, if the kernel lets
/// them.
fn dialler(setup: &StackSetup) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sys::prepare(&fd, &setup.sockets);
    let _ = sys::set_option(&fd, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1);
    Ok(fd)
}

type Failed = (usize, io::Error);

fn make(
    socket: &OwnedFd,
    options: &StackOptions,
    setup: &StackSetup,
) -> Result<(Tun, Vec<TcpListener>, u32), Failed> {
    let at = |step: usize| move |error: io::Error| (step, error);
    close_all_but(socket).and_then(|()| leave_the_relays_signals()).map_err(at(LEAVE))?;
    // A name that shows whose it is.
    let _ = set_name(c"heddle stack");
    gain_privilege().map_err(at(USER))?;
    enter_new_network().map_err(at(NETWORK))?;
    let unwritten = write_settings();
    let mut netlink = Netlink::open().map_err(at(DEVICE_SETUP))?;
    let device = open_device(&mut netlink, setup.plain_device).map_err(at(DEVICE))?;
    let mtu_bytes = u32::from(options.packet_bytes_max);
    let index = netlink.device(DEVICE_NAME).map_err(at(DEVICE_SETUP))?;
    netlink
        .configure(index, mtu_bytes, DEVICE_QUEUE_PACKETS)
        .and_then(|()| netlink.add_address(index, options.addr.into()))
        .and_then(|()| netlink.up(index))
        .map_err(at(DEVICE_SETUP))?;
    let route = Route {
        to: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        from: options.addr.into(),
        mtu_bytes,
        congestion_control: setup.congestion_control.as_deref(),
    };
    netlink.add_route(index, &route).map_err(at(ROUTE))?;
    let listen = |port: &u16| sys::listen(SocketAddr::new(options.addr.into(), *port));
    let listeners = options.ports.iter().map(listen).collect::<io::Result<_>>().map_err(at(LISTEN))?;
    give_up_rights().map_err(|error| (RIGHTS, error.into()))?;
    Ok((device, listeners, unwritten))
}

/// The device: one that leaves segmenting to us, in pieces that are bounded, or a plain one where the system has none.
fn open_device(netlink: &mut Netlink, plain_device: bool) -> io::Result<Tun> {
    let path = Path::new("/dev/net/tun");
    if !plain_device
        && let Ok(device) = Tun::open(path, DEVICE_NAME)
        && let Ok(index) = netlink.device(DEVICE_NAME)
        && netlink.limit_segments(index, FRAME_PACKETS_MAX as u32).is_ok()
    {
        return Ok(device);
    }
    Tun::open_plain(path, DEVICE_NAME)
}

/// Says which could not be written, a bit each. One that this kernel does not have is none of them.
fn write_settings() -> u32 {
    let is_refused = |(setting, value): &(&str, &str)| {
        let written = fs::write(Path::new("/proc/sys").join(setting), value);
        written.is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
    };
    SETTINGS.iter().map(is_refused).zip(0..).fold(0, |bits, (refused, n)| bits | u32::from(refused) << n)
}

/// Whoever interrupts the relay at its terminal, or sends a signal to all processes of its name, means the relay: this
/// process ends when its socket does, and until then circuits need it.
fn leave_the_relays_signals() -> io::Result<()> {
    setsid()?;
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    Ok(())
}

/// Whatever this process inherited of the relay, the ends of other helpers' sockets for one, would live on in it.
fn close_all_but(socket: &OwnedFd) -> io::Result<()> {
    const STDIO: u32 = 2;
    let kept = socket.as_raw_fd().cast_unsigned();
    let ranges = [(STDIO + 1, kept.saturating_sub(1)), (kept + 1, u32::MAX)];
    for (first, last) in ranges.into_iter().filter(|(first, last)| first <= last) {
        // SAFETY: nothing here uses what is closed, and the destructors of the relay's part never run.
        #[allow(unsafe_code)]
        let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // Whoever waits for the end of the relay's output does not wait for this process.
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

fn give_up_rights() -> Result<(), Errno> {
    set_no_new_privs(true)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Beside the end of the socket, which a relay that is being debugged holds open. Changed rights clear it.
    set_parent_process_death_signal(Some(Signal::KILL))
}
