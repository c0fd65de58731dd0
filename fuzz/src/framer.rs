//! The framer: however a stream is cut into chunks, it yields the same cells, no more than it was
//! given, and the same error.

use heddle_proto::cell::frame::{FrameError, Framer, write_fixed, write_variable, write_versions};
use heddle_proto::cell::{BODY_LEN, CELL_LEN, Command};

/// The first byte seeds the cuts, the second sets the limit, the rest is the stream.
pub fn run(data: &[u8]) {
    let [cuts, limit, stream @ ..] = data else { return };
    let body_len_max = usize::from(*limit) * 8;
    let whole = cells(stream, stream.len(), 0, body_len_max);
    assert_eq!(cells(stream, 1, 0, body_len_max), whole);
    assert_eq!(cells(stream, 97, usize::from(*cuts), body_len_max), whole);
}

/// The bytes of all cells, with chunks of `len` and then ever `growth` longer, and how it ended.
fn cells(
    stream: &[u8],
    len: usize,
    growth: usize,
    body_len_max: usize,
) -> (Vec<Vec<u8>>, Option<FrameError>) {
    let mut framer = Framer::new();
    framer.set_body_len_max(body_len_max);
    let mut cells = Vec::new();
    let (mut left, mut len) = (stream, len.max(1));
    while !left.is_empty() {
        let (mut chunk, later) = left.split_at(left.len().min(len));
        left = later;
        len += growth;
        loop {
            match framer.next(chunk) {
                Ok((used, Some(frame))) => {
                    assert_eq!(
                        frame.fixed_body().is_some(),
                        frame.bytes.len() == CELL_LEN && !frame.command.is_variable()
                    );
                    assert!(frame.body.len() <= body_len_max.max(BODY_LEN));
                    cells.push(frame.bytes.to_vec());
                    chunk = &chunk[used..];
                }
                Ok((used, None)) => {
                    assert_eq!(used, chunk.len());
                    break;
                }
                Err(error) => return (cells, Some(error)),
            }
        }
    }
    (cells, None)
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut stream = vec![3, 64];
    write_versions(&mut stream, &[4, 5]);
    let short = stream.clone();
    write_variable(&mut stream, 0, Command::CERTS, &[0; 300]);
    write_fixed(&mut stream, 0, Command::NETINFO, &[1; 20]);
    write_fixed(&mut stream, 0x8000_0001, Command::RELAY, &[2; BODY_LEN]);
    write_variable(&mut stream, 0, Command::VPADDING, &[]);
    vec![short, stream]
}
