//! Cells and messages against literal bytes: from the specifications, or numbers that stock tor put
//! on the wire, and what must be refused.

use core::net::IpAddr;
use core::num::{NonZeroU16, NonZeroU32};

use heddle_proto::cell::create::{Create2, CreateFast, Created2, CreatedFast, DestroyReason};
use heddle_proto::cell::extend::{EXTENDED2_HDATA_LEN_MAX, Extend2, Extended2, LinkSpec};
use heddle_proto::cell::flow_control::{Sendme, Xoff, Xon};
use heddle_proto::cell::frame::{FrameError, Framer, write_fixed, write_variable, write_versions};
use heddle_proto::cell::link::{
    AuthChallenge, AuthFields, Authenticate, CertType, Certs, Netinfo, PaddingNegotiate, Versions,
};
use heddle_proto::cell::relay::{self, DATA_LEN, RelayCommand, RelayError, StreamId};
use heddle_proto::cell::stream::{
    Answer, Begin, BeginFlags, Connected, End, EndReason, Host, HostName, Resolve, Resolved,
};
use heddle_proto::cell::{BODY_LEN, CELL_LEN, CircId, Command, Malformed};
use heddle_seam::rng::Seed;

/// The bytes of hexadecimal text with spaces.
fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    hex::decode(digits).expect("hexadecimal")
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// All cells of `chunks`: circuit, command, body.
fn frames(chunks: &[&[u8]]) -> Result<Vec<(u32, Command, Vec<u8>)>, FrameError> {
    let mut framer = Framer::new();
    let mut cells = Vec::new();
    for chunk in chunks {
        let mut rest = *chunk;
        loop {
            let (used, frame) = framer.next(rest)?;
            rest = &rest[used..];
            let Some(frame) = frame else { break };
            cells.push((frame.circ_id.map_or(0, CircId::get), frame.command, frame.body.to_vec()));
        }
        assert!(rest.is_empty(), "without a frame, all of the chunk is used");
    }
    Ok(cells)
}

#[test]
fn the_first_cell_has_a_short_circuit_id_and_the_others_a_long_one() {
    let mut bytes = encoded(|out| write_versions(out, &[4, 5, 6]));
    assert_eq!(bytes, hex("0000 07 0006 0004 0005 0006"));
    let quote = b"we listen round the clock";
    write_variable(&mut bytes, 0x1234_5678, Command(255), quote);
    assert_eq!(bytes[11..], hex("12345678 ff 0019 7765206c697374656e20726f756e642074686520636c6f636b"));
    write_fixed(&mut bytes, 0x2020_1122, Command::RELAY, b"for a code");
    assert_eq!(bytes.len(), 11 + 32 + CELL_LEN);

    let cells = frames(&[&bytes]).expect("well formed");
    let mut padded = b"for a code".to_vec();
    padded.resize(BODY_LEN, 0);
    let expected = vec![
        (0, Command::VERSIONS, vec![0, 4, 0, 5, 0, 6]),
        (0x1234_5678, Command(255), quote.to_vec()),
        (0x2020_1122, Command::RELAY, padded),
    ];
    assert_eq!(cells, expected);
    let single_bytes: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(frames(&single_bytes).expect("well formed"), expected);
}

#[test]
fn a_cell_inside_a_chunk_is_lent_from_it() {
    let mut bytes = encoded(|out| write_versions(out, &[5]));
    write_fixed(&mut bytes, 1, Command::RELAY, &[7; BODY_LEN]);
    write_fixed(&mut bytes, 2, Command::RELAY, &[8; BODY_LEN]);
    let mut framer = Framer::new();
    let (first, _) = framer.next(&bytes).expect("VERSIONS");
    let (used, frame) = framer.next(&bytes[first..]).expect("RELAY");
    let frame = frame.expect("a whole cell");
    assert_eq!(used, CELL_LEN);
    assert_eq!(frame.body.as_ptr(), bytes[first + 5..].as_ptr());
    assert_eq!(frame.fixed_body(), Some(&[7; BODY_LEN]));
    // The next one straddles: its beginning is used up at once, and the rest completes it.
    let second = first + CELL_LEN;
    let (used, frame) = framer.next(&bytes[second..second + 100]).expect("a part");
    assert_eq!((used, frame.is_none()), (100, true));
    let (used, frame) = framer.next(&bytes[second + 100..]).expect("RELAY");
    assert_eq!(used, CELL_LEN - 100);
    assert_eq!(frame.expect("a whole cell").bytes, &bytes[second..]);
}

