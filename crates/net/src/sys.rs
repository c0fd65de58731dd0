//! Making sockets, and what the kernel's errors mean.

use crate::options::Options;
use heddle_seam::datagrams::IdPrefix;
use heddle_seam::node::SocketError;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::sync::Once;
use std::time::Duration;

/// Connections that wait for us to accept them; the kernel lowers it to net.core.somaxconn.
const BACKLOG: i32 = 65_535;

/// Opens a listening TCP socket: SO_REUSEADDR, and an IPv6 socket takes IPv6 only, so that an IPv4
/// socket can listen on the same port. Errors are the kernel's, but for options, which it may refuse.
pub fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    static REUSEADDR: Once = Once::new();
    let fd = tcp_socket(addr)?;
    tell_once(&REUSEADDR, "SO_REUSEADDR", sockopt::set_socket_reuseaddr(&fd, true));
    if addr.is_ipv6() {
        set_one_family(&fd, true);
    }
    net::bind(&fd, &addr)?;
    net::listen(&fd, BACKLOG)?;
    Ok(TcpListener::from(fd))
}

/// Whether an IPv6 socket takes IPv6 only. Where the kernel does not say, IPv4 is taken or refused as it likes.
pub(crate) fn set_one_family(fd: impl AsFd, one_family: bool) {
    static V6ONLY: Once = Once::new();
    tell_once(&V6ONLY, "IPV6_V6ONLY", sockopt::set_ipv6_v6only(fd, one_family));
}

