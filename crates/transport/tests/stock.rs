//! Channels to and from stock tor, over loopback.

// The crate knows no sockets; this test is a driver, which does.
#![allow(clippy::disallowed_types)]

mod support;

use heddle_proto::cell::create::HTYPE_NTOR;
use heddle_proto::cell::extend::{Extend2, LinkSpec};
use heddle_proto::cell::relay::{self, RelayCommand};
use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::channel::{ChannelError, Incoming, Opened, Role, StreamTransport, Target};
use heddle_proto::crypto::onionskin::ClientHandshake;
use heddle_proto::crypto::tor1::OriginLayers;
use heddle_proto::ids::{Ed25519Id, RelayIds, RsaId};
use heddle_seam::rng::Seed;
use heddle_transport::tls::{TlsIdentity, TlsOptions};
use std::net::{SocketAddr, TcpListener, TcpStream};
use support::stock::{self, Driver, Stock, now_unix_s};

fn dial(options: TlsOptions, identity: Option<TlsIdentity>, target: &Target, addr: SocketAddr) -> Driver {
    let mut transport = support::transport(options, identity, 1);
    let socket = TcpStream::connect(addr).unwrap();
    Driver::new(socket, |now, wall| transport.dial(now, wall, target, addr))
}

fn opened(driver: &mut Driver) -> Result<Opened, ChannelError> {
    driver.until(|incoming| match incoming {
        Incoming::Opened(opened) => Some(opened),
        Incoming::Cell { .. } | Incoming::Vpadding { .. } => None,
    })
}

fn next_cell(driver: &mut Driver) -> (CircId, Command, Box<Body>) {
    let cell = driver.until(|incoming| match incoming {
        Incoming::Cell { circ_id, command, body } => Some((circ_id, command, Box::new(*body))),
        Incoming::Opened(_) | Incoming::Vpadding { .. } => None,
    });
    cell.unwrap()
}

/// Makes a circuit of one hop, which takes a working channel in both directions.
fn create_fast(driver: &mut Driver) -> (CircId, OriginLayers) {
    let mut rng = Seed::from_number(3).rng();
    let circ_id = driver.channel.propose_circ_id(&mut rng);
    let (handshake, onionskin) = ClientHandshake::fast(&mut rng);
    driver.send(circ_id, Command::CREATE_FAST, &onionskin);
    let (answered, command, body) = next_cell(driver);
    assert_eq!((answered, command), (circ_id, Command::CREATED_FAST));
    let mut layers = OriginLayers::new();
    layers.add_hop(&handshake.finish(&body[..40]).unwrap().keys);
    (circ_id, layers)
}

#[test]
fn a_relay_and_a_client_open_channels_to_a_stock_relay() {
    let mut stock = Stock::relay();
    let (target, addr) = stock.target();
    let ours = support::relay_identity(2, now_unix_s());
    let our_rsa_id = format!("{}", ours.link.ids.rsa).replace('$', "");
    let theirs = RelayIds { rsa: target.rsa, ed25519: target.ed25519.unwrap() };

    let as_relay = [
        TlsOptions::default(),
        TlsOptions { tls13: false, ..TlsOptions::default() },
        TlsOptions { link_protocols: vec![4], ..TlsOptions::default() },
    ];
    for options in as_relay {
        let link_protocol = *options.link_protocols.last().unwrap();
        let mut driver = dial(options, Some(ours.clone()), &target, addr);
        let opened = opened(&mut driver).unwrap();
        assert_eq!((opened.role, opened.peer), (Role::Initiator, Some(theirs)));
        assert_eq!(opened.link_protocol, link_protocol);
        assert_eq!(opened.our_addr, Some([127, 0, 0, 1].into()));
        assert!(opened.clock_ahead_s.abs() <= 60, "one clock is behind both: {}", opened.clock_ahead_s);
        create_fast(&mut driver);
        // Stock tor believed AUTHENTICATE.
        let line = stock.wait_for("OR connection is now open");
        assert!(line.contains(&format!("Its ID digest is {our_rsa_id}")), "{line}");
    }

    let mut driver = dial(TlsOptions::default(), None, &target, addr);
    assert_eq!(opened(&mut driver).unwrap().peer, Some(theirs));
    create_fast(&mut driver);
    let line = stock.wait_for("OR connection is now open");
    assert!(line.contains(&format!("Its ID digest is {:040}", 0)), "{line}");
}

