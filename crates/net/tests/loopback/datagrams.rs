//! UDP ports, with and without the kernel's help.

use crate::nodes::{Running, STUCK, Say, Strings};
use crate::not_run::not_run;
use heddle_net::{Counters, EventLoop, Options, PortInfo, bind_udp};
use heddle_relay::{Input, Output, RelayLanguage};
use heddle_seam::datagrams::{Datagrams, IdPrefix, Transmit};
use heddle_seam::node::{Node, PortId, SocketId};
use heddle_seam::time::Instant;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const OFFLOAD: [bool; 2] = [true, false];

fn options(udp_offload: bool) -> Options {
    Options { udp_offload, ..Options::default() }
}

/// A puppet with a port at this address.
fn puppet(options: Options, ip: Option<IpAddr>) -> (Strings, PortInfo) {
    let mut info = None;
    let strings = Strings::start_with(options, |event_loop| {
        let port = event_loop.add_port(bind_udp(ip, 0).unwrap()).unwrap();
        assert_eq!(port, PortId(0));
        info = event_loop.port_info(port);
    });
    (strings, info.unwrap())
}

fn loopback() -> Option<IpAddr> {
    Some(Ipv4Addr::LOCALHOST.into())
}

fn expect_datagrams(strings: &Strings) -> Datagrams {
    match strings.next().input {
        Input::Datagrams { port, datagrams } => {
            assert_eq!(port, PortId(0));
            datagrams
        }
        other => panic!("told {other:?}"),
    }
}

/// What a loop did in all. While it runs, it tells what it did up to its last turn.
fn counters_at_the_end(strings: Strings) -> Counters {
    let handle = strings.running.handle.clone();
    strings.running.stop();
    handle.counters()
}

fn peer() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(STUCK)).unwrap();
    socket
}

/// Sends back what comes, to where it came from and from where it was sent to.
struct Echo {
    came: VecDeque<Datagrams>,
    datagrams: u64,
}

impl Echo {
    fn start(udp_offload: bool, ip: Option<IpAddr>) -> (Running<Echo>, SocketAddr) {
        Echo::start_with(options(udp_offload), ip)
    }

    fn start_with(options: Options, ip: Option<IpAddr>) -> (Running<Echo>, SocketAddr) {
        let mut local = None;
        let echo = Echo { came: VecDeque::new(), datagrams: 0 };
        let running =
            Running::start_with(echo, options, |event_loop: &mut EventLoop<RelayLanguage, Echo>| {
                let port = event_loop.add_port(bind_udp(ip, 0).unwrap()).unwrap();
                local = event_loop.port_info(port).map(|info| info.local);
            });
        (running, local.unwrap())
    }
}

impl Node<RelayLanguage> for Echo {
    fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
        &mut []
    }

    fn handle_input(&mut self, _: Instant, input: Input) {
        if let Input::Datagrams { datagrams, .. } = input {
            self.datagrams += datagrams.data.len().div_ceil(datagrams.stride) as u64;
            self.came.push_back(datagrams);
        }
    }

    fn poll_output(&mut self, _: Instant, buf: &mut Vec<u8>) -> Output {
        let Some(came) = self.came.pop_front() else { return Output::Timeout(None) };
        buf.extend_from_slice(&came.data);
        let transmit = Transmit { to: came.from, from: came.to, ecn: came.ecn, stride: came.stride };
        Output::Datagrams { port: PortId(0), transmit }
    }
}

#[test]
fn datagrams_come_back_as_they_went() {
    for udp_offload in OFFLOAD {
        let (echo, addr) = Echo::start(udp_offload, loopback());
        let peer = peer();
        let mut buf = [0; 2000];
        for len in [1, 2, 511, 1200, 1350, 2000] {
            let sent: Vec<u8> = (0..len).map(|n| (n * 7 + len) as u8).collect();
            peer.send_to(&sent, addr).unwrap();
            let (came, from) = peer.recv_from(&mut buf).unwrap();
            assert_eq!((&buf[..came], from), (&sent[..], addr));
        }
        let counters = echo.handle.counters();
        assert_eq!((counters.datagrams_dropped, counters.recv_bytes), (0, 0));
        assert_eq!(echo.stop().datagrams, 6);
    }
}

