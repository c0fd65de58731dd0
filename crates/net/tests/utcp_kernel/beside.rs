//! `utcp` beside the kernel: what each sends alone over a wire, and how they share it. Both send to the same kernel.
//!
//! `cargo test --release -p heddle-net --test utcp_kernel -- --beside` prints a table; it takes minutes and asserts
//! nothing, because a busy machine moves packets too late.

use crate::wire::switch_offload_off;
use heddle_net::monotonic;
use heddle_net::namespace::Namespace;
use heddle_net::netlink::{Device, Netlink, Route};
use heddle_net::tun::{FRAME_BYTES_MAX, HEADER_BYTES, Tun};
use heddle_netem::{
    DirectionOptions, HostId, HostOptions, Loss, QueueOptions, Rate, Seed, Topology, TopologyOptions,
    WireOptions,
};
use heddle_utcp::{BufferPool, Host, HostLimits, Instant, Options};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{IoSlice, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const SINK: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);
/// The sink's ports, for the kernel's flow and for ours.
const PORTS: [u16; 2] = [8001, 8002];
const SECONDS: u64 = 20;

/// Mbit/s, round trip in ms, loss, queue in bandwidth-delay products.
const WIRES: [(u64, u64, f64, f64); 4] =
    [(10, 100, 0.0, 1.0), (10, 100, 0.01, 1.0), (50, 50, 0.001, 1.0), (10, 50, 0.0, 4.0)];

pub fn table() {
    println!("Mbit/s of the wire, ms, loss, queue: alone kernel, utcp; together kernel, utcp, share of utcp");
    for (number, wire) in WIRES.iter().enumerate() {
        let seed = number as u64;
        let alone = [measure(wire, [true, false], seed)[0], measure(wire, [false, true], seed)[1]];
        let both = measure(wire, [true, true], seed);
        let share = both[1] / (both[0] + both[1]);
        println!(
            "{wire:?}: {:.2} {:.2}, together {:.2} {:.2}, {:.0} %",
            alone[0],
            alone[1],
            both[0],
            both[1],
            share * 100.0
        );
    }
}

/// Mbit/s of the kernel's flow and of ours, of those that send.
fn measure(wire: &(u64, u64, f64, f64), sends: [bool; 2], seed: u64) -> [f64; 2] {
    let namespaces = [Namespace::new().expect("a namespace"), Namespace::new().expect("a namespace")];
    let kernel = namespaces[0].run(|| set_up(KERNEL, &[SINK])).expect("the namespace can be entered");
    let sink = namespaces[1].run(|| set_up(SINK, &[KERNEL, OURS])).expect("the namespace can be entered");
    let listeners = PORTS
        .map(|port| namespaces[1].run(|| TcpListener::bind((SINK, port)).expect("free")).expect("inside"));
    let (stop, counts) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    let mut road = Road::new(wire, [kernel, sink], seed);
    thread::scope(|scope| {
        for ((listener, count), _) in listeners.iter().zip(&counts).zip(sends).filter(|(_, sends)| *sends) {
            let stop = &stop;
            scope.spawn(move || count_bytes(listener.accept().expect("a flow").0, count, stop));
        }
        if sends[0] {
            let (namespace, stop) = (&namespaces[0], &stop);
            scope.spawn(move || {
                let to = (SINK, PORTS[0]);
                let stream = namespace.run(|| TcpStream::connect(to).expect("it listens")).expect("inside");
                write_until(stream, stop);
            });
        }
        road.run(sends[1]);
        stop.store(true, Ordering::Relaxed);
        // The threads end when what they wait for moves or their time is up.
        road.drain();
    });
    counts.map(|count| count.load(Ordering::Relaxed) as f64 * 8e-6 / SECONDS as f64)
}

fn count_bytes(mut stream: TcpStream, count: &AtomicU64, stop: &AtomicBool) {
    stream.set_read_timeout(Some(Duration::from_millis(100))).expect("a time");
    let mut buffer = vec![0; 1 << 16];
    while !stop.load(Ordering::Relaxed) {
        if let Ok(read) = stream.read(&mut buffer) {
            count.fetch_add(read as u64, Ordering::Relaxed);
        }
    }
}

fn write_until(mut stream: TcpStream, stop: &AtomicBool) {
    stream.set_write_timeout(Some(Duration::from_millis(100))).expect("a time");
    let buffer = vec![0; 1 << 16];
    while !stop.load(Ordering::Relaxed) {
        let _ = stream.write(&buffer);
    }
    let _ = stream.shutdown(Shutdown::Both);
}

fn set_up(own: Ipv4Addr, others: &[Ipv4Addr]) -> Tun {
    let tun = Tun::open(Path::new("/dev/net/tun"), "wire0").expect("a TUN device");
    switch_offload_off(&tun);
    let mut netlink = Netlink::open().expect("netlink");
    let device = netlink.device("wire0").expect("the device");
    netlink.up(Device::LOOPBACK).expect("the loopback device");
    netlink.configure(device, 1500, 10_000).expect("the MTU");
    netlink.add_address(device, own.into()).expect("an address");
    netlink.up(device).expect("the device");
    for other in others {
        let (to, from) = (IpAddr::V4(*other), IpAddr::V4(own));
        let route = Route { to, from, mtu_bytes: 1500, congestion_control: Some("cubic") };
        netlink.add_route(device, &route).expect("a route");
    }
    tun
}

