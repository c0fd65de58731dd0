//! Namespaces, devices and routes, which need root here or elsewhere; `heddle emulate`'s tests use them without it.

#[path = "support/not_run.rs"]
mod not_run;

use std::fs;
use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;

use heddle_net::namespace::{self, Namespace, Privilege};
use heddle_net::netlink::{Device, Netlink, Route};
use heddle_net::tun::{FRAME_BYTES_MAX, HEADER_BYTES, Tun};
use not_run::not_run;

const OURS: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);

/// A namespace for this test, if the process may make one: with several threads it cannot get the right to.
fn namespace(what: &str) -> Option<Namespace> {
    match namespace::gain_privilege() {
        Ok(Privilege::Capabilities) => Some(Namespace::new().unwrap()),
        _ => {
            not_run(&format!("{what}, for want of root"));
            None
        }
    }
}

#[test]
fn a_namespace_has_devices_and_settings_of_its_own() {
    let Some(namespace) = namespace("devices and settings of a namespace") else { return };
    let setting = "/proc/sys/net/ipv4/ip_default_ttl";
    let before = fs::read_to_string(setting).unwrap();
    let (devices, after) = namespace
        .run(|| {
            fs::write(setting, "33").unwrap();
            Netlink::open().unwrap().up(Device::LOOPBACK).unwrap();
            UdpSocket::bind("127.0.0.1:0").unwrap();
            (fs::read_to_string("/proc/thread-self/net/dev").unwrap(), fs::read_to_string(setting).unwrap())
        })
        .unwrap();
    assert_eq!(devices.lines().filter(|line| line.contains(':')).count(), 1, "{devices}");
    assert_eq!(after, "33\n");
    assert_eq!(fs::read_to_string(setting).unwrap(), before);
}

#[test]
fn packets_go_through_a_device_both_ways() {
    let Some(namespace) = namespace("packets through a device") else { return };
    let (tun, socket) = namespace
        .run(|| {
            // Otherwise the kernel looks for routers over the device.
            let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            let tun = Tun::open(Path::new("/dev/net/tun"), "test0").unwrap();
            let mut netlink = Netlink::open().unwrap();
            let device = netlink.device("test0").unwrap();
            netlink.configure(device, 1400, 100).unwrap();
            netlink.add_address(device, OURS.into()).unwrap();
            netlink.up(device).unwrap();
            let (to, from) = (IpAddr::from(THEIRS), IpAddr::from(OURS));
            let route = Route { to, from, mtu_bytes: 1300, congestion_control: Some("reno") };
            netlink.add_route(device, &route).unwrap();
            let nonesuch =
                Route { to: "10.1.0.3".parse().unwrap(), congestion_control: Some("nonesuch"), ..route };
            let error = netlink.add_route(device, &nonesuch).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
            (tun, UdpSocket::bind((OURS, 7)).unwrap())
        })
        .unwrap();

    // The namespace lives on in its device and the socket.
    drop(namespace);
    socket.send_to(b"there", (THEIRS, 9)).unwrap();
    let mut frame = vec![0; FRAME_BYTES_MAX];
    let len = tun.read(&mut frame).unwrap().expect("the kernel hands over what was sent at once");
    let mut packet = frame[HEADER_BYTES..len].to_vec();
    assert_eq!((&packet[12..16], &packet[16..20]), (&OURS.octets()[..], &THEIRS.octets()[..]));
    assert_eq!(&packet[28..], b"there");
    assert!(tun.read(&mut frame).unwrap().is_none());

    // Back with its addresses and ports exchanged, which leaves the sums of the headers as they are. A checksum of zero
    // means that there is none.
    for range in [12, 16].map(|at| at..at + 4) {
        let other = if range.start == 12 { THEIRS } else { OURS };
        packet[range].copy_from_slice(&other.octets());
    }
    packet[20..28].copy_from_slice(&[0, 9, 0, 7, 0, 13, 0, 0]);
    tun.write(&[IoSlice::new(&[0; HEADER_BYTES]), IoSlice::new(&packet)]).unwrap();
    let mut datagram = [0; 100];
    let (len, from) = socket.recv_from(&mut datagram).unwrap();
    assert_eq!((&datagram[..len], from), (&b"there"[..], (THEIRS, 9).into()));
}