/// Each datagram is sent when the one before has come back, so each has a turn of its own.
#[test]
fn turns_that_move_little_are_apart() {
    const COUNT: u64 = 40;
    // The longest there may be, so that a busy machine's turns are shorter.
    for apart_ms in [0, 10] {
        let options = Options { turns_apart: Duration::from_millis(apart_ms), ..Options::default() };
        let (echo, addr) = Echo::start_with(options, loopback());
        let (peer, begun) = (peer(), std::time::Instant::now());
        for n in 0..COUNT {
            peer.send_to(&n.to_be_bytes(), addr).unwrap();
            peer.recv_from(&mut [0; 8]).unwrap();
        }
        let (elapsed, counters) = (begun.elapsed(), echo.handle.counters());
        assert_eq!(echo.stop().datagrams, COUNT);
        if apart_ms == 0 {
            assert_eq!(counters.rests, 0);
        } else {
            // The last one comes back before its turn is over.
            assert!(counters.rests >= COUNT / 2, "{counters:?}");
            assert!(elapsed.as_millis() as u64 >= apart_ms * (COUNT / 2), "{elapsed:?}");
        }
    }
}

#[test]
fn a_burst_is_cut_where_its_stride_says() {
    for udp_offload in OFFLOAD {
        let (strings, info) = puppet(options(udp_offload), loopback());
        assert_eq!(info.offload, udp_offload);
        assert!(info.recv_buffer_bytes > 100_000 && info.send_buffer_bytes > 100_000, "{info:?}");
        let peer = peer();
        let transmit = |stride| Transmit { to: peer.local_addr().unwrap(), from: None, ecn: 0, stride };
        // More than one segmented send may carry, and a last one that is shorter.
        let bytes: Vec<u8> = (0..70_000).map(|n| (n / 1200) as u8).collect();
        let mut buf = vec![0; 65_536];
        for stride in [1200, 30_000] {
            strings.say([Say::Datagrams(PortId(0), transmit(stride), bytes.clone())]);
            for (n, sent) in bytes.chunks(stride).enumerate() {
                let (came, from) = peer.recv_from(&mut buf).unwrap();
                assert!(&buf[..came] == sent, "stride {stride}, datagram {n}: {came} bytes");
                assert_eq!(from, info.local);
            }
        }
        assert_eq!(strings.running.handle.counters().datagrams_dropped, 0);
    }
}

#[test]
fn a_port_is_drained_however_much_comes() {
    for udp_offload in OFFLOAD {
        let (strings, info) = puppet(options(udp_offload), loopback());
        let peer = peer();
        for round in 0..20_u32 {
            // Half of the least buffer a system gives, so that none is lost.
            for n in 0..32_u32 {
                let mut datagram = [0; 1000];
                datagram[..4].copy_from_slice(&(round * 32 + n).to_be_bytes());
                peer.send_to(&datagram, info.local).unwrap();
            }
            let mut next = round * 32;
            while next < (round + 1) * 32 {
                let came = expect_datagrams(&strings);
                assert_eq!(came.from, peer.local_addr().unwrap());
                for datagram in came.data.chunks(came.stride) {
                    assert_eq!((datagram.len(), &datagram[..4]), (1000, &next.to_be_bytes()[..]));
                    next += 1;
                }
            }
        }
        assert_eq!(counters_at_the_end(strings).datagrams_received, 640);
    }
}

#[test]
fn a_coalesced_burst_comes_as_one() {
    let (receiver, info) = puppet(options(true), loopback());
    let (sender, from) = puppet(options(true), loopback());
    if !(info.offload && from.offload) {
        not_run("a coalesced burst, for want of UDP offload");
        return;
    }
    let transmit = Transmit { to: info.local, from: None, ecn: 0, stride: 1000 };
    sender.say([Say::Datagrams(PortId(0), transmit, vec![3; 20_500])]);
    let came = expect_datagrams(&receiver);
    assert_eq!((came.from, came.stride, came.data.len()), (from.local, 1000, 20_500));
    let (sends, recvs) = (counters_at_the_end(sender), counters_at_the_end(receiver));
    assert_eq!((sends.datagram_sends, sends.datagrams_sent), (1, 21));
    assert!(recvs.datagram_recvs <= 2, "{recvs:?}");
}