/// The wire. Host 0 is the kernel that sends and `utcp`, host 1 the sink.
struct Road {
    tuns: [Tun; 2],
    topology: Topology<Vec<u8>>,
    host: Host,
    origin_ns: u64,
}

impl Road {
    fn new(&(mbit_per_s, rtt_ms, loss, queue): &(u64, u64, f64, f64), tuns: [Tun; 2], seed: u64) -> Self {
        let host = |name: &str| HostOptions { name: name.to_owned(), ..HostOptions::default() };
        let bdp_bytes = mbit_per_s * 125 * rtt_ms;
        let back = DirectionOptions {
            rate: Rate::BitsPerS(mbit_per_s * 1_000_000),
            delay_ns: rtt_ms * 500_000,
            queue: QueueOptions { bytes_max: (bdp_bytes as f64 * queue) as u64, ..QueueOptions::default() },
            ..DirectionOptions::default()
        };
        let loss = if loss > 0.0 { Loss::Bernoulli { probability: loss } } else { Loss::None };
        let there = DirectionOptions { loss, ..back.clone() };
        let wires = vec![WireOptions { from: "senders".into(), to: "sink".into(), there, back: Some(back) }];
        let options =
            TopologyOptions { hosts: vec![host("senders"), host("sink")], wires, default_wire: None };
        let topology = Topology::new(&options, &Seed::from_number(seed)).expect("good options");
        let mut rng = Seed::from_number(seed).rng();
        let random = Box::new(move || rng.next_u64());
        let host = Host::new(Options::default(), BufferPool::new(64 << 20), HostLimits::default(), random);
        Road { tuns, topology, host, origin_ns: monotonic().as_nanos() - 1_000_000_000 }
    }

    fn now_ns(&self) -> u64 {
        monotonic().as_nanos() - self.origin_ns
    }

    fn run(&mut self, we_send: bool) {
        let begun_ns = self.now_ns();
        let now = Instant::from_nanos(begun_ns);
        let id = we_send.then(|| self.host.connect(now, (OURS, 0).into(), (SINK, PORTS[1]).into()));
        let bytes = vec![0; 1 << 16];
        while self.now_ns() - begun_ns < SECONDS * 1_000_000_000 {
            let connection = id.flatten().and_then(|id| self.host.get_mut(id));
            if let Some(connection) = connection {
                while connection.write(&bytes) > 0 {}
            }
            self.turn();
        }
    }

    /// Goes on without us until the threads have seen that the time is up.
    fn drain(&mut self) {
        let begun_ns = self.now_ns();
        while self.now_ns() - begun_ns < 500_000_000 {
            self.turn();
        }
    }

    fn turn(&mut self) {
        let now_ns = self.now_ns();
        let now = Instant::from_nanos(now_ns);
        for from in [0, 1] {
            let mut frame = vec![0; FRAME_BYTES_MAX];
            while let Some(len) = self.tuns[from].read(&mut frame).expect("the device is up") {
                self.put(now_ns, from, frame[HEADER_BYTES..len].to_vec());
            }
        }
        self.deliver(now_ns);
        self.host.handle_timeout(now);
        let mut packet = Vec::new();
        while self.host.poll_packet(now, &mut packet) {
            self.put(now_ns, 0, std::mem::take(&mut packet));
        }
        self.sleep(now_ns);
    }

    fn put(&mut self, now_ns: u64, from: usize, packet: Vec<u8>) {
        self.deliver(now_ns);
        let (from, to) = (HostId(from as u32), HostId(1 - from as u32));
        self.topology.send(Instant::from_nanos(now_ns), from, to, packet).expect("there is a wire");
    }

    fn deliver(&mut self, now_ns: u64) {
        while let Some(delivery) = self.topology.poll(Instant::from_nanos(now_ns)) {
            let is_ours = delivery.packet.get(16..20) == Some(&OURS.octets());
            if is_ours {
                self.host.handle_packet(Instant::from_nanos(now_ns), &delivery.packet);
            } else {
                let parts = [IoSlice::new(&[0; HEADER_BYTES]), IoSlice::new(&delivery.packet)];
                let _ = self.tuns[delivery.to.0 as usize].write(&parts);
            }
        }
    }

    fn sleep(&self, now_ns: u64) {
        let wire = self.topology.next_time().map(Instant::as_nanos);
        let timer = self.host.poll_timeout().map(Instant::as_nanos);
        let due_ns = wire.into_iter().chain(timer).min().unwrap_or(now_ns + 10_000_000);
        let wait_ns = due_ns.saturating_sub(now_ns).min(10_000_000);
        let [one, other] = &self.tuns;
        let mut fds = [PollFd::new(one, PollFlags::IN), PollFd::new(other, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait_ns as _ };
        poll(&mut fds, Some(&timeout)).expect("polling");
    }
}
