//! Circuits over tcp-esp: what of them is seen outside, and what becomes of them when the process that makes their
//! sockets is killed, and when there are none left.

use std::fs;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use heddle_lab::traffic::Content;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketType, recv, socket};
use rustix::process::{Pid, Signal, kill_process};

use crate::quic::{carries_circuits_over, metrics, wait_for_pairs};
use crate::support::not_run::not_run;
use crate::support::{Lab, eventually};
use crate::{CHOICE, lab};

/// The processes that make a relay's sockets.
fn helpers(lab: &Lab, nickname: &str) -> Vec<Pid> {
    let relay = lab.network.relay(nickname).unwrap().pid().to_string();
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let helper_of = |stat: &str| {
        // The number, the name in parentheses, the state, and the parent's number (proc_pid_stat(5)).
        let (head, tail) = stat.rsplit_once(") ")?;
        let parent = tail.split(' ').nth(1)?;
        let is_its = head.ends_with("(heddle stack") && parent == relay;
        head.split(' ').next()?.parse().ok().filter(|_| is_its)
    };
    let stats = processes.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
    stats.filter_map(|stat| Pid::from_raw(helper_of(&stat)?)).collect()
}

fn kill_helper(lab: &Lab, nickname: &str) {
    let found = helpers(lab, nickname);
    assert_eq!(found.len(), 1, "one for its one shard");
    kill_process(found[0], Signal::KILL).unwrap();
    eventually("the helper to be gone", || helpers(lab, nickname).is_empty());
}

/// Bytes of a packet that are looked at.
const LOOK_LEN: usize = 64;
/// UDP's number in IPv4.
const UDP: u8 = 17;
/// Packets of all protocols (packet(7)).
const ETH_P_ALL: u16 = 3;

/// The beginnings of all IPv4 packets that pass any device of this host while `work` is done; `None` without the right
/// to see them.
fn seen_outside(work: impl FnOnce()) -> Option<Vec<[u8; LOOK_LEN]>> {
    let all = NonZeroU32::new(ETH_P_ALL.to_be().into()).map(Protocol::from_raw);
    let capture = socket(AddressFamily::PACKET, SocketType::DGRAM, all).ok()?;
    sockopt::set_socket_timeout(&capture, Timeout::Recv, Some(Duration::from_millis(50))).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let seen = scope.spawn(|| {
            let mut seen = Vec::new();
            loop {
                let mut packet = [0; LOOK_LEN];
                match recv(&capture, &mut packet, RecvFlags::empty()) {
                    Ok(_) if packet[0] >> 4 == 4 => seen.push(packet),
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) if is_over.load(Ordering::Relaxed) => return seen,
                    Err(Errno::AGAIN) => {}
                    Err(error) => panic!("the capture failed: {error}"),
                }
                if is_over.load(Ordering::Relaxed) {
                    return seen;
                }
            }
        });
        work();
        is_over.store(true, Ordering::Relaxed);
        Some(seen.join().unwrap())
    })
}

/// Whether a packet has the addresses of a stack: ours and a peer's, whose halves have one sum.
fn is_inside(packet: &[u8; LOOK_LEN]) -> bool {
    let [from, to] = [12, 16].map(|at| [packet[at], packet[at + 1], packet[at + 2], packet[at + 3]]);
    let is_peers = |[a, b, c, d]: [u8; 4]| {
        (16..127).contains(&a)
            && u32::from(a) * 256 + u32::from(b) + u32::from(c) * 256 + u32::from(d) == 0x7fff
    };
    let ours = [10, 0, 0, 1];
    (from == ours && is_peers(to)) || (to == ours && is_peers(from))
}

/// The number of a relay's UDP port, as its log says.
fn udp_port(lab: &Lab, nickname: &str) -> u16 {
    let log = fs::read_to_string(lab.network.relay(nickname).unwrap().dir().join("log")).unwrap();
    let address = log.split("UDP port ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    address.rsplit(':').next().unwrap().parse().unwrap()
}

/// On the host's devices there is UDP between relays' ports, and nothing with an address of what is inside.
fn shows_nothing_outside(lab: &Lab, work: impl FnOnce()) {
    let port = udp_port(lab, "espmiddle");
    let Some(seen) = seen_outside(work) else {
        return not_run("a capture of what tcp-esp shows, for want of root");
    };
    assert_eq!(seen.iter().filter(|packet| is_inside(packet)).count(), 0);
    let ports = |packet: &[u8; LOOK_LEN]| {
        let at = usize::from(packet[0] & 15) * 4;
        [at, at + 2].map(|at| u16::from_be_bytes([packet[at], packet[at + 1]]))
    };
    let outside = seen.iter().filter(|packet| packet[9] == UDP && ports(packet).contains(&port)).count();
    println!("{outside} of {} packets were the relay's datagrams", seen.len());
    assert!(outside > 100, "{outside} of {}", seen.len());
}

#[test]
fn circuits_go_over_tcp_esp_and_outlive_who_made_their_sockets() {
    carries_circuits_over("espmiddle", "tcp-esp");
    let (lab, _shared) = (lab(), CHOICE.read().unwrap());
    let path = ["heddleguard", "espmiddle", "heddleexit"];
    let circuit = lab.circuit(&path);
    shows_nothing_outside(lab, || lab.both_ways(circuit, Content { seed: 3, len: 1_000_000 }));
    kill_helper(lab, "espmiddle");
    let before = metrics("espmiddle");
    lab.both_ways(circuit, Content { seed: 1, len: 1_000_000 });
    lab.close(circuit);
    // What was made in advance serves new ones.
    let circuit = lab.circuit(&path);
    lab.both_ways(circuit, Content { seed: 2, len: 200_000 });
    lab.close(circuit);
    assert!(metrics("espmiddle").cell_share(&before, "tcp-esp").unwrap() >= 0.99);
}

#[test]
fn circuits_that_find_no_socket_go_over_tls() {
    let (lab, _shared) = (lab(), CHOICE.read().unwrap());
    let path = ["heddleguard", "fewsockets", "heddleexit"];
    wait_for_pairs(lab, "fewsockets", "tcp-esp");
    let carry = |circuits: u64| {
        let before = metrics("fewsockets");
        let open: Vec<_> = (0..circuits).map(|_| lab.circuit(&path)).collect();
        for (seed, circuit) in (0..).zip(&open) {
            lab.both_ways(*circuit, Content { seed, len: 50_000 });
        }
        open.into_iter().for_each(|circuit| lab.close(circuit));
        let after = metrics("fewsockets");
        ["tcp-esp", "tls"].map(|transport| after.cell_share(&before, transport).unwrap())
    };
    let [over_esp, over_tls] = carry(12);
    println!("{over_esp:.3} over tcp-esp, {over_tls:.3} over TLS");
    assert!(over_esp > 0.1 && over_tls > 0.1, "{over_esp} over tcp-esp, {over_tls} over TLS");
    // Of those that were made in advance few are left, and then none.
    kill_helper(lab, "fewsockets");
    let [over_esp, over_tls] = carry(12);
    println!("without the helper {over_esp:.3} over tcp-esp, {over_tls:.3} over TLS");
    assert!(over_tls > 0.3, "{over_esp} over tcp-esp, {over_tls} over TLS");
    lab.check();
}