/// Starts to connect; that it is over is told by `epoll`.
pub(crate) fn connect(to: SocketAddr, options: &Options) -> Result<OwnedFd, Errno> {
    let fd = tcp_socket(to)?;
    prepare(&fd, options);
    if let Some(from) = options.outbound_bind(to) {
        // Without this the kernel picks the source port when binding, and 28,000 connections to
        // however many relays would use them all up. A kernel that lacks it is only worse off.
        let _ = set_option(&fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
        net::bind(&fd, &from)?;
    }
    match net::connect(&fd, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(error) => Err(error),
    }
}

/// Sets the options of a connection. On a listener they are inherited by what it accepts, which
/// saves three system calls per connection. Some kernels and sandboxes lack some of them, and a
/// connection works without any, so a refusal is only told.
pub(crate) fn prepare(fd: impl AsFd, options: &Options) {
    static NODELAY: Once = Once::new();
    static KEEPALIVE: Once = Once::new();
    static NOTSENT_LOWAT: Once = Once::new();
    static USER_TIMEOUT: Once = Once::new();
    tell_once(&NODELAY, "TCP_NODELAY", sockopt::set_tcp_nodelay(&fd, options.tcp_nodelay));
    tell_once(&KEEPALIVE, "SO_KEEPALIVE", sockopt::set_socket_keepalive(&fd, true));
    if let Some(bytes) = options.notsent_lowat_bytes {
        // Without it "writable" means only "room in the send buffer".
        let result = set_option(&fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes);
        tell_once(&NOTSENT_LOWAT, "TCP_NOTSENT_LOWAT", result);
    }
    if options.user_timeout > Duration::ZERO {
        let ms = u32::try_from(options.user_timeout.as_millis()).unwrap_or(u32::MAX);
        tell_once(&USER_TIMEOUT, "TCP_USER_TIMEOUT", sockopt::set_tcp_user_timeout(&fd, ms));
    }
}

/// Logs the first refusal of an option; the later ones would say the same for each connection.
fn tell_once(told: &Once, option: &str, result: Result<(), Errno>) {
    if let Err(error) = result {
        told.call_once(|| log::warn!("The kernel refuses {option}, so sockets go without: {error}"));
    }
}

/// Our own address of a socket.
pub(crate) fn local_addr(fd: impl AsFd) -> Result<SocketAddr, Errno> {
    SocketAddr::try_from(net::getsockname(fd)?)
}

/// The error that the kernel holds for a socket, which this clears.
pub(crate) fn take_error(fd: impl AsFd) -> Option<Errno> {
    sockopt::socket_error(fd).unwrap_or_else(Err).err()
}

/// Makes the coming close a reset that drops what is pending.
pub(crate) fn reset_on_close(fd: impl AsFd) {
    // It fails only for a socket that is broken already, and that needs no reset.
    let _ = sockopt::set_socket_linger(fd, Some(Duration::ZERO));
}

/// What an error means to a node. `ipv6` is about the peer's address.
pub(crate) fn socket_error(error: Errno, ipv6: bool) -> SocketError {
    match error {
        Errno::CONNREFUSED => SocketError::Refused,
        Errno::HOSTUNREACH | Errno::HOSTDOWN => SocketError::HostUnreachable,
        Errno::NETUNREACH | Errno::NETDOWN | Errno::AFNOSUPPORT => SocketError::NetworkUnreachable,
        // To IPv6 it says that this machine has no address to come from, to IPv4 that all ports
        // are in use.
        Errno::ADDRNOTAVAIL if ipv6 => SocketError::NetworkUnreachable,
        Errno::TIMEDOUT => SocketError::TimedOut,
        Errno::CONNRESET | Errno::CONNABORTED | Errno::PIPE => SocketError::Reset,
        _ if is_out_of_resources(error) => SocketError::ResourceLimit,
        _ => SocketError::Other,
    }
}

/// Whether the machine or the process is out of descriptors, ports or memory.
pub(crate) fn is_out_of_resources(error: Errno) -> bool {
    matches!(
        error,
        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::AGAIN | Errno::ADDRNOTAVAIL
    )
}

fn tcp_socket(addr: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if addr.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
}

/// `setsockopt` with an integer, for the few options that `rustix` has no name for.
pub(crate) fn set_option(fd: impl AsFd, level: i32, name: i32, value: u32) -> Result<(), Errno> {
    let len = size_of::<u32>() as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed, and the kernel reads `len` bytes at
    // `value`, which lives until the call returns.
    #[allow(unsafe_code)]
    let result =
        unsafe { libc::setsockopt(fd.as_fd().as_raw_fd(), level, name, (&raw const value).cast(), len) };
    outcome(result)
}

/// In a group of sockets that share a port, the kernel gives the second in it what has `prefix`, and the first all
/// else. `first` is one of them.
pub(crate) fn choose_by_prefix(first: impl AsFd, prefix: IdPrefix) -> Result<(), Errno> {
    const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
    const LOAD_TWO_BYTES: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
    const IF_ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code: u16, (jt, jf): (u8, u8), k: u32| libc::sock_filter { code, jt, jf, k };
    // Jumps skip so many steps. What is too short for a load goes to the first socket, too.
    let mut steps = [
        step(LOAD_BYTE, (0, 0), 0),
        step(IF_ANY_BIT, (3, 0), 0x80),
        step(LOAD_TWO_BYTES, (0, 0), 1),
        step(IF_EQUAL, (0, 1), u16::from_be_bytes(prefix.0).into()),
        step(RETURN, (0, 0), 1),
        step(RETURN, (0, 0), 0),
    ];
    let program = libc::sock_fprog { len: steps.len() as libc::c_ushort, filter: steps.as_mut_ptr() };
    let len = size_of::<libc::sock_fprog>() as libc::socklen_t;
    let (fd, name) = (first.as_fd().as_raw_fd(), libc::SO_ATTACH_REUSEPORT_CBPF);
    // SAFETY: the descriptor is open while it is borrowed, and the kernel copies the program, whose steps live until
    // the call returns.
    #[allow(unsafe_code)]
    let result = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, name, (&raw const program).cast(), len) };
    outcome(result)
}

/// The kernel forgets the program of [`choose_by_prefix`].
pub(crate) fn choose_no_more(first: impl AsFd) -> Result<(), Errno> {
    set_option(first, libc::SOL_SOCKET, libc::SO_DETACH_REUSEPORT_BPF, 0)
}

