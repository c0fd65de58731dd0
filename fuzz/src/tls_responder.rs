//! Bytes instead of TLS, from whoever connects to a relay.

pub fn run(data: &[u8]) {
    heddle_transport::tls::fuzz::tls_responder(data);
}

pub fn seeds() -> Vec<Vec<u8>> {
    let hello = heddle_transport::tls::fuzz::client_hello();
    // A ClientHello; one behind an alert; one in two records; another protocol.
    let alert = vec![21, 3, 3, 0, 2, 1, 0];
    let cut = hello.len() / 2;
    let record = |body: &[u8]| [&[22, 3, 1][..], &(body.len() as u16).to_be_bytes(), body].concat();
    let pieces = [record(&hello[5..cut]), record(&hello[cut..])].concat();
    vec![hello.clone(), [alert, hello].concat(), pieces, b"GET / HTTP/1.0\r\n\r\n".to_vec()]
}
