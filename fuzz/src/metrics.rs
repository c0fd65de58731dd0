//! Whoever connects to the `MetricsPort`, and whatever he says there.

pub fn run(data: &[u8]) {
    heddle_control::metrics::fuzz::visitors(data);
}

pub fn seeds() -> Vec<Vec<u8>> {
    let say = |head: &[u8]| [&[1, head.len() as u8], head].concat();
    let get = say(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    // Both shards answer and then the driver, who sends 64 bytes at once.
    let answered = [&[0][..], &get, &[7, 15, 39, 31]].concat();
    // One asks in two pieces and is answered when the shards have had their time; and one comes that may not.
    let late = [&[0][..], &say(b"GET /metrics "), &say(b"HTTP/1.0\n\n"), &[86, 31, 8]].concat();
    let refused = [&[0][..], &say(b"PUT / HTTP/1.1\r\n\r\n"), &[0, 4, 0, 5, 254, 254]].concat();
    vec![answered, late, refused]
}