#[test]
fn the_first_cell_must_be_versions_for_no_circuit() {
    assert_eq!(frames(&[&hex("0000 81 0000")]), Err(FrameError::NotVersions(Command::CERTS)));
    assert_eq!(frames(&[&hex("0001 07 0000")]), Err(FrameError::VersionsCircId(1)));
    assert_eq!(frames(&[b"GET / HTTP/1.0\r\n"]), Err(FrameError::NotVersions(Command(b'T'))));
}

#[test]
fn a_body_over_the_limit_is_refused_before_it_arrives() {
    let mut framer = Framer::new();
    framer.next(&hex("0000 07 0002 0004")).expect("VERSIONS");
    framer.set_body_len_max(9);
    let too_long = FrameError::TooLong { command: Command::CERTS, len: 10, len_max: 9 };
    assert_eq!(framer.next(&hex("00000000 81 000a")).err(), Some(too_long));
    framer.next(&hex("00000000 81 00")).expect("not yet known");
    assert_eq!(framer.next(&[10]).err(), Some(too_long), "found as soon as the length is there");
    assert_eq!(framer.next(&[0]).err(), Some(too_long), "and every time after that");
}

/// A cell that is too long to be of use is dropped as it comes, however it is cut, and the next one is found.
#[test]
fn a_cell_of_no_use_is_dropped_and_never_kept() {
    let mut bytes = encoded(|out| write_variable(out, 0, Command::VPADDING, &[1; 9]));
    write_variable(&mut bytes, 0, Command::VPADDING, &[2; 300]);
    write_variable(&mut bytes, 0, Command(255), &[3; 10]);
    write_fixed(&mut bytes, 7, Command::RELAY, &[4; BODY_LEN]);
    for cut in 1..bytes.len() {
        let mut framer = Framer::new();
        framer.next(&hex("0000 07 0002 0004")).expect("VERSIONS");
        framer.set_used_len_max(9);
        let mut commands = Vec::new();
        for mut rest in [&bytes[..cut], &bytes[cut..]] {
            while let (used, Some(frame)) = framer.next(rest).expect("well formed") {
                commands.push(frame.command);
                rest = &rest[used..];
            }
        }
        assert_eq!(commands, [Command::VPADDING, Command::RELAY], "cut at {cut}");
    }
    let mut framer = Framer::new();
    framer.next(&hex("0000 07 0002 0004")).expect("VERSIONS");
    framer.set_used_len_max(9);
    let too_long = FrameError::TooLong { command: Command::CERTS, len: 10, len_max: 9 };
    assert_eq!(framer.next(&hex("00000000 81 000a")).err(), Some(too_long), "it would have a meaning");
}

#[test]
fn versions() {
    let versions = Versions::parse(&hex("0003 0004 0005")).expect("VERSIONS");
    assert_eq!(versions.list, [3, 4, 5]);
    assert_eq!(versions.best_common(&[4, 5]), Some(5));
    assert_eq!(versions.best_common(&[1, 2, 6]), None);
    assert_eq!(encoded(|out| versions.encode(out)), hex("0003 0004 0005"));
    assert!(Versions::parse(&hex("0003 00")).is_err());
    assert_eq!(Versions::parse(&[]).map(|versions| versions.best_common(&[4])), Ok(None));
}

