//! What a client may send on a channel that is open, inside TLS. The first byte cuts it into records.

use heddle_proto::cell::frame::{write_fixed, write_variable};
use heddle_proto::cell::{BODY_LEN, Command};

pub fn run(data: &[u8]) {
    heddle_transport::tls::fuzz::tls_open(data);
}

pub fn seeds() -> Vec<Vec<u8>> {
    let circuit = |number: u32| 1 << 31 | number;
    let mut cells = vec![0];
    for (circ_id, command, body) in [
        (circuit(1), Command::CREATE_FAST, &[7; 20][..]),
        (0, Command::PADDING_NEGOTIATE, &[0, 2, 0, 100, 0, 200]),
        (circuit(1), Command::RELAY_EARLY, &[9; BODY_LEN]),
        (0, Command::PADDING, &[]),
        (circuit(2), Command::CREATE2, &[0, 2, 0, 84, 1, 2, 3]),
        (circuit(1), Command::DESTROY, &[9]),
    ] {
        write_fixed(&mut cells, circ_id, command, body);
    }
    let mut long = vec![200];
    write_variable(&mut long, 0, Command::VPADDING, &[3; 1000]);
    write_variable(&mut long, 0, Command(200), &[4; 3000]);
    write_fixed(&mut long, circuit(3), Command::RELAY, &[5; BODY_LEN]);
    let begun = vec![9, 0, 0, 0, 0, 128, 0xff, 0xff, 1];
    vec![cells, long, begun]
}