#[test]
fn a_stock_relay_under_another_name_is_refused() {
    let mut stock = Stock::relay();
    let (target, addr) = stock.target();
    let other_rsa = Target { rsa: RsaId([1; 20]), ..target.clone() };
    let other_ed25519 = Target { ed25519: Some(Ed25519Id([1; 32])), ..target.clone() };
    for wrong in [other_rsa, other_ed25519] {
        let mut driver = dial(TlsOptions::default(), None, &wrong, addr);
        assert_eq!(opened(&mut driver), Err(ChannelError::WrongIdentity));
    }
    let any_ed25519 = Target { ed25519: None, ..target };
    assert!(opened(&mut dial(TlsOptions::default(), None, &any_ed25519, addr)).is_ok());
}

/// Our ORPort for one connection.
fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

fn accept(listener: &TcpListener, identity: TlsIdentity) -> Driver {
    let mut transport = support::transport(TlsOptions::default(), Some(identity), 1);
    let (socket, peer) = stock::accept(listener);
    let local = socket.local_addr().unwrap();
    Driver::new(socket, |now, wall| transport.accept(now, wall, local, peer))
}

#[test]
fn a_stock_relay_opens_a_channel_to_us_and_proves_who_it_is() {
    let mut stock = Stock::relay();
    let (target, addr) = stock.target();
    let ours = support::relay_identity(2, now_unix_s());
    let (listener, our_addr) = listen();
    let SocketAddr::V4(our_addr) = our_addr else { unreachable!("we listen on IPv4") };

    let mut client = dial(TlsOptions::default(), None, &target, addr);
    opened(&mut client).unwrap();
    let (circ_id, mut layers) = create_fast(&mut client);
    let specs = vec![
        LinkSpec::Ipv4(our_addr),
        LinkSpec::RsaId(ours.link.ids.rsa.0),
        LinkSpec::Ed25519Id(ours.link.ids.ed25519.0),
    ];
    let onionskin = [5; 84];
    let mut data = Vec::new();
    Extend2 { specs, htype: HTYPE_NTOR, hdata: &onionskin }.encode(&mut data);
    let mut body = [0; 509];
    relay::write(&mut body, RelayCommand::EXTEND2, None, &data, &mut Seed::from_number(4).rng());
    layers.seal(0, &mut body);
    client.send(circ_id, Command::RELAY_EARLY, &body);

    let mut responder = accept(&listener, ours);
    let opened = opened(&mut responder).unwrap();
    assert_eq!(opened.role, Role::Responder);
    let stock_ids = RelayIds { rsa: target.rsa, ed25519: target.ed25519.unwrap() };
    assert_eq!(opened.peer, Some(stock_ids));
    let (circ_id, command, body) = next_cell(&mut responder);
    assert!(circ_id.get() >= 1 << 31);
    assert_eq!((command, &body[4..4 + 84]), (Command::CREATE2, &onionskin[..]));
}

#[test]
fn a_stock_client_opens_a_channel_to_us() {
    let ours = support::relay_identity(2, now_unix_s());
    let (listener, addr) = listen();
    let fingerprint = format!("{}", ours.link.ids.rsa).replace('$', "");
    let torrc = format!("SocksPort auto\nUseBridges 1\nBridge {addr} {fingerprint}\n");
    let mut stock = Stock::start(&torrc);
    let mut responder = accept(&listener, ours);
    let opened = opened(&mut responder).unwrap();
    assert_eq!((opened.peer, opened.peer_addrs), (None, vec![]));
    assert_eq!(next_cell(&mut responder).1, Command::CREATE_FAST);
    let line = stock.wait_for("OR connection is now open");
    assert!(line.contains(&format!("Its ID digest is {fingerprint}")), "{line}");
}
