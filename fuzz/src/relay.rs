//! Relay cells and flow control.

use heddle_proto::cell::BODY_LEN;
use heddle_proto::cell::flow_control::{Sendme, Xoff, Xon};
use heddle_proto::cell::relay;
use heddle_seam::rng::Seed;

pub fn run(data: &[u8]) {
    let mut body = [0; BODY_LEN];
    let len = data.len().min(BODY_LEN);
    body[..len].copy_from_slice(&data[..len]);
    if let Ok((header, content)) = relay::parse(&body) {
        assert_eq!(content.len(), usize::from(header.length));
        let _ = header.command.to_string();
        let mut again = [0xFF; BODY_LEN];
        let mut rng = Seed::from_number(0).rng();
        relay::write(&mut again, header.command, header.stream_id, content, &mut rng);
        assert_eq!(relay::parse(&again), Ok((header, content)));
    }
    if let Ok(sendme) = Sendme::parse(data) {
        let mut body = Vec::new();
        sendme.encode(&mut body);
        assert_eq!(Sendme::parse(&body), Ok(sendme));
    }
    if let Ok(xon) = Xon::parse(data) {
        let mut body = Vec::new();
        xon.encode(&mut body);
        assert_eq!(body, data[..5]);
    }
    let _ = Xoff::parse(data);
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut sendme = vec![1, 0, 20];
    sendme.extend_from_slice(&[6; 20]);
    let mut full = vec![2, 0, 0, 0, 1, 1, 2, 3, 4, 1, 0xF2];
    full.resize(BODY_LEN, 0x55);
    vec![sendme, full, vec![2, 0, 0, 1, 2, 0, 0, 0, 0, 0, 5, 1, 2, 3, 4, 5], vec![0, 0, 0, 1, 2]]
}