#[test]
fn certs() {
    let bytes = hex("03 04 0003 AABBCC 63 0000 07 0001 DD");
    let certs = Certs::parse(&bytes).expect("CERTS");
    assert_eq!(certs.get(CertType::IDENTITY_V_SIGNING), Some(&[0xAA, 0xBB, 0xCC][..]));
    assert_eq!(certs.get(CertType::RSA_ID_V_IDENTITY), Some(&[0xDD][..]));
    assert_eq!(certs.get(CertType::RSA_ID_X509), None);
    assert_eq!(encoded(|out| certs.encode(out)), bytes);
    // Padding behind the list is ignored; a list that is cut, or has two of a type, is not.
    assert_eq!(Certs::parse(&[&bytes[..], &[0; 9]].concat()), Ok(certs.clone()));
    for len in 0..bytes.len() {
        assert_eq!(Certs::parse(&bytes[..len]), Err(Malformed::Truncated));
    }
    assert!(Certs::parse(&hex("02 04 0000 04 0000")).is_err());
    assert!(Certs::parse(&hex("02 63 0000 63 0000")).is_ok());
}

#[test]
fn auth_challenge_and_authenticate() {
    let bytes = [&[9; 32][..], &hex("0002 0001 0003")].concat();
    let challenge = AuthChallenge { challenge: [9; 32], methods: vec![1, 3] };
    assert_eq!(AuthChallenge::parse(&bytes), Ok(challenge.clone()));
    assert_eq!(encoded(|out| challenge.encode(out)), bytes);
    assert_eq!(AuthChallenge::parse(&bytes[..37]), Err(Malformed::Truncated));

    let fields = AuthFields {
        initiator_rsa: [1; 32],
        responder_rsa: [2; 32],
        initiator_ed25519: [3; 32],
        responder_ed25519: [4; 32],
        responder_log: [5; 32],
        initiator_log: [6; 32],
        responder_tls_cert: [7; 32],
        tls_secrets: [8; 32],
    };
    let signed = fields.signed_part(&[0xEE; 24]);
    assert_eq!(signed[..8], *b"AUTH0003");
    assert!((0..8).all(|i| signed[8 + 32 * i..][..32] == [i as u8 + 1; 32]));
    assert_eq!(signed[264..], [0xEE; 24]);

    let whole = [&signed[..], &[0xAB; 64]].concat();
    let message = Authenticate { auth_type: 3, authentication: &whole };
    let bytes = encoded(|out| message.encode(out));
    assert_eq!(bytes[..4], hex("0003 0160"));
    let parsed = Authenticate::parse(&bytes).expect("AUTHENTICATE");
    let proof = parsed.ed25519().expect("type 3");
    assert!(proof.matches(&fields));
    assert_eq!((proof.signed, proof.signature), (&signed[..], &[0xAB; 64]));
    assert!(!proof.matches(&AuthFields { tls_secrets: [0; 32], ..fields.clone() }));
    assert!(Authenticate { auth_type: 1, ..message }.ed25519().is_err());
    let short = Authenticate { auth_type: 3, authentication: &whole[1..] };
    assert_eq!(short.ed25519(), Err(Malformed::Truncated));
    // "The server MUST ignore any extra bytes in the signed data after the RAND field."
    let extra = [&signed[..], b"more", &[0xAB; 64]].concat();
    let longer = Authenticate { auth_type: 3, authentication: &extra };
    assert_eq!(longer.ed25519().map(|proof| proof.signed.len()), Ok(292));
}

