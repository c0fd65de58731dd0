//! What only a port with DTLS sessions could answer, of tcp-dtls or sctp-dtls, and what whoever stands on the wire
//! could make of its records.

use crate::bench::{Bench, ID, MS, addr, delay, options};
use crate::strangers::{answers, attacked, overheard};
use core::net::SocketAddr;
use heddle_proto::endpoint::ConnectionEvent;

const TOKEN_LEN: usize = 20;
const ID_LEN: usize = ID.end;

#[test]
fn without_the_token_nothing_is_answered() {
    let (overheard, mut bench) = overheard();
    let hello = &overheard[0].data;
    for bit in 0..TOKEN_LEN * 8 {
        let mut probe = hello.clone();
        probe[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(answers(&mut bench, 1, addr(0), &probe), 0, "bit {bit}");
    }
    // A bare hello, as a scanner sends it.
    assert_eq!(answers(&mut bench, 1, addr(0), &hello[TOKEN_LEN..]), 0);
    assert_eq!(bench.ends[1].endpoint.refused_datagrams().strangers, TOKEN_LEN as u64 * 8 + 1);
}

#[test]
fn what_is_no_hello_uses_up_no_token() {
    let (overheard, mut bench) = overheard();
    let hello = &overheard[0].data;
    let (token, records) = hello.split_at(TOKEN_LEN);
    let cut = &records[..records.len() - 1];
    let mut late = records.to_vec();
    late[13] = 20;
    for behind in [&b""[..], b"nonsense", cut, &late, &[0x2f, 9, 9, 0, 2, 1, 1]] {
        let probe = [token, behind].concat();
        assert_eq!(answers(&mut bench, 1, addr(0), &probe), 0, "{behind:02x?}");
    }
    let here = bench.connection(0, 1, heddle_proto::channel::Role::Initiator);
    bench.ends[0].endpoint.open(bench.now, here);
    bench.run_for(2_000 * MS, &mut ());
    for end in &bench.ends {
        assert_eq!(end.events.first().map(|(_, event)| event), Some(&ConnectionEvent::Ready));
    }
}

#[test]
fn forged_records_change_nothing() {
    attacked(4, |rng, seen, sent| {
        // Records in clear behind the right id: a fatal alert, a close_notify, data, an acknowledgement of everything,
        // a hello.
        let id = &sent.data[..ID_LEN];
        let clear = |kind: u8, contents: &[u8]| {
            let mut record = vec![kind, 254, 253, 0, 0, 0, 0, 0, 0, 0, 9, 0, contents.len() as u8];
            record.extend_from_slice(contents);
            record
        };
        let forged = [
            clear(21, &[2, 40]),
            clear(21, &[1, 0]),
            clear(23, &[9, 0]),
            clear(26, &[0, 0]),
            clear(22, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ];
        let alone = forged.iter().map(|record| [id, record].concat());
        let behind = forged.iter().map(|record| [&sent.data[..], record].concat());
        let mut all: Vec<Vec<u8>> = alone.chain(behind).collect();
        // Records of one direction sent back in the other, and random ones.
        all.extend(seen.last().map(|other| [id, other.data.get(ID_LEN..).unwrap_or_default()].concat()));
        let mut random = vec![0; 100];
        rng.fill(&mut random);
        all.push([id, &[0x2f, 0, 0, 0, 95], &random[..95]].concat());
        all
    });
}

#[test]
fn a_reset_cannot_be_forged_and_another_id_is_anothers() {
    // Two sessions over the same wire: whatever carries the id of one under the other's name reaches neither.
    let mut bench = Bench::pair(delay(10 * MS), &options());
    bench.record = Some(Vec::new());
    bench.open_ready();
    let seen = bench.record.take().expect("it was recorded");
    let last = seen.iter().rfind(|sent| sent.to == addr(1)).expect("the dialler spoke");
    for bit in 0..ID_LEN * 8 {
        let mut other = last.data.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(answers(&mut bench, 1, addr(0), &other), 0);
    }
    assert_eq!(bench.ends[1].endpoint.refused_datagrams().strangers, ID_LEN as u64 * 8);
    // The right id from another port of the peer's address is not the peer.
    let elsewhere = SocketAddr::new(addr(0).ip(), 1);
    assert_eq!(answers(&mut bench, 1, elsewhere, &last.data), 0);
    assert_eq!(bench.ends[1].events, []);
}