/// What a system call says that returns zero if all is well.
fn outcome(result: libc::c_int) -> Result<(), Errno> {
    match result {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

/// What may be on its way on a TCP connection unacknowledged, in bytes: the shorter of the congestion window and the
/// peer's. `None` where the system does not tell.
pub(crate) fn send_window(fd: impl AsFd) -> Option<usize> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed, and the kernel writes at most `len` bytes to `info`, which
    // lives until the call returns. It is a struct of integers, which all are valid however much the kernel wrote.
    #[allow(unsafe_code)]
    let (result, info) = unsafe {
        let (fd, pointer) = (fd.as_fd().as_raw_fd(), info.as_mut_ptr().cast());
        (libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, pointer, &raw mut len), info.assume_init())
    };
    let congestion_window = u64::from(info.tcpi_snd_cwnd) * u64::from(info.tcpi_snd_mss);
    if result != 0 || congestion_window == 0 {
        return None;
    }
    // Kernels before 5.4 leave the peer's window out, and zero is for the moment only.
    let window = match info.tcpi_snd_wnd {
        0 => congestion_window,
        offered => congestion_window.min(u64::from(offered)),
    };
    usize::try_from(window).ok()
}

/// What the kernel keeps of memory for a socket, in bytes: what came and was not read, what was sent and is not
/// acknowledged, and what it set aside for more. Zero where the system does not tell.
pub(crate) fn kernel_memory(fd: impl AsFd) -> usize {
    // From linux/sock_diag.h, in this order: received, its bound, leaving, its bound, set aside, to be sent, options,
    // received and not looked at, dropped.
    let mut told = [0_u32; 9];
    let mut len = size_of_val(&told) as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed, and the kernel writes at most `len` bytes to `told`, which
    // lives until the call returns.
    #[allow(unsafe_code)]
    let result = unsafe {
        let (fd, pointer) = (fd.as_fd().as_raw_fd(), told.as_mut_ptr().cast());
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, pointer, &raw mut len)
    };
    let [received, _, _, _, set_aside, to_be_sent, _, backlog, _] = told.map(|bytes| bytes as usize);
    if result == 0 { received + set_aside + to_be_sent + backlog } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    #[test]
    fn accepted_sockets_inherit_the_options() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        prepare(&listener, &Options { user_timeout: Duration::from_millis(1234), ..Options::default() });
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = net::accept(&listener).unwrap();
        assert!(sockopt::tcp_nodelay(&accepted).unwrap());
        assert!(sockopt::socket_keepalive(&accepted).unwrap());
        assert_eq!(sockopt::tcp_user_timeout(&accepted).unwrap(), 1234);
    }

    /// A socket of another family stands for a kernel without the options of TCP.
    #[test]
    fn a_refused_option_leaves_the_others_set() {
        let (fd, _peer) = UnixStream::pair().unwrap();
        assert!(sockopt::set_tcp_nodelay(&fd, true).is_err());
        prepare(&fd, &Options { user_timeout: Duration::from_secs(1), ..Options::default() });
        assert!(sockopt::socket_keepalive(&fd).unwrap());
    }

    #[test]
    fn small_writes_are_held_back_on_request_only() {
        for tcp_nodelay in [true, false] {
            let options = Options { tcp_nodelay, ..Options::default() };
            let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
            prepare(&listener, &options);
            let dialled = connect(listener.local_addr().unwrap(), &options).unwrap();
            let accepted = net::accept(&listener).unwrap();
            assert_eq!(sockopt::tcp_nodelay(&dialled).unwrap(), tcp_nodelay);
            assert_eq!(sockopt::tcp_nodelay(&accepted).unwrap(), tcp_nodelay);
        }
    }

    #[test]
    fn what_nobody_reads_takes_the_kernels_memory() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = net::accept(&listener).unwrap();
        let before = kernel_memory(&accepted);
        client.write_all(&[0; 20_000]).unwrap();
        // What is written to loopback is there when the call returns.
        let after = kernel_memory(&accepted);
        assert!(before < 10_000 && after >= before + 20_000, "{before}, then {after}");
    }

    #[test]
    fn ipv4_and_ipv6_listen_on_one_port() {
        let Ok(v6) = listen("[::]:0".parse().unwrap()) else { return };
        let port = v6.local_addr().unwrap().port();
        listen(SocketAddr::from(([0, 0, 0, 0], port))).unwrap();
    }

    #[test]
    fn an_address_that_runs_out_is_told_from_one_that_is_missing() {
        assert_eq!(socket_error(Errno::ADDRNOTAVAIL, true), SocketError::NetworkUnreachable);
        assert_eq!(socket_error(Errno::ADDRNOTAVAIL, false), SocketError::ResourceLimit);
    }
}
