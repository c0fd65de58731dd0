//! A name server that knows a handful of names (RFC 1035).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::thread;

const TYPE_A: u16 = 1;
const TYPE_PTR: u16 = 12;
const TYPE_AAAA: u16 = 28;
const SERVFAIL: u8 = 2;
const NXDOMAIN: u8 = 3;
/// The port that a resolv.conf cannot change.
const PORT: u16 = 53;

/// It answers on an address of loopback until the program ends.
pub struct NameServer {
    address: Ipv4Addr,
}

impl NameServer {
    /// `None` where an ordinary user must not open the port of name servers.
    pub fn start() -> Option<NameServer> {
        let [.., high, low] = std::process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, 53, high, low);
        let socket = match UdpSocket::bind((address, PORT)) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return None,
            bound => bound.unwrap(),
        };
        thread::spawn(move || {
            let mut packet = [0; 1500];
            loop {
                let (len, from) = socket.recv_from(&mut packet).unwrap();
                socket.send_to(&answer(&packet[..len]), from).unwrap();
            }
        });
        Some(NameServer { address })
    }

    /// What a resolv.conf calls it.
    pub fn address(&self) -> IpAddr {
        self.address.into()
    }
}

/// The record's data, or a response code; no data is an answer too.
fn record(name: &str, rtype: u16) -> Result<Option<Vec<u8>>, u8> {
    let data = match (name, rtype) {
        ("four.example.com", TYPE_A) => Some(Ipv4Addr::LOCALHOST.octets().to_vec()),
        ("six.example.com", TYPE_AAAA) => Some(Ipv6Addr::LOCALHOST.octets().to_vec()),
        ("four.example.com" | "six.example.com", _) => None,
        ("7.2.0.192.in-addr.arpa", TYPE_PTR) => Some(b"\x05seven\x07example\x03com\x00".to_vec()),
        ("broken.example.com", _) => return Err(SERVFAIL),
        _ => return Err(NXDOMAIN),
    };
    Ok(data)
}

/// The answer to a question: the header, the question as it came, and at most one record.
fn answer(query: &[u8]) -> Vec<u8> {
    let mut labels = Vec::new();
    let mut at = 12;
    while query[at] != 0 {
        let len = usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..][..len]).to_lowercase());
        at += 1 + len;
    }
    let rtype = u16::from_be_bytes([query[at + 1], query[at + 2]]);
    let (code, data) = match record(&labels.join("."), rtype) {
        Ok(data) => (0, data),
        Err(code) => (code, None),
    };
    let count = u8::from(data.is_some());
    let mut packet = vec![query[0], query[1], 0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0];
    packet.extend(&query[12..at + 5]);
    if let Some(data) = data {
        // The name is the question's; class IN; a minute to live.
        packet.extend([0xC0, 12, rtype.to_be_bytes()[0], rtype.to_be_bytes()[1], 0, 1, 0, 0, 0, 60]);
        packet.extend((data.len() as u16).to_be_bytes());
        packet.extend(data);
    }
    packet
}
