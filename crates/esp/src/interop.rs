//! Packets of ours and of Scapy's ESP, opened by the other one.

use crate::beet::Inner;
use crate::keys::KEY_MATERIAL_LEN;
use crate::packet::{IPV4, TCP};
use crate::{Inbound, Keys, Lifetime, Outbound, Refused, Spi};
use core::net::Ipv4Addr;
use heddle_seam::time::Instant;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const NOW: Instant = Instant::ZERO;
const SPI: u32 = 0x1234_5678;
/// Debian's, because that is the one for which Debian's package of Scapy is.
const PYTHON: &str = "/usr/bin/python3";
/// Numbers at the beginning and where the half that is not sent begins to count.
const SEQUENCES: [u64; 6] = [1, 2, u32::MAX as u64, (1 << 32) + 1, (7 << 32) + 12_345, u64::MAX];

struct Scapy {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Scapy {
    fn start() -> Self {
        const MISSING: &str = "this test needs Debian's python3-scapy and python3-cryptography, which `scripts/setup` \
                               installs, and Scapy did not start";
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scapy_peer.py");
        let mut command = Command::new(PYTHON);
        command.args(["-W", "ignore", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect(MISSING);
        let to = child.stdin.take().expect("a pipe");
        let from = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut scapy = Scapy { child, to, from };
        let answer = scapy.ask("ready");
        assert!(answer.starts_with("scapy "), "{MISSING}: {answer:?}");
        scapy
    }

    fn ask(&mut self, request: &str) -> String {
        let mut answer = String::new();
        let asked = writeln!(self.to, "{request}").and_then(|()| self.from.read_line(&mut answer));
        asked.map_or_else(|why| why.to_string(), |_| answer.trim_end().to_owned())
    }

    fn speak(&mut self, verb: &str, sequence: u64, mode: &str, bytes: &[u8]) -> String {
        let material = hex::encode(material());
        self.ask(&format!("{verb} {material} {SPI} {sequence} {mode} {}", hex::encode(bytes)))
    }
}

impl Drop for Scapy {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().and_then(|()| self.child.wait().map(drop)).unwrap_or(());
    }
}

fn material() -> [u8; KEY_MATERIAL_LEN] {
    core::array::from_fn(|at| at as u8 * 13 + 1)
}

fn ends() -> (Outbound, Inbound) {
    let (spi, keys) = (Spi::new(SPI).expect("an SPI"), Keys::from_material(&material()));
    (Outbound::new(NOW, spi, &keys, Lifetime::default()), Inbound::new(spi, &keys, Lifetime::default()))
}

/// As both ends of the tunnel see its addresses.
fn inner() -> [Inner; 2] {
    let [local, remote] = [1, 2].map(|host| Ipv4Addr::new(10, 0, 0, host));
    [Inner { local, remote }, Inner { local: remote, remote: local }]
}

/// A packet from the first end to the second: a TCP header with some data. What Scapy makes of a length that is no
/// multiple of four is padding.
fn packet(data_len: usize) -> Vec<u8> {
    let mut segment = vec![0; 20];
    segment[..4].copy_from_slice(&[0x30, 0x39, 0, 80]);
    segment[12] = 5 << 4;
    segment.extend((0..data_len).map(|at| at as u8));
    let header = inner()[1].header(TCP, 0, segment.len()).expect("short enough");
    [&header[..], &segment].concat()
}

#[test]
fn scapy_opens_what_we_seal() {
    let mut scapy = Scapy::start();
    for sequence in SEQUENCES {
        for data_len in [0, 1, 2, 3, 500, 1_380] {
            let packet = packet(data_len);
            let stripped = inner()[0].strip(&packet).expect("a plain packet");
            for (mode, next_header, payload) in
                [("transport", TCP, stripped.payload), ("tunnel", IPV4, &packet)]
            {
                let (mut outbound, _) = ends();
                outbound.skip_to(sequence - 1);
                let mut datagram = Vec::new();
                outbound.seal(NOW, next_header, payload, &mut datagram).expect("a new one");
                let opened = scapy.speak("open", sequence, mode, &datagram);
                assert_eq!(opened, hex::encode(&packet), "{mode} {sequence} {data_len}");
                let other = scapy.speak("open", sequence ^ 1 << 32, mode, &datagram);
                assert_eq!(other, "forged", "the half that is not sent counts");
                *datagram.last_mut().expect("bytes") ^= 1;
                assert_eq!(scapy.speak("open", sequence, mode, &datagram), "forged");
            }
        }
    }
}

#[test]
fn we_open_what_scapy_seals() {
    let mut scapy = Scapy::start();
    for mode in ["transport", "tunnel"] {
        for sequence in SEQUENCES {
            let (_, mut inbound) = ends();
            for (at, data_len) in [0, 1, 2, 3, 500, 1_380].into_iter().enumerate() {
                let packet = packet(data_len);
                // Older ones come behind newer ones, too.
                let offset = if sequence > 1_000 { -10 } else { 10 } * at as i64;
                let sequence = sequence.saturating_add_signed(offset);
                let answer = scapy.speak("seal", sequence, mode, &packet);
                let mut datagram = hex::decode(answer).expect("Scapy sealed it");
                inbound.skip_to_reach(sequence);
                let opened = inbound.open(NOW, &mut datagram.clone()).map(|opened| {
                    let opened = opened.expect("no dummy");
                    (opened.next_header, opened.payload.to_vec())
                });
                let expected = match mode {
                    "tunnel" => (IPV4, packet.clone()),
                    _ => (TCP, inner()[0].strip(&packet).expect("a plain packet").payload.to_vec()),
                };
                assert_eq!(opened, Ok(expected), "{mode} {sequence} {data_len}");
                assert_eq!(inbound.open(NOW, &mut datagram), Err(Refused::Replayed));
            }
        }
    }
}
