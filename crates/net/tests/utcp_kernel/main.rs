//! `utcp` against the kernel's TCP, over a TUN device and a wire that loses, reorders, repeats and flips bits.
//!
//! The kernel's end is in a network namespace; this program is the wire and the other end. It plays both roles, client
//! and server, and bytes go both ways at once. Without arguments some megabytes; with `--ignored`, as the test runner
//! passes it, a gigabyte; with `--beside` a table of how both share a wire.

mod beside;
mod peer;
mod wire;

use heddle_net::namespace::{self, Namespace};
use heddle_net::netlink::{Device, Netlink, Route};
use heddle_net::tun::Tun;
use heddle_netem::{DirectionOptions, Loss, Rate, Reorder};
use heddle_utcp::CloseReason;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use std::{panic, process};
use wire::Wire;

/// The kernel's address and ours, by family.
const FAMILIES: [[&str; 2]; 2] = [["10.77.0.1", "10.77.0.2"], ["fd77::1", "fd77::2"]];

fn main() {
    let is_long = std::env::args().any(|argument| argument == "--ignored");
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    end_with_a_panic();
    namespace::gain_privilege().expect("namespaces may be made");
    if std::env::args().any(|argument| argument == "--beside") {
        beside::table();
        return;
    }
    let [short, long] = [2_000_000, 500_000_000];
    let bytes = if is_long { long } else { short };
    let bad = DirectionOptions {
        rate: Rate::BitsPerS(if is_long { 400_000_000 } else { 100_000_000 }),
        delay_ns: 2_000_000,
        loss: Loss::Bernoulli { probability: if is_long { 0.0005 } else { 0.005 } },
        reorder: Some(Reorder { probability: 0.01, hold_ns: 500_000 }),
        duplicate: 0.002,
        corrupt: if is_long { 0.0005 } else { 0.005 },
        ..DirectionOptions::default()
    };
    for family in &FAMILIES[..if is_long { 1 } else { 2 }] {
        for we_connect in [true, false] {
            let begun = Instant::now();
            run(family, we_connect, bytes, bad.clone());
            let role = if we_connect { "client" } else { "server" };
            let seconds = begun.elapsed().as_secs_f64();
            println!("utcp as {role} over {}: {bytes} bytes each way in {seconds:.1} s", family[0]);
        }
    }
}

/// Has a panic of any thread end the program. The wire and the kernel's end wait for each other, so that the scope of
/// both would wait for ever for the one that goes on.
fn end_with_a_panic() {
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |what| {
        tell(what);
        process::exit(101);
    }));
}

fn run(family: &[&str; 2], we_connect: bool, bytes: u64, direction: DirectionOptions) {
    let [kernel, ours] = family.map(|text| text.parse::<IpAddr>().expect("an address"));
    let namespace = Namespace::new().expect("a namespace");
    let tun = namespace.run(|| set_up(kernel, ours)).expect("the namespace can be entered");
    let mut wire = Wire::new(tun, direction, bytes);
    let (kernel, ours) = (SocketAddr::new(kernel, 8000), SocketAddr::new(ours, 9000));
    thread::scope(|scope| {
        let peer = if we_connect {
            let listener = namespace.run(|| peer::listen(kernel)).expect("a thread inside");
            scope.spawn(move || peer::exchange(listener.accept().expect("a connection").0, bytes))
        } else {
            let namespace = &namespace;
            scope.spawn(move || {
                let stream = namespace.run(|| peer::connect(ours)).expect("a thread inside");
                peer::exchange(stream, bytes)
            })
        };
        let reason = wire.exchange(we_connect, ours, kernel, Duration::from_secs(570));
        assert_eq!(reason, CloseReason::Finished);
        peer.join().expect("the kernel's end saw the right bytes");
    });
    println!("{}", wire.describe());
}

/// Gives the calling thread's namespace a device with a route to us.
fn set_up(kernel: IpAddr, ours: IpAddr) -> Tun {
    let tun = Tun::open(Path::new("/dev/net/tun"), "wire0").expect("a TUN device");
    wire::switch_offload_off(&tun);
    let mut netlink = Netlink::open().expect("netlink");
    netlink.up(Device::LOOPBACK).expect("the loopback device");
    let device = netlink.device("wire0").expect("the device");
    netlink.configure(device, 1500, 10_000).expect("the MTU");
    netlink.add_address(device, kernel).expect("an address");
    netlink.up(device).expect("the device");
    let route = Route { to: ours, from: kernel, mtu_bytes: 1500, congestion_control: Some("cubic") };
    netlink.add_route(device, &route).expect("a route");
    tun
}
