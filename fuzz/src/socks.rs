//! SOCKS dialogues: pieces of any length come to the same, nothing beyond a message is wanted, and a request says what
//! its bytes say.

use heddle_client::Destination;
use heddle_client::socks::{Dialogue, Progress, Refusal, SocksCommand, SocksRequest};
use std::net::IpAddr;

/// What was said, what came of it, and how many bytes were taken.
type Outcome = (Vec<u8>, Result<Option<SocksRequest>, Refusal>, usize);

fn feed(data: &[u8], piece: usize) -> Outcome {
    let (mut dialogue, mut said, mut taken) = (Dialogue::default(), Vec::new(), 0);
    while taken < data.len() {
        let wanted = dialogue.wanted();
        assert!((1..=257).contains(&wanted), "{wanted} bytes are wanted");
        let next = &data[taken..][..wanted.min(piece).min(data.len() - taken)];
        taken += next.len();
        match dialogue.push(next) {
            Ok(Progress::More) => {}
            Ok(Progress::Say(reply)) => said.extend(reply),
            Ok(Progress::Asked(request)) => return (said, Ok(Some(request)), taken),
            Err(refusal) => return (said, Err(refusal), taken),
        }
    }
    (said, Ok(None), taken)
}

pub fn run(data: &[u8]) {
    let whole = feed(data, usize::MAX);
    for piece in [1, 3] {
        let (said, outcome, _) = feed(data, piece);
        assert_eq!((&said, &outcome), (&whole.0, &whole.1));
    }
    let (_, Ok(Some(request)), taken) = whole else { return };
    // The request is the end of what was taken, in its only form, but for the byte that is reserved.
    let mut written = encode(&request);
    let Some(tail) = taken.checked_sub(written.len()).map(|start| &data[start..taken]) else { return };
    written[2] = tail[2];
    if matches!(request.to, Destination::Name(_)) || tail[3] != 3 {
        assert_eq!(written, tail);
    }
    if let Some(isolation) = &request.isolation {
        assert!(isolation.username.len() <= 255 && isolation.password.len() <= 255);
    }
}

/// A request as a client sends it.
fn encode(request: &SocksRequest) -> Vec<u8> {
    let command = match request.command {
        SocksCommand::Connect => 1,
        SocksCommand::Resolve => 0xF0,
        SocksCommand::ResolvePtr => 0xF1,
    };
    let mut bytes = vec![5, command, 0];
    match &request.to {
        Destination::Addr(IpAddr::V4(addr)) => bytes.extend([&[1], &addr.octets()[..]].concat()),
        Destination::Addr(IpAddr::V6(addr)) => bytes.extend([&[4], &addr.octets()[..]].concat()),
        Destination::Name(name) => bytes.extend([&[3, name.len() as u8], name.as_bytes()].concat()),
    }
    bytes.extend(request.port.to_be_bytes());
    bytes
}

pub fn seeds() -> Vec<Vec<u8>> {
    vec![
        b"\x05\x01\0\x05\x01\0\x03\x0bexample.com\x01\xbbGET / HTTP/1.0".to_vec(),
        b"\x05\x02\0\x02\x01\x03foo\x02hi\x05\x01\0\x01\x7f\0\0\x01\0\x50".to_vec(),
        b"\x05\x01\0\x05\x01\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\x50".to_vec(),
        b"\x05\x01\x02\x01\0\0\x05\xf0\0\x03\x05[::1]\0\0".to_vec(),
        b"\x05\x01\0\x05\xf1\0\x01\x01\x02\x03\x04\0\0".to_vec(),
        b"\x05\x03\0\x01\x02\x01\x01a\x01b\x05\x02\0\x01\x01\x02\x03\x04\0\x50".to_vec(),
    ]
}
