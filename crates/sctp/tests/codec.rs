//! Chunks come back as they were written, and any bytes are read without harm.

use heddle_sctp::wire::data::{Data, Fragment};
use heddle_sctp::wire::init::Init;
use heddle_sctp::wire::reconfig::Reconfig;
use heddle_sctp::wire::{Chunk, PacketHead, Writer, data, init, reconfig, sack, split_chunk, split_head};
use proptest::prelude::*;

const HEAD: PacketHead = PacketHead { source: 1, destination: 2, tag: 3 };

/// What a writer makes, with its checksum.
fn packet(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::begin(&mut out, HEAD);
    write(&mut writer);
    writer.finish();
    out
}

fn only_chunk(packet: &[u8]) -> Chunk<'_> {
    let (head, chunks) = split_head(packet, false).expect("its checksum is right");
    assert_eq!(head, HEAD);
    let (chunk, rest) = split_chunk(chunks).expect("it is whole").expect("there is one");
    assert!(rest.is_empty());
    chunk
}

/// RFC 9260, section 3.3.1, and RFC 8260, section 2.1, byte by byte.
#[test]
fn fragments_are_laid_out_as_the_rfcs_say() {
    let fragment = Fragment {
        stream: 0x0102,
        message: 0x0304,
        ppid: 0x0506_0708,
        is_begin: true,
        ..Fragment::default()
    };
    let plain =
        packet(|writer| data::write(writer, false, &Data { tsn: 0x1112_1314, fragment, payload: b"xyz" }));
    let expected = [0, 2, 0, 19, 0x11, 0x12, 0x13, 0x14, 1, 2, 3, 4, 5, 6, 7, 8, b'x', b'y', b'z', 0];
    assert_eq!(plain[12..], expected);
    let fragment = Fragment { message: 0x2122_2324, is_unordered: true, is_end: true, ..fragment };
    let interleaved =
        packet(|writer| data::write(writer, true, &Data { tsn: 0x1112_1314, fragment, payload: b"xyz" }));
    let expected = [
        64, 7, 0, 23, 0x11, 0x12, 0x13, 0x14, 1, 2, 0, 0, 0x21, 0x22, 0x23, 0x24, 5, 6, 7, 8, b'x', b'y',
        b'z', 0,
    ];
    assert_eq!(interleaved[12..], expected);
}

/// A SACK with a gap and a duplicate (RFC 9260, section 3.3.4).
#[test]
fn a_sack_is_laid_out_as_the_rfc_says() {
    let packet = packet(|writer| {
        writer.chunk(3, 0, |out| sack::write(0x0102_0304, 0x0506_0708, &[(2, 3)], &[9], out))
    });
    let expected = [3, 0, 0, 24, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 0, 1, 0, 2, 0, 3, 0, 0, 0, 9];
    assert_eq!(packet[12..], expected);
    let sack = sack::parse(&only_chunk(&packet)).expect("it is whole");
    assert_eq!((sack.cumulative, sack.window_bytes, sack.duplicates), (0x0102_0304, 0x0506_0708, 1));
    assert_eq!(sack.gaps().collect::<Vec<_>>(), [(2, 3)]);
}

#[test]
fn requests_for_resets_come_back() {
    let packet = packet(|writer| {
        writer.chunk(130, 0, |out| {
            reconfig::write_request(1, 2, 3, &[4, 5, 6], out);
            reconfig::write_answer(7, 1, out);
        });
    });
    let chunk = only_chunk(&packet);
    let read: Vec<_> = reconfig::parse(&chunk).collect();
    let streams = &[0, 4, 0, 5, 0, 6];
    assert_eq!(
        read,
        [Reconfig::Outgoing { number: 1, last_tsn: 3, streams }, Reconfig::Answer { number: 7, result: 1 }]
    );
}

proptest! {
    #[test]
    fn fragments_come_back(
        tsn: u32, stream: u16, message: u32, number: u32, ppid: u32, flags in 0u8..16, is_interleaved: bool,
        payload in prop::collection::vec(any::<u8>(), 1..50),
    ) {
        let fragment = Fragment {
            stream,
            message: if is_interleaved { message } else { message & 0xffff },
            number: if is_interleaved && flags & 1 == 0 { number } else { 0 },
            ppid: if is_interleaved && flags & 1 == 0 { 0 } else { ppid },
            is_begin: flags & 1 != 0,
            is_end: flags & 2 != 0,
            is_unordered: flags & 4 != 0,
            is_immediate: flags & 8 != 0,
        };
        let written = Data { tsn, fragment, payload: &payload };
        let packet = packet(|writer| data::write(writer, is_interleaved, &written));
        prop_assert_eq!(data::parse(&only_chunk(&packet)), Ok(written));
    }

    #[test]
    fn inits_come_back(
        tag in 1u32.., window_bytes: u32, outbound in 1u16.., inbound in 1u16.., tsn: u32, has in 0u8..8,
        cookie in prop::option::of(prop::collection::vec(any::<u8>(), 0..50)),
    ) {
        let written = Init {
            tag, window_bytes, outbound, inbound, tsn,
            interleaves: has & 1 != 0,
            resets: has & 2 != 0,
            takes_zero_checksum: has & 4 != 0,
            cookie: cookie.as_deref(),
        };
        let packet = packet(|writer| writer.chunk(1, 0, |out| init::write(&written, out)));
        prop_assert_eq!(init::parse(&only_chunk(&packet)), Ok(written));
    }

    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut rest = &bytes[..];
        while let Ok(Some((chunk, after))) = split_chunk(rest) {
            prop_assert!(after.len() < rest.len());
            rest = after;
            let _ = data::parse(&chunk);
            let _ = init::parse(&chunk);
            let _ = sack::parse(&chunk).map(|sack| sack.gaps().count());
            let _ = reconfig::parse(&chunk).count();
        }
        prop_assert!(split_head(&bytes, false).is_err());
    }
}
