//! An independent implementation as oracle: every message that we and `tor-cell` both know comes out
//! of both encoders as the same bytes, goes into both parsers as the same values, and what one
//! parser refuses the other refuses too.

use core::net::{IpAddr, SocketAddrV4, SocketAddrV6};
use core::num::{NonZeroU16, NonZeroU32};

use bytes::BytesMut;
use heddle_proto::cell::create::{Create2, CreateFast, Created2, CreatedFast, DestroyReason};
use heddle_proto::cell::extend::{Extend2, Extended2, LinkSpec};
use heddle_proto::cell::flow_control::{Sendme, Xoff, Xon};
use heddle_proto::cell::frame::{Framer, write_fixed, write_variable, write_versions};
use heddle_proto::cell::link::{
    AuthChallenge, Authenticate, CertType, Certs, Netinfo, PaddingNegotiate, Versions,
};
use heddle_proto::cell::relay::{self, RelayCommand, StreamId};
use heddle_proto::cell::stream::{
    Answer, Begin, BeginFlags, Connected, End, EndReason, Host, HostName, Resolve, Resolved,
};
use heddle_proto::cell::{BODY_LEN, CircId, Command, Malformed};
use heddle_seam::rng::{Rng, Seed};
use proptest::collection::vec;
use proptest::prelude::*;
use tor_bytes::Reader;
use tor_cell::chancell::codec::ChannelCodec;
use tor_cell::chancell::msg::{self as chan, AnyChanMsg};
use tor_cell::chancell::{AnyChanCell, ChanCell, ChanCmd, ChanMsg};
use tor_cell::relaycell::msg::{self as rel, AnyRelayMsg};
use tor_cell::relaycell::{AnyRelayMsgOuter, RelayCellFormat, RelayCmd, RelayMsg, flow_ctrl};
use tor_linkspec::EncodedLinkSpec;

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

/// Both encoders agree on a link or circuit message, and the oracle reads ours as what it is.
fn agree_on_channel(ours: &[u8], theirs: impl Into<AnyChanMsg>) {
    let theirs = theirs.into();
    let command = theirs.cmd();
    let read = AnyChanMsg::decode_from_reader(command, &mut Reader::from_slice(ours));
    assert_eq!(format!("{:?}", read.expect("the oracle reads our bytes")), format!("{theirs:?}"));
    let mut bytes = Vec::new();
    theirs.encode_onto(&mut bytes).expect("the oracle encodes");
    assert_eq!(bytes, ours, "{command}");
}

/// The same for a relay message.
fn agree_on_relay(ours: &[u8], theirs: impl Into<AnyRelayMsg>) {
    let theirs = theirs.into();
    let command = theirs.cmd();
    let read = AnyRelayMsg::decode_from_reader(command, &mut Reader::from_slice(ours));
    assert_eq!(format!("{:?}", read.expect("the oracle reads our bytes")), format!("{theirs:?}"));
    let mut bytes = Vec::new();
    theirs.encode_onto(&mut bytes).expect("the oracle encodes");
    assert_eq!(bytes, ours, "{command}");
}

fn addr() -> impl Strategy<Value = IpAddr> {
    let specified = |addr: &IpAddr| !addr.is_unspecified();
    any::<IpAddr>().prop_filter("the unspecified address stands for none", specified)
}

fn host_name() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9_-]{0,20}(\\.[a-z][a-z0-9-]{0,20}){0,5}"
}

