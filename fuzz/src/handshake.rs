//! A channel's handshake, whose cells come honest, flipped or out of place.

pub fn run(data: &[u8]) {
    heddle_transport::fuzz::link_handshake(data);
}

/// The flags are 1: we respond, 2: the peer is a relay, 4: we are one. Then each step takes the next
/// honest cell (0), flips a bit of it (2) or makes one up (3).
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = (0..8).map(|flags| vec![flags, 0, 0, 0, 0, 0, 0, 0, 0]).collect();
    seeds.push(vec![7, 0, 0, 2, 1, 40, 0, 0, 0]);
    seeds.push(vec![0, 0, 3, 129, 0, 3, 1, 2, 3, 0, 0]);
    seeds
}
