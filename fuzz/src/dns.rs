//! What name servers say: two answers, of which the length of the first stands before both.

pub fn run(data: &[u8]) {
    let Some((len, rest)) = data.split_first_chunk() else { return };
    let (first, second) = rest.split_at(usize::from(u16::from_be_bytes(*len)).min(rest.len()));
    heddle_net::fuzz_answers(first, second);
}

/// An answer with this code to a question of this type about `a.test`, with these records.
fn answer(code: u8, kind: u8, records: &[&[u8]]) -> Vec<u8> {
    let head = [0, 0, 0x81, 0x80 | code, 0, 1, 0, records.len() as u8, 0, 0, 0, 0];
    [&head[..], b"\x01a\x04test\0", &[0, kind, 0, 1], &records.concat()].concat()
}

/// A record of the name that was asked for, which lives five minutes.
fn record(kind: u8, data: &[u8]) -> Vec<u8> {
    [&[0xc0, 12, 0, kind, 0, 1, 0, 0, 1, 44, 0, data.len() as u8][..], data].concat()
}

pub fn seeds() -> Vec<Vec<u8>> {
    const A: u8 = 1;
    const CNAME: u8 = 5;
    const PTR: u8 = 12;
    const AAAA: u8 = 28;
    const NXDOMAIN: u8 = 3;
    let v4 = record(A, &[192, 0, 2, 1]);
    let v6 = record(AAAA, &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    let (name, other) = (record(PTR, b"\x04host\x04test\0"), record(CNAME, b"\x01b\xc0\x0e"));
    let answers = [
        (answer(0, A, &[&v4]), answer(0, AAAA, &[&v6])),
        (answer(0, A, &[&v4[..]; 40]), answer(0, AAAA, &[&v6[..]; 20])),
        // Of the wrong family, through another name, and none.
        (answer(0, A, &[&v6, &other, &v4]), answer(NXDOMAIN, AAAA, &[])),
        (answer(0, PTR, &[&name]), answer(2, AAAA, &[])),
    ];
    let both = |(first, second): &(Vec<u8>, Vec<u8>)| {
        [&(first.len() as u16).to_be_bytes()[..], first, second].concat()
    };
    answers.iter().map(both).collect()
}