proptest! {
    #[test]
    fn versions(list in vec(any::<u16>(), 0..20), known in vec(any::<u16>(), 0..20)) {
        let ours = Versions { list: list.clone() };
        let theirs = chan::Versions::new(list.clone()).expect("few versions");
        prop_assert_eq!(
            ours.best_common(&known).filter(|version| *version != 0),
            theirs.best_shared_link_protocol(&known)
        );
        let body = encoded(|out| ours.encode(out));
        prop_assert_eq!(Versions::parse(&body), Ok(ours));
        prop_assert_eq!(
            encoded(|out| write_versions(out, &list)),
            theirs.clone().encode_for_handshake().expect("the oracle encodes")
        );
        agree_on_channel(&body, theirs);
    }

    #[test]
    fn certs(list in proptest::collection::btree_map(any::<u8>(), vec(any::<u8>(), 0..300), 0..12)) {
        let mut theirs = chan::Certs::new_empty();
        let mut ours = Certs::default();
        for (cert_type, cert) in &list {
            theirs.push_cert_body((*cert_type).into(), cert.clone());
            ours.list.push((CertType(*cert_type), cert));
        }
        let body = encoded(|out| ours.encode(out));
        prop_assert_eq!(Certs::parse(&body), Ok(ours));
        agree_on_channel(&body, theirs);
    }

    #[test]
    fn auth_challenge(challenge in any::<[u8; 32]>(), methods in vec(any::<u16>(), 0..9)) {
        let ours = AuthChallenge { challenge, methods: methods.clone() };
        let body = encoded(|out| ours.encode(out));
        prop_assert_eq!(AuthChallenge::parse(&body), Ok(ours));
        agree_on_channel(&body, chan::AuthChallenge::new(challenge, methods));
    }

    #[test]
    fn authenticate(authentication in vec(any::<u8>(), 352..400)) {
        let ours = Authenticate { auth_type: 3, authentication: &authentication };
        let theirs = chan::Authenticate::new(3, authentication.clone());
        let body = encoded(|out| ours.encode(out));
        prop_assert_eq!(Authenticate::parse(&body), Ok(ours));
        let proof = ours.ed25519().expect("type 3");
        prop_assert_eq!(Ok(proof.signed), theirs.body());
        prop_assert_eq!(Ok(proof.signature), theirs.sig());
        agree_on_channel(&body, theirs);
    }

    #[test]
    fn netinfo(
        timestamp_s: u32,
        other_addr in proptest::option::of(addr()),
        my_addrs in vec(any::<IpAddr>(), 0..20),
    ) {
        let ours = Netinfo { timestamp_s, other_addr, my_addrs: my_addrs.clone() };
        let body = encoded(|out| ours.encode(out));
        prop_assert_eq!(Netinfo::parse(&body), Ok(ours));
        agree_on_channel(&body, chan::Netinfo::from_relay(timestamp_s, other_addr, my_addrs));
    }

    #[test]
    fn padding_negotiate(low_ms: u16, high_ms: u16) {
        let ours = PaddingNegotiate::Start { low_ms, high_ms };
        let body = encoded(|out| ours.encode(out));
        prop_assert_eq!(PaddingNegotiate::parse(&body), Ok(ours));
        agree_on_channel(&body, chan::PaddingNegotiate::start(low_ms.into(), high_ms.into()));
    }

    #[test]
    fn handshakes(htype: u16, hdata in vec(any::<u8>(), 0..480), fast in any::<[[u8; 20]; 2]>()) {
        let body = encoded(|out| Create2 { htype, hdata: &hdata }.encode(out));
        prop_assert_eq!(Create2::parse(&body), Ok(Create2 { htype, hdata: &hdata }));
        agree_on_channel(&body, chan::Create2::new(htype.into(), hdata.clone()));

        let created = Created2 { hdata: &hdata };
        let body = encoded(|out| created.encode(out));
        prop_assert_eq!(Created2::parse(&body), Ok(created));
        agree_on_channel(&body, chan::Created2::new(hdata.clone()));

        let extended = Extended2::from_created(&created).expect("fits");
        prop_assert_eq!(&encoded(|out| extended.encode(out)), &body);
        prop_assert_eq!(Extended2::parse(&body), Ok(extended));
        agree_on_relay(&body, rel::Extended2::new(hdata));

        let [key_material, derivative_key] = fast;
        let body = encoded(|out| CreateFast { key_material }.encode(out));
        prop_assert_eq!(CreateFast::parse(&body), Ok(CreateFast { key_material }));
        agree_on_channel(&body, chan::CreateFast::new(body.clone()));
        let ours = CreatedFast { key_material, derivative_key };
        let body = encoded(|out| ours.encode(out));
        prop_assert_eq!(CreatedFast::parse(&body), Ok(ours));
        agree_on_channel(&body, chan::CreatedFast::new(body.clone()));
    }

    #[test]
    fn reasons(raw: u8) {
        let destroy = encoded(|out| DestroyReason(raw).encode(out));
        prop_assert_eq!(DestroyReason::parse(&destroy), DestroyReason(raw));
        agree_on_channel(&destroy, chan::Destroy::new(raw.into()));
        agree_on_relay(&destroy, rel::Truncated::new(raw.into()));
        if raw <= 12 {
            prop_assert_eq!(DestroyReason(raw).to_string(), chan::DestroyReason::from(raw).to_string());
        }

        let end = encoded(|out| End::from(EndReason(raw)).encode(out));
        prop_assert_eq!(End::parse(&end), End::from(EndReason(raw)));
        agree_on_relay(&end, rel::End::new_with_reason(raw.into()));
        if (1..=14).contains(&raw) {
            prop_assert_eq!(EndReason(raw).to_string(), rel::EndReason::from(raw).to_string());
        }
    }

    #[test]
    fn extend2(
        ipv4 in any::<Option<([u8; 4], u16)>>(),
        ipv6 in any::<Option<([u8; 16], u16)>>(),
        rsa_id in any::<Option<[u8; 20]>>(),
        ed25519_id in any::<Option<[u8; 32]>>(),
        unknown in proptest::option::of((4_u8.., vec(any::<u8>(), 0..40))),
        htype: u16,
        hdata in vec(any::<u8>(), 0..300),
    ) {
        let mut specs = Vec::new();
        let mut their_specs = Vec::new();
        if let Some((ip, port)) = ipv4 {
            specs.push(LinkSpec::Ipv4(SocketAddrV4::new(ip.into(), port)));
            their_specs.push(encoded_spec(0, &[&ip[..], &port.to_be_bytes()].concat()));
        }
        if let Some(id) = rsa_id {
            specs.push(LinkSpec::RsaId(id));
            their_specs.push(encoded_spec(2, &id));
        }
        if let Some(id) = ed25519_id {
            specs.push(LinkSpec::Ed25519Id(id));
            their_specs.push(encoded_spec(3, &id));
        }
        if let Some((ip, port)) = ipv6 {
            specs.push(LinkSpec::Ipv6(SocketAddrV6::new(ip.into(), port, 0, 0)));
            their_specs.push(encoded_spec(1, &[&ip[..], &port.to_be_bytes()].concat()));
        }
        if let Some((kind, value)) = &unknown {
            specs.push(LinkSpec::Unknown { kind: *kind, value });
            their_specs.push(encoded_spec(*kind, value));
        }
        let ours = Extend2 { specs, htype, hdata: &hdata };
        let body = encoded(|out| ours.encode(out));
        prop_assert_eq!(Extend2::parse(&body), Ok(ours));
        agree_on_relay(&body, rel::Extend2::new(their_specs, htype.into(), hdata.clone()));
    }

    #[test]
    fn begin(name in host_name(), ip: IpAddr, port: NonZeroU16, flags in 0_u32..8) {
        let ip_host = match ip {
            IpAddr::V4(addr) => Host::Ipv4(addr),
            IpAddr::V6(addr) => Host::Ipv6(addr),
        };
        let name_host = Host::Name(HostName::new(&name).expect("a name"));
        for (host, text) in [(name_host, name.clone()), (ip_host, ip.to_string())] {
            let ours = Begin { host, port, flags: BeginFlags(flags) };
            let body = encoded(|out| ours.encode(out));
            prop_assert_eq!(Begin::parse(&body), Ok(ours));
            agree_on_relay(&body, rel::Begin::new(&text, port.get(), flags).expect("ASCII"));
        }
    }

    #[test]
    fn connected_and_end(addr in addr(), ttl_s: u32) {
        let ours = Connected { addr: Some((addr, ttl_s)) };
        let body = encoded(|out| ours.encode(out));
        prop_assert_eq!(Connected::parse(&body), Ok(ours));
        agree_on_relay(&body, rel::Connected::new_with_addr(addr, ttl_s));

        let ours = End { reason: EndReason::EXITPOLICY, addr: Some((addr, ttl_s)) };
        let body = encoded(|out| ours.encode(out));
        prop_assert_eq!(End::parse(&body), ours);
        agree_on_relay(&body, rel::End::new_exitpolicy(addr, ttl_s));
    }

    #[test]
    fn resolve(name in host_name(), ip: IpAddr) {
        let ours = Resolve::Name(HostName::new(&name).expect("a name"));
        let body = encoded(|out| ours.encode(out));
        prop_assert_eq!(Resolve::parse(&body), Ok(ours));
        agree_on_relay(&body, rel::Resolve::new(&name));

        let ours = Resolve::Reverse(ip);
        let body = encoded(|out| ours.encode(out));
        prop_assert_eq!(Resolve::parse(&body), Ok(ours));
        agree_on_relay(&body, rel::Resolve::new_reverse(&ip));
    }

    #[test]
    fn resolved(
        addrs in vec((any::<IpAddr>(), any::<u32>()), 0..30),
        name in host_name(),
        transient: bool,
        ttl_s: u32,
    ) {
        let mut ours = Resolved::new();
        ours.push(Answer::Name(name.clone().into_bytes()), ttl_s);
        for (addr, ttl_s) in addrs {
            ours.push(Answer::Addr(addr), ttl_s);
        }
        let mut theirs = rel::Resolved::new_empty();
        for (answer, ttl_s) in ours.answers() {
            let answer = match answer {
                Answer::Addr(addr) => rel::ResolvedVal::Ip(*addr),
                _ => rel::ResolvedVal::Hostname(name.clone().into_bytes()),
            };
            theirs.add_answer(answer, *ttl_s);
        }
        let body = encoded(|out| ours.encode(out));
        prop_assert_eq!(Resolved::parse(&body), Ok(ours));
        agree_on_relay(&body, theirs);

        // The oracle sends errors without a text, so only its reading can be compared.
        let body = encoded(|out| Resolved::error(transient, ttl_s).encode(out));
        let read = AnyRelayMsg::decode_from_reader(RelayCmd::RESOLVED, &mut Reader::from_slice(&body));
        let theirs = AnyRelayMsg::from(rel::Resolved::new_err(transient, ttl_s));
        prop_assert_eq!(format!("{:?}", read.expect("RESOLVED")), format!("{theirs:?}"));
    }

    #[test]
    fn flow_control(digest in any::<[u8; 20]>(), rate: u32) {
        let body = encoded(|out| Sendme::Authenticated(digest).encode(out));
        prop_assert_eq!(Sendme::parse(&body), Ok(Sendme::Authenticated(digest)));
        agree_on_relay(&body, rel::Sendme::new_tag(digest));
        agree_on_relay(&encoded(|out| Sendme::Unauthenticated.encode(out)), rel::Sendme::new_empty());

        let ours = Xon { kbytes_per_s: NonZeroU32::new(rate) };
        let their_rate = match ours.kbytes_per_s {
            Some(rate) => flow_ctrl::XonKBpsEwma::Limited(rate),
            None => flow_ctrl::XonKBpsEwma::Unlimited,
        };
        let body = encoded(|out| ours.encode(out));
        prop_assert_eq!(Xon::parse(&body), Ok(ours));
        agree_on_relay(&body, flow_ctrl::Xon::new(flow_ctrl::FlowCtrlVersion::V0, their_rate));
        let body = encoded(|out| Xoff.encode(out));
        agree_on_relay(&body, flow_ctrl::Xoff::new(flow_ctrl::FlowCtrlVersion::V0));
    }

    /// Whatever bytes come: where both read a message by the same rules, both take or both refuse it.
    #[test]
    fn both_refuse_the_same(body in vec(prop_oneof![Just(0), 0_u8..8, any::<u8>()], 0..200)) {
        let chan = |command| AnyChanMsg::decode_from_reader(command, &mut Reader::from_slice(&body)).is_ok();
        let rel = |command| AnyRelayMsg::decode_from_reader(command, &mut Reader::from_slice(&body)).is_ok();
        prop_assert_eq!(Versions::parse(&body).is_ok(), chan(ChanCmd::VERSIONS));
        prop_assert_eq!(Netinfo::parse(&body).is_ok(), chan(ChanCmd::NETINFO));
        prop_assert_eq!(AuthChallenge::parse(&body).is_ok(), chan(ChanCmd::AUTH_CHALLENGE));
        prop_assert_eq!(Authenticate::parse(&body).is_ok(), chan(ChanCmd::AUTHENTICATE));
        prop_assert_eq!(Create2::parse(&body).is_ok(), chan(ChanCmd::CREATE2));
        prop_assert_eq!(Created2::parse(&body).is_ok(), chan(ChanCmd::CREATED2));
        prop_assert_eq!(CreateFast::parse(&body).is_ok(), chan(ChanCmd::CREATE_FAST));
        prop_assert_eq!(CreatedFast::parse(&body).is_ok(), chan(ChanCmd::CREATED_FAST));
        prop_assert_eq!(Resolved::parse(&body).is_ok(), rel(RelayCmd::RESOLVED));
        prop_assert_eq!(Xon::parse(&body).is_ok(), rel(RelayCmd::XON));
        prop_assert_eq!(Xoff::parse(&body).is_ok(), rel(RelayCmd::XOFF));
        // These rules of ours are stricter, on purpose: one certificate of each type, lengths of link
        // specifiers, only the padding commands there are.
        prop_assert!(Certs::parse(&body).is_err() || chan(ChanCmd::CERTS));
        prop_assert!(Certs::parse(&body) != Err(Malformed::Truncated) || !chan(ChanCmd::CERTS));
        prop_assert!(Extend2::parse(&body).is_err() || rel(RelayCmd::EXTEND2));
        prop_assert!(Begin::parse(&body).is_err() || rel(RelayCmd::BEGIN));
    }

    #[test]
    fn relay_cells(command in 1_u8..50, stream_id: u16, data in vec(any::<u8>(), 1..=498), seed: u64) {
        let rng = || Seed::from_number(seed).rng();
        let stream_id = StreamId::new(stream_id);
        let their_stream_id = tor_cell::relaycell::StreamId::new(stream_id.map_or(0, StreamId::get));

        let mut body = [0; BODY_LEN];
        relay::write(&mut body, RelayCommand(command), stream_id, &data, &mut rng());
        let read = tor_cell::relaycell::UnparsedRelayMsg::from_singleton_body(RelayCellFormat::V0, Box::new(body));
        let read = read.expect("a relay cell");
        prop_assert_eq!((u8::from(read.cmd()), read.stream_id()), (command, their_stream_id));

        relay::write(&mut body, RelayCommand::DATA, stream_id, &data, &mut rng());
        let theirs = AnyRelayMsgOuter::new(their_stream_id, rel::Data::new(&data).expect("fits").into());
        let their_body = theirs.encode(RelayCellFormat::V0, &mut Draws(rng())).expect("the oracle encodes");
        prop_assert_eq!(&body[..], &their_body[..], "padding included, which both draw from one generator");
        let (header, read) = relay::parse(&their_body).expect("a relay cell");
        prop_assert_eq!((header.command, header.stream_id, read), (RelayCommand::DATA, stream_id, &data[..]));
    }

    /// A stream of cells from the oracle's codec, cut anywhere.
    #[test]
    fn framing(
        cells in vec((1_u32.., 0_u8..=255, vec(any::<u8>(), 0..700)), 0..20),
        cuts in vec(1_usize..1500, 1..40),
    ) {
        let mut codec = ChannelCodec::new(4);
        let mut theirs = BytesMut::new();
        let mut ours = Vec::new();
        let mut expected = Vec::new();
        for (circ_id, command, mut body) in cells {
            let command = Command(command);
            if !command.is_variable() {
                body.resize(BODY_LEN, 0);
                write_fixed(&mut ours, circ_id, command, &body);
            } else {
                write_variable(&mut ours, circ_id, command, &body);
            }
            let message = AnyChanMsg::from(chan::Unrecognized::new(command.0.into(), body.clone()));
            let circ_id = CircId::new(circ_id);
            let their_id = tor_cell::chancell::CircId::new(circ_id.map_or(0, CircId::get));
            let cell: AnyChanCell = ChanCell::new(their_id, message);
            codec.write_cell(cell, &mut theirs).expect("the oracle encodes");
            expected.push((circ_id, command, body));
        }
        prop_assert_eq!(&ours[..], &theirs[..]);

        let mut framer = Framer::new();
        let mut stream = encoded(|out| write_versions(out, &[4, 5]));
        stream.extend_from_slice(&theirs);
        let mut read = Vec::new();
        let mut left = &stream[..];
        for cut in cuts.iter().cycle() {
            let (mut chunk, later) = left.split_at(left.len().min(*cut));
            left = later;
            while let (used, Some(frame)) = framer.next(chunk).expect("cells") {
                chunk = &chunk[used..];
                read.push((frame.circ_id, frame.command, frame.body.to_vec()));
            }
            if left.is_empty() {
                break;
            }
        }
        prop_assert_eq!(read.remove(0).1, Command::VERSIONS);
        prop_assert_eq!(read, expected);
    }
}

fn encoded_spec(kind: u8, value: &[u8]) -> EncodedLinkSpec {
    EncodedLinkSpec::new(kind.into(), value)
}

/// Our generator behind the oracle's trait.
struct Draws(Rng);

impl rand_core_tor::TryRng for Draws {
    type Error = core::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        Ok(self.0.next_u32())
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(self.0.next_u64())
    }

    fn try_fill_bytes(&mut self, dst: &mut [u8]) -> Result<(), Self::Error> {
        self.0.fill(dst);
        Ok(())
    }
}

impl rand_core_tor::TryCryptoRng for Draws {}