#[test]
fn netinfo() {
    let bytes = hex("5F6F859C 06 10 00000000000000000000000000000001
        02 04 04 7F000001 06 10 00000000000000000000000000000001");
    let netinfo = Netinfo {
        timestamp_s: 0x5F6F_859C,
        other_addr: Some(ip("::1")),
        my_addrs: vec![ip("127.0.0.1"), ip("::1")],
    };
    assert_eq!(Netinfo::parse(&bytes), Ok(netinfo.clone()));
    assert_eq!(encoded(|out| netinfo.encode(out)), bytes);
    assert_eq!(Netinfo::parse(&bytes[..bytes.len() - 1]), Err(Malformed::Truncated));

    let client = Netinfo { timestamp_s: 0, other_addr: None, my_addrs: vec![] };
    assert_eq!(encoded(|out| client.encode(out)), hex("00000000 04 04 00000000 00"));
    assert_eq!(Netinfo::parse(&hex("00000000 04 04 00000000 00")), Ok(client));

    // Addresses of a wrong length or an unknown type are passed over.
    let odd = hex("5F6F859C 06 09 000000000000000000
        03 04 06 7F0000010000 BB 02 FFFF 06 10 00000000000000000000000000000001");
    let expected = Netinfo { timestamp_s: 0x5F6F_859C, other_addr: None, my_addrs: vec![ip("::1")] };
    assert_eq!(Netinfo::parse(&odd), Ok(expected));

    let many = Netinfo { timestamp_s: 1, other_addr: Some(ip("::1")), my_addrs: vec![ip("::2"); 300] };
    assert!(encoded(|out| many.encode(out)).len() <= BODY_LEN);
}

#[test]
fn padding_negotiate() {
    let start = PaddingNegotiate::Start { low_ms: 256, high_ms: 512 };
    assert_eq!(encoded(|out| start.encode(out)), hex("00 02 0100 0200"));
    assert_eq!(PaddingNegotiate::parse(&hex("00 02 0100 0200")), Ok(start));
    assert_eq!(encoded(|out| PaddingNegotiate::Stop.encode(out)), hex("00 01 0000 0000"));
    assert_eq!(PaddingNegotiate::parse(&hex("00 01 0000 0000")), Ok(PaddingNegotiate::Stop));
    assert!(PaddingNegotiate::parse(&hex("90 0303")).is_err());
    assert!(PaddingNegotiate::parse(&hex("00 03 0000 0000")).is_err());
}

#[test]
fn handshakes_of_stock_tor() {
    let hdata = hex("09164430E84D3BC56EC7E1D22734742345E2DECE0DE535B66B8E8A0EBBDAE3263C53E02EC2215685
        CD3A977DC7946FF47F84CD7025F75D252D1B35DEA28F32FA912513889A207E5049992DBC9BC541194C13624A");
    let bytes = [hex("0002 0054"), hdata.clone(), vec![0; 421]].concat();
    let create = Create2 { htype: 2, hdata: &hdata };
    assert_eq!(Create2::parse(&bytes), Ok(create));
    assert_eq!(encoded(|out| create.encode(out)), bytes[..88]);
    assert_eq!(Create2::parse(&hex("0002 0002 00")), Err(Malformed::Truncated));

    let hdata = hex("0108907A701030ADB6CA9C6AF097DC4855614655659B6A7BF21C1097DCE7C66EE0E4EF287DE7CED4
        0BEECA8B90140C05DB6138AEB551CE0C037068C315E307A0");
    let bytes = [hex("0040"), hdata.clone()].concat();
    assert_eq!(Created2::parse(&bytes), Ok(Created2 { hdata: &hdata }));
    assert_eq!(encoded(|out| Created2 { hdata: &hdata }.encode(out)), bytes);

    let bytes = hex("0DC2A5EB921EF4B71F41184A99F4FAD99620A648");
    let fast = CreateFast::parse(&bytes).expect("CREATE_FAST");
    assert_eq!(fast.key_material[..], bytes);
    assert_eq!(encoded(|out| fast.encode(out)), bytes);
    assert!(CreateFast::parse(&bytes[1..]).is_err());

    let bytes = hex("03B74250B01D09FDA72B70D63AE7994926F13055BED23485F6B3C8C3CEAFE1DF48A9FF8BAC4993FC");
    let fast = CreatedFast::parse(&bytes).expect("CREATED_FAST");
    assert_eq!((&fast.key_material[..], &fast.derivative_key[..]), bytes.split_at(20));
    assert_eq!(encoded(|out| fast.encode(out)), bytes);
}

#[test]
fn destroy_reasons() {
    assert_eq!(DestroyReason::parse(&[4, 0, 0]), DestroyReason::HIBERNATING);
    assert_eq!(DestroyReason::parse(&[]), DestroyReason::NONE);
    assert_eq!(DestroyReason::OR_IDENTITY.to_string(), "OR_IDENTITY");
    assert_eq!(DestroyReason::parse(&[200]).to_string(), "reason 200");
    assert!((0..=12).all(|raw| !DestroyReason(raw).to_string().starts_with("reason")));
}

#[test]
fn relay_cells_have_their_layout_and_padding() {
    let mut rng = Seed::from_number(3).child("padding", 0).rng();
    let mut body = [0xFF; BODY_LEN];
    relay::write(&mut body, RelayCommand::DATA, StreamId::new(0x0102), b"hello", &mut rng);
    assert_eq!(body[..16], hex("02 0000 0102 00000000 0005 68656c6c6f")[..]);
    assert_eq!(body[16..20], [0; 4]);
    assert!(body[20..].iter().any(|byte| *byte != 0xFF));
    assert!(body[20..].iter().filter(|byte| **byte == 0).count() < 20, "random padding");

    let (header, data) = relay::parse(&body).expect("a relay cell");
    assert_eq!((header.command, header.length, data), (RelayCommand::DATA, 5, &b"hello"[..]));
    assert_eq!(header.stream_id.map(StreamId::get), Some(0x0102));

    for len in [DATA_LEN - 5, DATA_LEN - 3, DATA_LEN] {
        relay::write(&mut body, RelayCommand::DROP, None, &vec![1; len], &mut rng);
        let zeros_len = (DATA_LEN - len).min(4);
        assert!(body[11 + len..][..zeros_len].iter().all(|byte| *byte == 0));
        assert_eq!(relay::parse(&body).map(|(header, data)| (header.stream_id, data.len())), Ok((None, len)));
    }
    body[9..11].copy_from_slice(&499_u16.to_be_bytes());
    assert_eq!(relay::parse(&body), Err(RelayError::TooLong(499)));
    body[9..11].copy_from_slice(&[0xFF; 2]);
    assert_eq!(relay::parse(&body), Err(RelayError::TooLong(65535)));
}

#[test]
fn extend2_of_stock_tor() {
    let bytes = hex("02 00 06 7F0000011388 02 14 03479E93EBF3FF2C58C1C9DBF2DE9DE9C2801B3E 0002 0003 AABBCC");
    let extend = Extend2::parse(&bytes).expect("EXTEND2");
    assert_eq!((extend.htype, extend.hdata), (2, &[0xAA, 0xBB, 0xCC][..]));
    let target = extend.target().expect("a target");
    assert_eq!(target.ipv4, Some("127.0.0.1:5000".parse().expect("an address")));
    assert_eq!((target.ipv6, target.ed25519_id), (None, None));
    assert_eq!(target.rsa_id[..2], [0x03, 0x47]);
    assert_eq!(encoded(|out| extend.encode(out)), bytes);
    let again = Extend2 { specs: target.specs(), ..extend };
    assert_eq!(encoded(|out| again.encode(out)), bytes);
    for len in 0..bytes.len() {
        assert!(Extend2::parse(&bytes[..len]).is_err());
    }
}

#[test]
fn extend2_targets_follow_the_rules() {
    let v4 = LinkSpec::Ipv4("127.0.0.1:5000".parse().expect("an address"));
    let other_v4 = LinkSpec::Ipv4("127.0.0.2:5000".parse().expect("an address"));
    let v6 = LinkSpec::Ipv6("[::1]:5000".parse().expect("an address"));
    let no_port = LinkSpec::Ipv4("127.0.0.1:0".parse().expect("an address"));
    let rsa = LinkSpec::RsaId([1; 20]);
    let ed = LinkSpec::Ed25519Id([2; 32]);
    let odd = LinkSpec::Unknown { kind: 99, value: b"who knows" };
    let target = |specs: &[LinkSpec<'static>]| {
        let extend = Extend2 { specs: specs.to_vec(), htype: 2, hdata: &[] };
        let bytes = encoded(|out| extend.encode(out));
        assert_eq!(Extend2::parse(&bytes), Ok(extend.clone()));
        extend.target()
    };
    let full = target(&[v4, odd, rsa, ed, v6, other_v4, odd]).expect("first addresses count");
    assert_eq!(full.specs(), [v4, rsa, ed, v6]);
    assert!(target(&[v6, rsa]).is_ok());
    assert!(target(&[v4]).is_err(), "no RSA identity");
    assert!(target(&[v4, LinkSpec::RsaId([0; 20])]).is_err(), "a zero RSA identity");
    assert!(target(&[rsa, ed]).is_err(), "no address");
    assert!(target(&[no_port, rsa]).is_err(), "no port");
    assert!(target(&[v4, rsa, rsa]).is_err(), "two RSA identities");
    assert!(target(&[v4, rsa, ed, ed]).is_err(), "two Ed25519 identities");
    let zero_ed = target(&[v4, rsa, LinkSpec::Ed25519Id([0; 32])]).expect("as if absent");
    assert_eq!(zero_ed.ed25519_id, None);
    for wrong in
        ["01 00 05 0102030405 0002 0000", "01 02 15 000000000000000000000000000000000000000000 0002 0000"]
    {
        assert!(Extend2::parse(&hex(wrong)).is_err(), "a specifier of a wrong length");
    }
}

#[test]
fn extended2_has_room_for_less_than_created2() {
    let hdata = [7; EXTENDED2_HDATA_LEN_MAX + 1];
    let created = Created2 { hdata: &hdata[1..] };
    let extended = Extended2::from_created(&created).expect("fits");
    let bytes = encoded(|out| extended.encode(out));
    assert_eq!(bytes.len(), DATA_LEN);
    assert_eq!(Extended2::parse(&bytes), Ok(extended));
    assert!(Extended2::from_created(&Created2 { hdata: &hdata }).is_err());
}

#[test]
fn begin() {
    let begin = |host, port, flags| Begin {
        host,
        port: NonZeroU16::new(port).expect("a port"),
        flags: BeginFlags(flags),
    };
    let name = |name| Host::Name(HostName::new(name).expect("a name"));
    let cases = [
        ("3132372E302E302E313A3730303300", begin(Host::Ipv4([127, 0, 0, 1].into()), 7003, 0)),
        ("7777772e786b63642e636f6d3a34343300 00000003", begin(name("www.xkcd.com"), 443, 3)),
        (
            "5b323030313a6462383a3a315d3a323200",
            begin(Host::Ipv6("2001:db8::1".parse().expect("an address")), 22, 0),
        ),
    ];
    for (bytes, expected) in cases {
        assert_eq!(Begin::parse(&hex(bytes)), Ok(expected));
        assert_eq!(encoded(|out| expected.encode(out)), hex(bytes));
    }
    assert_eq!(Begin::parse(b"WwW.XkCd.CoM:443\0").map(|begin| begin.host), Ok(name("WwW.XkCd.CoM")));
    assert_eq!(encoded(|out| begin(name("A.B"), 80, 0).encode(out)), b"a.b:80\0");
    assert_eq!(Begin::parse(b"a:80\0\0\0").map(|begin| begin.flags.0), Ok(0), "cut flags are none");
    let flags = BeginFlags(0b101);
    assert!(flags.ipv6_ok() && flags.ipv4_ok() && flags.ipv6_preferred() && !BeginFlags(2).ipv4_ok());
    let long = [&[b'a'; 256][..], b":80\0"].concat();
    let bad: [&[u8]; 16] = [
        b"",
        b"\0",
        b"a:80",
        b"a\0",
        b"a:\0",
        b"a:0\0",
        b"a:65536\0",
        b"a:+80\0",
        b"a: 80\0",
        b":80\0",
        b"[::]!",
        b"[foo]:80\0",
        b"::1:80\0",
        b"a b:80\0",
        "torproject\u{2122}.org:443\0".as_bytes(),
        &long,
    ];
    for data in bad {
        assert!(Begin::parse(data).is_err(), "{}", String::from_utf8_lossy(data));
    }
}

#[test]
fn connected() {
    let cases = [
        ("", None),
        ("7F000001 00000E10", Some((ip("127.0.0.1"), 3600))),
        ("00000000 06 20010db8 00000000 00000000 00001122 00000E10", Some((ip("2001:db8::1122"), 3600))),
    ];
    for (bytes, addr) in cases {
        assert_eq!(Connected::parse(&hex(bytes)), Ok(Connected { addr }));
        assert_eq!(encoded(|out| Connected { addr }.encode(out)), hex(bytes));
    }
    assert_eq!(Connected::parse(&hex("7F000001")).map(|it| it.addr), Ok(Some((ip("127.0.0.1"), u32::MAX))));
    assert!(Connected::parse(&hex("7F0000")).is_err());
    assert!(Connected::parse(&hex("00000000 07 20010db8 00000000 00000000 00001122 00000E10")).is_err());
}

#[test]
fn end() {
    let cases = [
        ("01", EndReason::MISC, None),
        ("06", EndReason::DONE, None),
        ("04", EndReason::EXITPOLICY, None),
        ("04 7f000007 00000100", EndReason::EXITPOLICY, Some((ip("127.0.0.7"), 256))),
        (
            "04 20010db8 00000000 00000000 0000f00b 00000200",
            EndReason::EXITPOLICY,
            Some((ip("2001:db8::f00b"), 512)),
        ),
        ("c8", EndReason(200), None),
    ];
    for (bytes, reason, addr) in cases {
        assert_eq!(End::parse(&hex(bytes)), End { reason, addr });
        assert_eq!(encoded(|out| End { reason, addr }.encode(out)), hex(bytes));
    }
    assert_eq!(End::parse(&[]), EndReason::MISC.into());
    assert_eq!(End::parse(&hex("04 7f000007")).addr, Some((ip("127.0.0.7"), u32::MAX)));
    assert_eq!(End::parse(&hex("04 7f0000")), EndReason::EXITPOLICY.into());
    assert!((1..=14).all(|raw| !EndReason(raw).to_string().starts_with("reason")));
}

#[test]
fn resolve() {
    let cases: [(&[u8], Resolve<'_>); 5] = [
        (b"www.torproject.org\0", Resolve::Name(HostName::new("www.torproject.org").expect("a name"))),
        (b"1.0.0.127.in-addr.arpa\0", Resolve::Reverse(ip("127.0.0.1"))),
        (
            b"0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1.0.0.2.ip6.arpa\0",
            Resolve::Reverse(ip("2001::")),
        ),
        (b"192.0.2.1\0", Resolve::Addr(ip("192.0.2.1"))),
        (b"2001:db8::1\0", Resolve::Addr(ip("2001:db8::1"))),
    ];
    for (bytes, expected) in cases {
        assert_eq!(Resolve::parse(bytes), Ok(expected));
        assert_eq!(Resolve::parse(&bytes[..bytes.len() - 1]), Ok(expected));
        assert_eq!(encoded(|out| expected.encode(out)), bytes);
    }
    assert_eq!(Resolve::parse(b"1.2.0.192.In-Addr.ARPA\0"), Ok(Resolve::Reverse(ip("192.0.2.1"))));
    let bad: [&[u8]; 7] = [
        b"",
        b"\0",
        b"a b\0",
        b"1.2.in-addr.arpa\0",
        b"256.1.1.1.in-addr.arpa\0",
        b"1.ip6.arpa\0",
        &[b'a'; 256],
    ];
    for data in bad {
        assert!(Resolve::parse(data).is_err(), "{}", String::from_utf8_lossy(data));
    }
}

#[test]
fn resolved() {
    let cases = [
        ("", vec![]),
        (
            "04 04 7f000001 00000E10 04 04 7f000002 00001c20",
            vec![(Answer::Addr(ip("127.0.0.1")), 3600), (Answer::Addr(ip("127.0.0.2")), 7200)],
        ),
        ("06 10 12340000000000000000000000005678 00000080", vec![(Answer::Addr(ip("1234::5678")), 128)]),
        ("00 03 777777 00000258", vec![(Answer::Name(b"www".to_vec()), 600)]),
        ("63 02 7777 00000258", vec![(Answer::Unknown { kind: 0x63, value: b"ww".to_vec() }, 600)]),
    ];
    for (bytes, answers) in cases {
        let resolved = Resolved::parse(&hex(bytes)).expect("RESOLVED");
        assert_eq!(resolved.answers(), answers);
        assert_eq!(encoded(|out| resolved.encode(out)), hex(bytes));
    }
    let error = Resolved::parse(&hex("F0 00 00000E10")).expect("RESOLVED");
    assert_eq!(error.answers(), [(Answer::Error { transient: true }, 3600)]);
    let text = encoded(|out| Resolved::error(false, 60).encode(out));
    assert_eq!(text, [&hex("F1 18")[..], b"Error resolving hostname", &hex("0000003C")].concat());
    assert!(Resolved::parse(&hex("04 03 010203 00000001")).is_err());
    assert!(Resolved::parse(&hex("04 04 01020304 000000")).is_err());
}

#[test]
fn resolved_keeps_its_rules_while_it_grows() {
    let mut resolved = Resolved::new();
    assert!(resolved.push(Answer::Addr(ip("::1")), 1));
    assert!(resolved.push(Answer::Addr(ip("127.0.0.1")), 2));
    assert_eq!(resolved.answers()[0].0, Answer::Addr(ip("127.0.0.1")), "IPv4 goes first");
    assert!(!resolved.push(Answer::Error { transient: true }, 3), "an error stands alone");
    assert!(!resolved.push(Answer::Name(vec![b'a'; 256]), 3), "a name has at most 255 bytes");
    let pushed = (0..1000).take_while(|_| resolved.push(Answer::Addr(ip("::2")), 4)).count();
    assert!(pushed < 1000, "there is always room");
    assert!(encoded(|out| resolved.encode(out)).len() <= DATA_LEN);
    let mut error = Resolved::error(true, 1);
    assert!(!error.push(Answer::Addr(ip("::1")), 1));
}

#[test]
fn flow_control() {
    assert_eq!(Sendme::parse(&[]), Ok(Sendme::Unauthenticated));
    assert_eq!(Sendme::parse(&[0, 1, 2]), Ok(Sendme::Unauthenticated));
    assert_eq!(encoded(|out| Sendme::Unauthenticated.encode(out)), []);
    let bytes = hex("01 0014 F01234989823478bcdefabcdef01234567890123");
    let sendme = Sendme::parse(&bytes).expect("SENDME");
    assert!(matches!(sendme, Sendme::Authenticated(digest) if digest[..] == bytes[3..]));
    assert_eq!(encoded(|out| sendme.encode(out)), bytes);
    assert!(Sendme::parse(&hex("01 0013 234989823478bcdefabcdef0123456789012")).is_err());
    assert!(Sendme::parse(&bytes[..22]).is_err());
    assert!(Sendme::parse(&[2]).is_err());

    let xon = Xon { kbytes_per_s: NonZeroU32::new(0x0102) };
    assert_eq!(encoded(|out| xon.encode(out)), hex("00 00000102"));
    assert_eq!(Xon::parse(&hex("00 00000102")), Ok(xon));
    assert_eq!(Xon::parse(&[0; 5]), Ok(Xon { kbytes_per_s: None }));
    assert!(Xon::parse(&[1, 0, 0, 0, 0]).is_err() && Xon::parse(&[0; 4]).is_err());
    assert_eq!(encoded(|out| Xoff.encode(out)), [0]);
    assert!(Xoff::parse(&[0]).is_ok() && Xoff::parse(&[1]).is_err() && Xoff::parse(&[]).is_err());
}
