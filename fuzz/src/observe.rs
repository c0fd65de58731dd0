//! Bytes at the observers' socket: lines, and modules behind those that say so.

pub fn run(data: &[u8]) {
    heddle::relay::fuzz_requests(data);
}

pub fn seeds() -> Vec<Vec<u8>> {
    vec![
        b"list\nload mine 3\nab\nlist\r\ncollect on all\nlist".to_vec(),
        b"watch lanes every 5 with mine\nload a 0\nload b 30\ncut short".to_vec(),
        [&[b' '; 255][..], b"list\nlist", &[b' '; 300], b"\n"].concat(),
    ]
}
