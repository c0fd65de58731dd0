//! Bytes instead of TLS, from a relay that was dialled.

pub fn run(data: &[u8]) {
    heddle_transport::fuzz::tls_initiator(data);
}

pub fn seeds() -> Vec<Vec<u8>> {
    // An alert; the head of a ServerHello of TLS 1.3; that of TLS 1.2; another protocol.
    let alert = vec![21, 3, 3, 0, 2, 2, 40];
    let hello = |len: u8| {
        let mut hello = vec![22, 3, 3, 0, len + 4, 2, 0, 0, len, 3, 3];
        hello.resize(usize::from(len) + 9, 7);
        hello
    };
    vec![alert, hello(118), hello(70), b"HTTP/1.0 400 Bad Request\r\n\r\n".to_vec()]
}
