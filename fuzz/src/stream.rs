//! Stream messages: what is read is written in its usual form, which is read as the same.

use heddle_proto::cell::stream::{Begin, Connected, End, Host, Resolve, Resolved};

pub fn run(data: &[u8]) {
    let data = &data[..data.len().min(498)];
    if let Ok(begin) = Begin::parse(data) {
        let mut body = Vec::new();
        begin.encode(&mut body);
        assert!(body.len() <= 498);
        let again = Begin::parse(&body).expect("what we encode is well formed");
        assert_eq!((again.port, again.flags), (begin.port, begin.flags));
        match (begin.host, again.host) {
            (Host::Name(name), Host::Name(lower)) => {
                assert_eq!(name.as_str().to_ascii_lowercase(), lower.as_str());
            }
            (host, other) => assert_eq!(host, other),
        }
    }
    if let Ok(connected) = Connected::parse(data) {
        let mut body = Vec::new();
        connected.encode(&mut body);
        assert_eq!(Connected::parse(&body), Ok(connected));
    }
    let end = End::parse(data);
    let mut body = Vec::new();
    end.encode(&mut body);
    assert_eq!(End::parse(&body), end);
    if let Ok(resolve) = Resolve::parse(data) {
        let mut body = Vec::new();
        resolve.encode(&mut body);
        assert!(body.len() <= 498);
        let again = Resolve::parse(&body).expect("what we encode is well formed");
        assert_eq!(core::mem::discriminant(&again), core::mem::discriminant(&resolve));
    }
    if let Ok(resolved) = Resolved::parse(data) {
        let mut body = Vec::new();
        resolved.encode(&mut body);
        let again = Resolved::parse(&body).expect("what we encode is well formed");
        assert_eq!(again.answers(), resolved.answers());
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut resolved = vec![4, 4, 127, 0, 0, 1, 0, 0, 14, 16, 6, 16];
    resolved.extend_from_slice(&[0x20; 16]);
    resolved.extend_from_slice(b"\0\0\0\x80\0\x03www\0\0\0\x01");
    let mut connected = vec![0, 0, 0, 0, 6];
    connected.extend_from_slice(&[0x20; 20]);
    vec![
        b"127.0.0.1:7003\0".to_vec(),
        b"Www.Example.com:443\0\0\0\0\x03".to_vec(),
        b"[2001:db8::1]:22\0".to_vec(),
        b"1.0.0.127.in-addr.arpa\0".to_vec(),
        b"0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1.0.0.2.ip6.arpa\0".to_vec(),
        vec![127, 0, 0, 1, 0, 0, 14, 16],
        connected,
        vec![4, 127, 0, 0, 7, 0, 0, 1, 0],
        resolved,
        b"\xF0\x18Error resolving hostname\0\0\0\x3C".to_vec(),
    ]
}
