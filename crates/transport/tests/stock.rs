//! Channels to and from stock tor, over loopback.

mod support;

use heddle_proto::cell::Command;
use heddle_proto::channel::{ChannelError, Incoming, Opened, Role, StreamTransport, Target};
use heddle_proto::ids::{Ed25519Id, RelayIds, RsaId};
use heddle_proto::rng::Seed;
use heddle_transport::tls::{TlsIdentity, TlsOptions};
use std::net::{SocketAddr, TcpStream};
use support::stock::{Driver, Stock};

fn dial(options: TlsOptions, identity: Option<TlsIdentity>, target: &Target, addr: SocketAddr) -> Driver {
    let mut transport = support::transport(options, identity, 1);
    let socket = TcpStream::connect(addr).unwrap();
    Driver::new(socket, |now, wall| transport.dial(now, wall, target, addr))
}

fn opened(driver: &mut Driver) -> Result<Opened, ChannelError> {
    driver.until(|incoming| match incoming {
        Incoming::Opened(opened) => Some(opened),
        Incoming::Cell { .. } => None,
    })
}

/// Makes a circuit of one hop, which takes a working channel in both directions.
fn create_fast(driver: &mut Driver) {
    let circ_id = driver.channel.propose_circ_id(&mut Seed::from_number(3).rng());
    let now = driver.now();
    driver.channel.send(now, circ_id, Command::CREATE_FAST, &[7; 509]);
    driver.flush();
    let answer = driver.until(|incoming| match incoming {
        Incoming::Cell { circ_id, command, .. } => Some((circ_id, command)),
        Incoming::Opened(_) => None,
    });
    assert_eq!(answer.unwrap(), (circ_id, Command::CREATED_FAST));
}

#[test]
fn a_relay_and_a_client_open_channels_to_a_stock_relay() {
    let mut stock = Stock::relay();
    let (target, addr) = stock.target();
    let ours = support::relay_identity(2);
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
