use super::*;
use std::time::Duration;

/// A port and a peer of it.
fn pair() -> (Port, UdpSocket) {
    let port = Port::new(bind_udp(Some(Ipv4Addr::LOCALHOST.into()), 0).unwrap(), true).unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    (port, peer)
}

#[test]
fn what_the_kernel_has_no_room_for_waits_in_its_order() {
    let (mut port, peer) = pair();
    let mut counters = Counters::default();
    let transmit = Transmit { to: peer.local_addr().unwrap(), from: None, ecn: 0, stride: 1000 };
    port.writable = false;
    for n in 0..3 {
        port.send(transmit, &mut vec![n; 2500], &mut counters);
    }
    assert_eq!((counters.datagram_sends, port.buffered_bytes), (0, 7500));
    port.writable = true;
    // It comes after what waits, though there is room for it.
    port.send(transmit, &mut vec![3; 2500], &mut counters);
    port.flush(&mut counters);
    assert_eq!((counters.datagrams_sent, port.buffered_bytes, port.waiting.len()), (12, 0, 0));
    let mut buf = [0; 2000];
    for n in 0..4 {
        for len in [1000, 1000, 500] {
            assert_eq!(peer.recv(&mut buf).unwrap(), len);
            assert_eq!(buf[..len], vec![n; len]);
        }
    }
}

#[test]
fn what_waits_is_bounded() {
    let (mut port, peer) = pair();
    let mut counters = Counters::default();
    let transmit = Transmit { to: peer.local_addr().unwrap(), from: None, ecn: 0, stride: 1000 };
    port.writable = false;
    for _ in 0..10 {
        let mut data = vec![7; 50_000];
        port.send(transmit, &mut data, &mut counters);
        assert!(data.is_empty());
        assert!(port.buffered_bytes <= WAITING_BYTES_MAX);
    }
    assert_eq!((port.waiting.len(), counters.datagrams_dropped), (5, 250));
}

/// What `docs/reference/anonymity.md` grants a stranger.
#[test]
fn one_datagram_tells_a_port_from_a_closed_one() {
    let (port, _) = pair();
    // Below what the system gives to sockets that name no port, as those of other tests.
    let closed = "127.0.0.1:1".parse().unwrap();
    let probe = |to: SocketAddr| {
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        stranger.connect(to).unwrap();
        stranger.send(b"anybody there?").unwrap();
        stranger.recv(&mut [0; 100]).unwrap_err().kind()
    };
    assert_eq!(probe(port.info.local), ErrorKind::WouldBlock);
    assert_eq!(probe(closed), ErrorKind::ConnectionRefused);
}

/// So many datagrams of strangers fill whatever the kernel keeps for a socket: 4 MiB are asked of it, and it counts
/// more for each than its length.
const FLOOD: usize = 12_000;
const FLOOD_LEN: usize = 1200;

/// Floods a port whose prefix is 7, 8, and then has somebody send a hundred datagrams that have it.
fn flood(to: SocketAddr) {
    let [stranger, known] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let mut datagram = [0; FLOOD_LEN];
    for number in 0..FLOOD {
        let others = [[0xc0, 7, 8], [0x40, 7, 9], [0x40, 8, 7], [0xff, 7, 8]];
        datagram[..3].copy_from_slice(&others[number % others.len()]);
        // A few are too short to have one.
        let len = if number % 1000 < 3 { number % 1000 } else { FLOOD_LEN };
        stranger.send_to(&datagram[..len], to).unwrap();
    }
    for number in 0..100 {
        datagram[..4].copy_from_slice(&[0x40, 7, 8, number]);
        known.send_to(&datagram, to).unwrap();
    }
}

/// What waits at a socket: the first bytes of each datagram.
fn drain(port: &mut Port) -> Vec<Vec<u8>> {
    let (mut buffer, mut counters, mut came) = (RecvBuffer::new(), Counters::default(), Vec::new());
    while port.readable {
        port.recv(&mut buffer, &mut counters, |datagrams| {
            let each = datagrams.data.chunks(datagrams.stride);
            came.extend(each.map(|datagram| datagram[..datagram.len().min(4)].to_vec()));
        });
    }
    came
}

#[test]
fn a_flood_takes_no_place_of_what_has_the_prefix() {
    let known: Vec<Vec<u8>> = (0..100).map(|number| vec![0x40, 7, 8, number]).collect();
    for ip in [Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), None] {
        let mut first = Port::new(bind_udp(ip, 0).unwrap(), true).unwrap();
        let mut second = first.split(IdPrefix([7, 8])).unwrap();
        flood((Ipv4Addr::LOCALHOST, first.info.local.port()).into());
        assert_eq!(drain(&mut second), known);
        let strangers = drain(&mut first);
        assert!(strangers.len() > 50 && strangers.iter().all(|came| !known.contains(came)));
    }
    // In one buffer there is no place left.
    let mut port = Port::new(bind_udp(Some(Ipv4Addr::LOCALHOST.into()), 0).unwrap(), true).unwrap();
    flood(port.info.local);
    let came = drain(&mut port);
    assert!(came.len() < FLOOD && came.iter().all(|came| !known.contains(came)));
}

