//! Bodies of fuzz targets: each takes arbitrary bytes and panics when a promise is broken.
//!
//! Certificates are replaced by plain statements that anybody can make, so that a fuzzer gets past
//! them; signatures and transcripts are real.

use crate::link::{
    Context, InvalidPeer, LINK_PROTOCOLS, LinkConfig, LinkHandshake, LinkIdentity, PeerVerifier, TlsBinding,
    VerifiedPeer,
};
use crate::tls::{TlsOptions, TlsTransport};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use core::net::SocketAddr;
use heddle_proto::cell::frame::{Framer, write_fixed, write_variable};
use heddle_proto::cell::{BODY_LEN, Command};
use heddle_proto::channel::{ChannelError, Opened, StreamTransport, Target};
use heddle_proto::ids::{Ed25519Id, RelayIds, RsaId};
use heddle_seam::rng::{Repeatable, Rng, Seed};
use heddle_seam::time::{Instant, UnixTime};
use std::collections::VecDeque;
use std::sync::Arc;

/// A link handshake in which the bytes say, step by step, which cell comes next: the one that an
/// honest peer sends, that one with a bit flipped, or any other.
///
/// However it goes, a peer is only believed to be the honest one.
pub fn link_handshake(bytes: &[u8]) {
    let Some((flags, mut script)) = bytes.split_first() else {
        return;
    };
    let we_respond = flags & 1 != 0;
    let peer_is_relay = !we_respond || flags & 2 != 0;
    let mut pair = LinkPair::new(!we_respond || flags & 4 != 0, peer_is_relay);
    // The initiator speaks first.
    while let Some((step, rest)) = script.split_first() {
        script = rest;
        let honest = pair.next_cell_for(we_respond);
        let cell = match (step % 4, honest) {
            (0 | 1, Some(honest)) => honest,
            (2, Some(honest)) => flip(honest, &mut script),
            _ => arbitrary_cell(&mut script),
        };
        if let Some(honest) = pair.next_cell_for(!we_respond) {
            let _ = pair.deliver(!we_respond, &honest);
        }
        match pair.deliver(we_respond, &cell) {
            Ok(Some(opened)) => {
                let peer = if we_respond { plain::INITIATOR } else { plain::RESPONDER };
                assert!(opened.peer.is_none_or(|ids| ids == plain::ids(peer)), "{opened:?}");
                return;
            }
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

/// An initiator's channel whose peer sends these bytes instead of TLS.
pub fn tls_initiator(bytes: &[u8]) {
    let entropy = Box::new(Repeatable::new(&Seed::from_number(1)));
    let transport = TlsTransport::new(TlsOptions::default(), None, Arc::new(plain::Verifier), entropy);
    let mut transport = transport.expect("a client needs no key");
    let target = Target { rsa: RsaId([0; 20]), ed25519: None, addrs: Vec::new() };
    let mut channel = transport.dial(Instant::ZERO, UnixTime { ns: 0 }, &target, plain::ADDR);
    channel.handle_writable(Instant::ZERO, 1 << 16);
    channel.poll_transmit(Instant::ZERO, &mut Vec::new());
    'reads: for mut read in bytes.chunks(1 + bytes.len() / 3) {
        while !read.is_empty() {
            let Ok(taken) = channel.handle_read(Instant::ZERO, read) else {
                break 'reads;
            };
            read = &read[taken..];
            assert!(!matches!(channel.next_incoming(Instant::ZERO), Ok(Some(_))));
        }
    }
    channel.poll_transmit(Instant::ZERO, &mut Vec::new());
}

fn flip(mut cell: Vec<u8>, script: &mut &[u8]) -> Vec<u8> {
    let at = usize::from(take(script)) * 256 + usize::from(take(script));
    let len = cell.len();
    cell[at % len] ^= 1 << (at % 8);
    cell
}

fn arbitrary_cell(script: &mut &[u8]) -> Vec<u8> {
    let (command, flags) = (Command(take(script)), take(script));
    let circ_id = u32::from(flags & 1);
    let len = usize::from(take(script)).min(script.len());
    let (body, rest) = script.split_at(len);
    *script = rest;
    let mut cell = Vec::new();
    if command.is_variable() {
        write_variable(&mut cell, circ_id, command, body);
    } else {
        write_fixed(&mut cell, circ_id, command, &body[..len.min(BODY_LEN)]);
    }
    cell
}

fn take(script: &mut &[u8]) -> u8 {
    let Some((first, rest)) = script.split_first() else {
        return 0;
    };
    *script = rest;
    *first
}

/// An initiator (side 0) and a responder (side 1) with the cells on their way.
pub(crate) struct LinkPair {
    sides: [LinkHandshake; 2],
    /// Of what each side is handed.
    framers: [Framer; 2],
    /// Of what is sent to each side.
    splitters: [Framer; 2],
    /// Whole cells on their way to each side.
    inboxes: [VecDeque<Vec<u8>>; 2],
    opened: [Option<Opened>; 2],
    /// What each side's clock says.
    pub(crate) walls: [UnixTime; 2],
    rng: Rng,
}

impl LinkPair {
    pub(crate) fn new(responder_is_relay: bool, initiator_is_relay: bool) -> Self {
        let initiator = plain::config(plain::INITIATOR, initiator_is_relay, LINK_PROTOCOLS);
        let responder = plain::config(plain::RESPONDER, responder_is_relay, LINK_PROTOCOLS);
        Self::with(initiator, responder, plain::target(plain::RESPONDER))
    }

    pub(crate) fn with(initiator: LinkConfig, responder: LinkConfig, target: Target) -> Self {
        let mut out = Vec::new();
        let initiator = LinkHandshake::initiate(Arc::new(initiator), target, plain::ADDR, &mut out);
        let responder = LinkHandshake::respond(Arc::new(responder), plain::ADDR);
        let mut pair = LinkPair {
            sides: [initiator, responder],
            framers: [Framer::new(), Framer::new()],
            splitters: [Framer::new(), Framer::new()],
            inboxes: [VecDeque::new(), VecDeque::new()],
            opened: [None, None],
            walls: [UnixTime { ns: 1_000_000_000 }; 2],
            rng: Seed::from_number(9).rng(),
        };
        pair.queue(true, &out);
        pair
    }

    fn queue(&mut self, to_responder: bool, mut bytes: &[u8]) {
        let to = usize::from(to_responder);
        while let Ok((used, Some(frame))) = self.splitters[to].next(bytes) {
            self.inboxes[to].push_back(frame.bytes.to_vec());
            bytes = &bytes[used..];
        }
    }

    /// Takes the next cell for one side off its way.
    pub(crate) fn next_cell_for(&mut self, responder: bool) -> Option<Vec<u8>> {
        self.inboxes[usize::from(responder)].pop_front()
    }

    /// Hands a cell to one side and sends off what it answers.
    pub(crate) fn deliver(&mut self, responder: bool, cell: &[u8]) -> Result<Option<Opened>, ChannelError> {
        let side = usize::from(responder);
        let mut out = Vec::new();
        let Ok((_, Some(frame))) = self.framers[side].next(cell) else {
            return Err(ChannelError::PeerMisbehaved("not a cell"));
        };
        let wall = self.walls[side];
        let mut cx = Context { tls: &plain::Tls, wall, rng: &mut self.rng, out: &mut out };
        let found = self.sides[side].handle_cell(frame, &mut cx)?;
        self.queue(!responder, &out);
        self.opened[side] = self.opened[side].take().or(found.clone());
        Ok(found)
    }

    /// Delivers what is on the way until both sides are open, or one fails.
    #[cfg(test)]
    pub(crate) fn run(&mut self) -> Result<[Opened; 2], ChannelError> {
        while let Some(responder) = self.inboxes.iter().position(|inbox| !inbox.is_empty()) {
            let responder = responder == 1;
            let cell = self.next_cell_for(responder).expect("the inbox holds a cell");
            self.deliver(responder, &cell)?;
        }
        match self.opened.clone() {
            [Some(initiator), Some(responder)] => Ok([initiator, responder]),
            _ => Err(ChannelError::TimedOut),
        }
    }
}

/// Certificates and TLS replaced by plain statements.
pub(crate) mod plain {
    use super::{
        Arc, ChannelError, Ed25519Id, Ed25519KeyPair, InvalidPeer, KeyPair, LinkConfig, LinkIdentity,
        PeerVerifier, RelayIds, RsaId, SHA256, SocketAddr, Target, TlsBinding, VerifiedPeer, digest,
    };

    pub(crate) const INITIATOR: u8 = 1;
    pub(crate) const RESPONDER: u8 = 2;
    pub(crate) const ADDR: SocketAddr =
        SocketAddr::new(core::net::IpAddr::V4(core::net::Ipv4Addr::LOCALHOST), 9001);

    pub(crate) fn ids(name: u8) -> RelayIds {
        RelayIds { rsa: RsaId([name; 20]), ed25519: Ed25519Id([name; 32]) }
    }

    pub(crate) fn target(name: u8) -> Target {
        Target { rsa: ids(name).rsa, ed25519: Some(ids(name).ed25519), addrs: Vec::new() }
    }

    /// A relay or a client called `name`.
    pub(crate) fn config(name: u8, is_relay: bool, link_protocols: &[u16]) -> LinkConfig {
        LinkConfig {
            identity: is_relay.then(|| Arc::new(identity(name))),
            verifier: Arc::new(Verifier),
            link_protocols: link_protocols.to_vec(),
        }
    }

    /// Certificate 4 states the name, 5 the TLS certificate, 6 the key of AUTHENTICATE.
    pub(crate) fn identity(name: u8) -> LinkIdentity {
        let key = Ed25519KeyPair::from_seed_unchecked(&[name; 32]).expect("32 bytes are a seed");
        let auth_key = key.public_key().as_ref().to_vec();
        let sign = move |message: &[u8]| {
            let mut signature = [0; 64];
            signature.copy_from_slice(key.sign(message).as_ref());
            signature
        };
        LinkIdentity {
            ids: ids(name),
            rsa_key_sha256: [name; 32],
            responder_certs: vec![(4, vec![name]), (5, digest(&SHA256, Tls::CERT).as_ref().to_vec())],
            initiator_certs: vec![(4, vec![name]), (6, auth_key)],
            auth_signer: Arc::new(sign),
            addrs: vec![[127, 0, 0, name].into()],
        }
    }

    pub(crate) struct Verifier;

    impl PeerVerifier for Verifier {
        fn verify_certs(
            &self,
            certs: &[(u8, &[u8])],
            tls_cert_sha256: Option<[u8; 32]>,
            _unix_s: u64,
        ) -> Result<VerifiedPeer, InvalidPeer> {
            let find = |wanted| certs.iter().find(|(kind, _)| *kind == wanted).map(|(_, cert)| *cert);
            let name = *find(4).and_then(<[u8]>::first).ok_or(InvalidPeer("no certificate 4"))?;
            if tls_cert_sha256.is_some_and(|wanted| find(5) != Some(&wanted)) {
                return Err(InvalidPeer("no certificate 5"));
            }
            let auth_key = find(6).and_then(|key| key.try_into().ok());
            Ok(VerifiedPeer { ids: ids(name), rsa_key_sha256: [name; 32], auth_key })
        }
    }

    /// A TLS connection whose exporter is a digest.
    pub(crate) struct Tls;

    impl Tls {
        const CERT: &'static [u8] = b"certificate";
    }

    impl TlsBinding for Tls {
        fn responder_cert_der(&self) -> Option<&[u8]> {
            Some(Self::CERT)
        }

        fn export_auth_secret(&self, context: &[u8]) -> Result<[u8; 32], ChannelError> {
            let mut secret = [0; 32];
            secret.copy_from_slice(digest(&SHA256, context).as_ref());
            Ok(secret)
        }
    }
}