#[test]
fn nobody_is_woken_up_for_datagrams_that_have_left() {
    const SENT: u64 = 50;
    for udp_offload in OFFLOAD {
        let (sender, _) = puppet(options(udp_offload), loopback());
        let peer = peer();
        let transmit = Transmit { to: peer.local_addr().unwrap(), from: None, ecn: 0, stride: 1000 };
        for _ in 0..SENT {
            sender.say([Say::Datagrams(PortId(0), transmit, vec![5; 1000])]);
            assert_eq!(peer.recv(&mut [0; 1000]).unwrap(), 1000);
        }
        let counters = counters_at_the_end(sender);
        assert_eq!(counters.datagrams_sent, SENT);
        // One for each of ours and one for the end.
        assert!(counters.events <= SENT + 1, "{counters:?}");
    }
}

#[test]
fn congestion_marks_and_addresses_go_both_ways() {
    let (receiver, info) = puppet(options(true), None);
    let (sender, _) = puppet(options(true), loopback());
    if !info.offload {
        not_run("congestion marks and addresses, for want of UDP offload");
        return;
    }
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, info.local.port()));
    for ecn in [0b10, 0b01, 0b11, 0] {
        let transmit = Transmit { to, from: loopback(), ecn, stride: 100 };
        sender.say([Say::Datagrams(PortId(0), transmit, vec![1; 100])]);
        let came = expect_datagrams(&receiver);
        assert_eq!((came.ecn, came.to), (ecn, loopback()));
        assert!(came.from.is_ipv4(), "a port of both families tells IPv4 as IPv4");
    }
}

#[test]
fn an_answer_comes_from_the_address_that_was_asked() {
    // A port of every address, of both families where there is IPv6.
    let (_echo, addr) = Echo::start(true, None);
    for asked in [Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 5)] {
        let peer = peer();
        let asked = SocketAddr::from((asked, addr.port()));
        peer.send_to(b"who?", asked).unwrap();
        let (_, from) = peer.recv_from(&mut [0; 10]).unwrap();
        assert_eq!(from, asked);
    }
    match UdpSocket::bind("[::1]:0") {
        Ok(peer) if addr.is_ipv6() => {
            peer.set_read_timeout(Some(STUCK)).unwrap();
            peer.send_to(b"who?", ("::1", addr.port())).unwrap();
            assert_eq!(peer.recv_from(&mut [0; 10]).unwrap().1.ip(), "::1".parse::<IpAddr>().unwrap());
        }
        _ => not_run("an answer from the address of IPv6 that was asked, for want of one"),
    }
}

#[test]
fn what_cannot_be_sent_is_lost_and_counted() {
    for udp_offload in OFFLOAD {
        let (strings, info) = puppet(options(udp_offload), loopback());
        let peer = peer();
        let transmit = |to, stride| Transmit { to, from: None, ecn: 0, stride };
        strings.say([
            // Longer than any datagram; a port that is not there; an address of no route from loopback.
            Say::Datagrams(PortId(0), transmit(info.local, 70_000), vec![0; 70_000]),
            Say::Datagrams(PortId(1), transmit(info.local, 10), vec![0; 10]),
            Say::Datagrams(PortId(0), transmit("[::1]:9".parse().unwrap(), 10), vec![0; 10]),
            Say::Datagrams(PortId(0), transmit(peer.local_addr().unwrap(), 10), b"still here".to_vec()),
        ]);
        let mut buf = [0; 20];
        assert_eq!(peer.recv_from(&mut buf).unwrap().0, 10);
        strings.output(Output::Timeout(None));
        let begun = std::time::Instant::now();
        let mut counters = strings.running.handle.counters();
        while counters.datagrams_sent == 0 {
            assert!(begun.elapsed() < STUCK, "{counters:?}");
            std::thread::yield_now();
            counters = strings.running.handle.counters();
        }
        assert_eq!((counters.datagrams_sent, counters.datagrams_dropped), (1, 2));
    }
}

#[test]
fn sockets_are_served_beside_a_flood_of_datagrams() {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    let over = AtomicBool::new(false);
    let mut port = None;
    let relay = Running::start_with(crate::nodes::Relay::new(None), options(true), |event_loop| {
        let id = event_loop.add_port(bind_udp(loopback(), 0).unwrap()).unwrap();
        port = event_loop.port_info(id);
    });
    let to = port.unwrap().local;
    std::thread::scope(|scope| {
        // The flood ends with this part of the scope, also when that panics.
        let _ending = SetAtEnd(&over);
        scope.spawn(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            while !over.load(Ordering::Relaxed) {
                let _ = socket.send_to(&[0; 1200], to);
            }
        });
        let begun = std::time::Instant::now();
        while relay.handle.counters().datagrams_received == 0 {
            assert!(begun.elapsed() < STUCK, "no flood came");
            std::thread::yield_now();
        }
        let mut client = TcpStream::connect(relay.addr).unwrap();
        client.set_read_timeout(Some(STUCK)).unwrap();
        for n in 0..200_u8 {
            client.write_all(&[n; 100]).unwrap();
            let mut back = [0; 100];
            client.read_exact(&mut back).unwrap();
            assert_eq!(back, [n; 100]);
        }
    });
}