/// The kernel looks at the first of what it coalesced. Datagrams that are sent in one call over the loopback device
/// arrive like this whatever their bytes are, and no network card looks at those either.
#[test]
fn a_run_of_datagrams_goes_where_its_first_goes_and_none_is_lost() {
    let (known, strange) = ([0x40, 7, 8, 1], [0xc0, 7, 8, 2]);
    let (mut first, _) = pair();
    let mut second = first.split(IdPrefix([7, 8])).unwrap();
    let (mut peer, _) = pair();
    let transmit = Transmit { to: first.info.local, from: None, ecn: 0, stride: 4 };
    for (run, at_second) in [([known, strange, known], true), ([strange, known, strange], false)] {
        let mut counters = Counters::default();
        peer.send(transmit, &mut run.concat(), &mut counters);
        assert_eq!((counters.datagram_sends, counters.datagrams_sent), (1, 3));
        (first.readable, second.readable) = (true, true);
        let came = [drain(&mut first), drain(&mut second)];
        let all = run.map(Vec::from).to_vec();
        assert_eq!(came, if at_second { [vec![], all] } else { [all, vec![]] });
    }
}

/// Whether somebody who means to can share a port.
fn joins(local: SocketAddr) -> bool {
    let another = open(local.ip(), true).unwrap();
    sockopt::set_socket_reuseport(&another, true).unwrap();
    net::bind(&another, &local).is_ok()
}

/// One socket receives all, and nobody can join it.
fn assert_whole(port: &mut Port) {
    let local = port.info.local;
    assert!(!joins(local));
    assert!(sys::choose_no_more(&port.socket).is_err(), "there is no program");
    let came: Vec<Vec<u8>> = vec![vec![0x40, 7, 8, 1], vec![0xc0, 7, 8, 2]];
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for datagram in &came {
        peer.send_to(datagram, local).unwrap();
    }
    port.readable = true;
    assert_eq!(drain(port), came);
}

/// Whichever step fails.
#[test]
fn a_port_whose_split_fails_is_one_that_nobody_can_join() {
    let prefix = IdPrefix([7, 8]);
    let (mut port, _) = pair();
    let local = port.info.local;
    // The second socket cannot be bound: the address is none of ours.
    port.info.local = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), local.port());
    assert_eq!(port.split(prefix).err().map(|error| error.kind()), Some(ErrorKind::AddrNotAvailable));
    port.info.local = local;
    assert_whole(&mut port);
    // All was done, and then the second socket is of no use.
    drop(port.split(prefix).unwrap());
    assert!(joins(local));
    port.unsplit();
    assert_whole(&mut port);
    // It can be split again.
    let mut second = port.split(prefix).unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.send_to(&[0x40, 7, 8, 1], local).unwrap();
    assert_eq!(drain(&mut second), [[0x40, 7, 8, 1]]);
    port.unsplit();
    drop(second);
    // The program is refused.
    sys::set_option(&port.socket, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, 1).unwrap();
    assert_eq!(port.split(prefix).err().map(|error| error.kind()), Some(ErrorKind::PermissionDenied));
    assert_whole(&mut port);
}

/// Nobody may be given a part of what comes to a port that is taken, nor take one afterwards by mistake.
#[test]
fn a_port_of_two_sockets_is_as_taken_as_any() {
    let (port, _) = pair();
    let local = port.info.local;
    let _second = port.split(IdPrefix([7, 8])).unwrap();
    let taken = bind_udp(Some(local.ip()), local.port()).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    assert!(joins(local), "by intent, as the same user: what `split` says is so");
    let plain = Port::new(bind_udp(Some(local.ip()), 0).unwrap(), false).unwrap();
    assert!(plain.split(IdPrefix([7, 8])).is_err());
}

#[test]
fn addresses_of_both_families_look_like_their_own() {
    let mapped = "[::ffff:192.0.2.1]:7".parse().unwrap();
    assert_eq!(plain_family(mapped), "192.0.2.1:7".parse().unwrap());
    for addr in ["192.0.2.1:7", "[2001:db8::1]:7"] {
        assert_eq!(plain_family(addr.parse().unwrap()), addr.parse().unwrap());
    }
}
