//! Offers of VPADDING cells, and what a shard's pairs make of them.

use heddle_proto::channel::Role;
use heddle_proto::ids::{Ed25519Id, RelayIds, RsaId};
use heddle_proto::pair::offer::{OFFER_LEN_MAX, Offer, OfferedTransport};
use heddle_proto::pair::{PairInput, PairOutput, Pairs, Place};
use heddle_proto::transport::TransportId;
use heddle_seam::node::SocketId;
use heddle_seam::time::Instant;
use std::net::{IpAddr, Ipv4Addr};

const PEER: RelayIds = RelayIds { rsa: RsaId([1; 20]), ed25519: Ed25519Id([2; 32]) };
const PLACE: Place = Place { addr: IpAddr::V4(Ipv4Addr::LOCALHOST), canonical: true };
const CHANNEL: SocketId = SocketId::dialled(1);

pub fn run(data: &[u8]) {
    let parsed = Offer::parse(data);
    if let Ok(offer) = &parsed {
        assert!(data.len() <= OFFER_LEN_MAX && offer.transports.len() <= 16);
        assert!(offer.transports.iter().all(|transport| transport.port != 0));
        assert_eq!(Offer::parse(&offer.encode()).as_ref(), Ok(offer));
    }
    // A pair takes the bytes as the first offer of a channel, and no second one.
    let mut pairs = Pairs::new(ours(), 1);
    let now = Instant::ZERO;
    let role = Role::Initiator;
    let opened =
        PairInput::ChannelOpened { channel: CHANNEL, role, place: PLACE, listed: true, exporter: true };
    pairs.handle(now, PEER, opened);
    pairs.handle(now, PEER, PairInput::Winner(Some(CHANNEL)));
    for _ in 0..2 {
        pairs.handle(now, PEER, PairInput::Vpadding { channel: CHANNEL, body: data });
    }
    let dials = std::iter::from_fn(|| pairs.poll_output())
        .filter(|(_, output)| matches!(output, PairOutput::Open(_)))
        .count();
    let shared = |offer: Offer| {
        ours().transports.iter().filter(|transport| offer.transport(transport.id).is_some()).count()
    };
    assert_eq!(dials, parsed.map_or(0, shared));
}

fn ours() -> Offer {
    let transports = vec![
        OfferedTransport { id: TransportId(1), port: 443, flows_max: 1000 },
        OfferedTransport { id: TransportId(77), port: 65535, flows_max: 0 },
    ];
    Offer { key: [3; 32], transports }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let whole = ours().encode();
    // The same without its padding, and with a field from the future.
    let short = whole[..9 + 36 + 11].to_vec();
    let mut future = short.clone();
    future.extend_from_slice(&[0x70, 0, 0, 3, 1, 2, 3]);
    vec![whole, short, future]
}