/// Becomes true when this is dropped.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Has datagrams wait at two of its ports at once. What comes at the first has it send one more to the second, which is
/// received in the same round.
struct Meanwhile {
    socket: UdpSocket,
    ports: Vec<SocketAddr>,
    sent_at: Instant,
    rounds: u32,
    too_early: u32,
}

impl Meanwhile {
    fn send(&self, to: SocketAddr) {
        self.socket.send_to(&[1], to).unwrap();
    }
}

impl Node<RelayLanguage> for Meanwhile {
    fn recv_buf(&mut self, _: SocketId) -> &mut [u8] {
        &mut []
    }

    fn handle_input(&mut self, now: Instant, input: Input) {
        let Input::Datagrams { port, .. } = input else { return };
        if port == PortId(0) {
            self.sent_at = heddle_net::monotonic();
            return self.send(self.ports[1]);
        }
        self.too_early += u32::from(now < self.sent_at);
        self.rounds += 1;
        match self.rounds {
            1..100 => self.ports.iter().for_each(|to| self.send(*to)),
            100 => self.send(self.socket.local_addr().unwrap()),
            _ => {}
        }
    }

    fn poll_output(&mut self, _: Instant, _: &mut Vec<u8>) -> Output {
        Output::Timeout(None)
    }
}

#[test]
fn no_datagram_comes_before_it_was_sent() {
    let sockets = [0, 1].map(|_| bind_udp(loopback(), 0).unwrap());
    let ports: Vec<SocketAddr> = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
    let (done, first) = (peer(), ports[0]);
    let socket = done.try_clone().unwrap();
    let node = Meanwhile { socket, ports, sent_at: heddle_net::monotonic(), rounds: 0, too_early: 0 };
    let running =
        Running::start_with(node, options(true), |event_loop: &mut EventLoop<RelayLanguage, Meanwhile>| {
            for socket in sockets {
                event_loop.add_port(socket).unwrap();
            }
        });
    done.send_to(&[1], first).unwrap();
    done.recv_from(&mut [0]).unwrap();
    assert_eq!(running.stop().too_early, 0);
}

/// What has a port's prefix comes from a socket of its own and is the port's like all else.
#[test]
fn what_has_the_prefix_comes_to_the_same_port() {
    for ip in [loopback(), None] {
        let mut to = None;
        let strings = Strings::start_with(options(true), |event_loop| {
            let id = event_loop.add_port(bind_udp(ip, 0).unwrap()).unwrap();
            event_loop.keep_apart(id, IdPrefix([7, 8])).unwrap();
            assert!(event_loop.keep_apart(id, IdPrefix([7, 8])).is_err(), "once");
            assert!(event_loop.keep_apart(PortId(1), IdPrefix([7, 8])).is_err());
            to = event_loop.port_info(id).map(|info| (Ipv4Addr::LOCALHOST, info.local.port()));
        });
        let (to, peer) = (to.unwrap(), peer());
        for sent in [[0x40, 7, 8, 1], [0xc0, 7, 8, 2], [0x40, 7, 9, 3], [0x7f, 7, 8, 4]] {
            peer.send_to(&sent, to).unwrap();
            let Datagrams { from, data, .. } = expect_datagrams(&strings);
            assert_eq!((from, &data[..]), (peer.local_addr().unwrap(), &sent[..]));
            let transmit = Transmit { to: from, from: None, ecn: 0, stride: 4 };
            strings.say([Say::Datagrams(PortId(0), transmit, data.to_vec())]);
            let mut back = [0; 10];
            assert_eq!(peer.recv_from(&mut back).unwrap(), (4, to.into()));
            assert_eq!(back[..4], sent);
        }
    }
    let (_, info) = puppet(options(false), loopback());
    assert!(!info.offload, "a plain port, which has one socket: see `Port::split`");
}
