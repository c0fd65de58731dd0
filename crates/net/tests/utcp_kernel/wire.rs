//! The wire in real time, and our end of it.

use crate::peer::pattern;
use heddle_net::monotonic;
use heddle_net::tun::{FRAME_BYTES_MAX, HEADER_BYTES, Tun};
use heddle_netem::{DirectionOptions, HostId, HostOptions, Seed, Topology, TopologyOptions, WireOptions};
use heddle_utcp::{BufferPool, CloseReason, ConnectionId, Host, HostLimits, Instant, Options, State};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::Duration;

const KERNEL: HostId = HostId(0);
const OURS: HostId = HostId(1);

/// Has the kernel segment and checksum by itself, so that what is read is what would be on a wire.
pub fn switch_offload_off(tun: &Tun) {
    // SAFETY: TUNSETOFFLOAD takes its flags by value.
    #[allow(unsafe_code)]
    let result = unsafe { libc::ioctl(tun.as_fd().as_raw_fd(), libc::TUNSETOFFLOAD, 0 as libc::c_ulong) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

pub struct Wire {
    tun: Tun,
    topology: Topology<Vec<u8>>,
    host: Host,
    origin_ns: u64,
    bytes: u64,
    written: u64,
    read: u64,
    described: String,
}

impl Wire {
    pub fn new(tun: Tun, direction: DirectionOptions, bytes: u64) -> Self {
        let host = |name: &str| HostOptions { name: name.to_owned(), ..HostOptions::default() };
        let wires =
            vec![WireOptions { from: "kernel".into(), to: "utcp".into(), there: direction, back: None }];
        let options =
            TopologyOptions { hosts: vec![host("kernel"), host("utcp")], wires, default_wire: None };
        let topology = Topology::new(&options, &Seed::from_number(1)).expect("good options");
        let mut rng = Seed::from_number(2).rng();
        let options = Options { time_wait_ns: 500_000_000, ..Options::default() };
        let pool = BufferPool::new(64 << 20);
        let host = Host::new(options, pool, HostLimits::default(), Box::new(move || rng.next_u64()));
        let origin_ns = monotonic().as_nanos() - 1_000_000_000;
        Wire { tun, topology, host, origin_ns, bytes, written: 0, read: 0, described: String::new() }
    }

    fn now_ns(&self) -> u64 {
        monotonic().as_nanos() - self.origin_ns
    }

    /// Moves packets until our end's connection is closed, and says why.
    pub fn exchange(
        &mut self,
        we_connect: bool,
        ours: SocketAddr,
        kernel: SocketAddr,
        patience: Duration,
    ) -> CloseReason {
        let mut id = None;
        if we_connect {
            id = self.host.connect(Instant::from_nanos(self.now_ns()), ours, kernel);
        } else {
            self.host.listen(ours.port());
        }
        let deadline_ns = self.now_ns() + patience.as_nanos() as u64;
        loop {
            let now_ns = self.now_ns();
            assert!(now_ns < deadline_ns, "read {} wrote {} of {}", self.read, self.written, self.bytes);
            self.take_from_kernel(now_ns);
            self.deliver(now_ns);
            self.host.handle_timeout(Instant::from_nanos(now_ns));
            id = id.or_else(|| self.host.poll_accept());
            if let Some(id) = id {
                self.act(Instant::from_nanos(now_ns), id);
            }
            self.send_ours(now_ns);
            let connection = id.and_then(|id| self.host.get(id));
            if let Some(connection) = connection.filter(|connection| connection.state() == State::Closed) {
                assert_eq!((self.read, self.written), (self.bytes, self.bytes));
                return connection.close_reason().expect("it is closed");
            }
            self.sleep(now_ns);
        }
    }

    pub fn describe(&self) -> &str {
        &self.described
    }

    fn act(&mut self, now: Instant, id: ConnectionId) {
        let Some(connection) = self.host.get_mut(id) else { return };
        let mut buffer = [0; 4096];
        while self.written < self.bytes && connection.capacity() > 0 {
            let room = connection.capacity().min(buffer.len());
            let count = room.min((self.bytes - self.written) as usize);
            pattern(self.written, &mut buffer[..count]);
            let taken = connection.write(&buffer[..count]);
            self.written += taken as u64;
            if taken < count {
                break;
            }
        }
        if self.written == self.bytes {
            connection.shutdown();
        }
        let mut wanted = [0; 4096];
        loop {
            let count = connection.read(now, &mut buffer);
            if count == 0 {
                break;
            }
            pattern(self.read, &mut wanted[..count]);
            assert!(buffer[..count] == wanted[..count], "wrong bytes after {}", self.read);
            self.read += count as u64;
        }
        self.described = format!("{:?}", connection.stats().counts);
    }

    fn take_from_kernel(&mut self, now_ns: u64) {
        let mut frame = vec![0; FRAME_BYTES_MAX];
        while let Some(len) = self.tun.read(&mut frame).expect("the device is up") {
            self.put(now_ns, KERNEL, frame[HEADER_BYTES..len].to_vec());
        }
    }

    fn send_ours(&mut self, now_ns: u64) {
        let mut packet = Vec::new();
        while self.host.poll_packet(Instant::from_nanos(now_ns), &mut packet) {
            self.put(now_ns, OURS, std::mem::take(&mut packet));
        }
    }

    fn put(&mut self, now_ns: u64, from: HostId, packet: Vec<u8>) {
        self.deliver(now_ns);
        let to = if from == KERNEL { OURS } else { KERNEL };
        self.topology.send(Instant::from_nanos(now_ns), from, to, packet).expect("there is a wire");
    }

    fn deliver(&mut self, now_ns: u64) {
        while let Some(delivery) = self.topology.poll(Instant::from_nanos(now_ns)) {
            if delivery.to == OURS {
                self.host.handle_packet(Instant::from_nanos(now_ns), &delivery.packet);
            } else {
                // A packet whose flipped bit makes it no IP packet is refused, which is a loss.
                let parts = [IoSlice::new(&[0; HEADER_BYTES]), IoSlice::new(&delivery.packet)];
                let _ = self.tun.write(&parts);
            }
        }
    }

    /// Waits for the kernel or for the next thing that is due.
    fn sleep(&self, now_ns: u64) {
        let wire = self.topology.next_time().map(Instant::as_nanos);
        let timer = self.host.poll_timeout().map(Instant::as_nanos);
        let due_ns = wire.into_iter().chain(timer).min().unwrap_or(now_ns + 100_000_000);
        let wait_ns = due_ns.saturating_sub(now_ns).min(100_000_000);
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait_ns as _ };
        let mut fds = [PollFd::new(&self.tun, PollFlags::IN)];
        poll(&mut fds, Some(&timeout)).expect("polling");
    }
}
