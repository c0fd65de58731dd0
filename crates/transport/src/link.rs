//! The link handshake: what happens between the end of the TLS handshake and an open channel.
//!
//! tor-spec, "Negotiating and initializing connections"; the initiator is the TLS client.
//!
//! ```text
//!    initiator                                   responder
//! 1. VERSIONS                            ──▶
//! 2.                                     ◀──     VERSIONS
//! 3.                                     ◀──     CERTS
//! 4.                                     ◀──     AUTH_CHALLENGE
//! 5.                                     ◀──     NETINFO
//! 6. CERTS            (relays only)      ──▶
//! 7. AUTHENTICATE     (relays only)      ──▶
//! 8. NETINFO                             ──▶
//! ```
//!
//! The responder sends 2 to 5 as soon as it has 1. A relay sends 6 to 8 as soon as it has 4; a
//! client, which has no identity, sends 8 as soon as it has 3. The initiator is open after 5, the
//! responder after 8. VPADDING, AUTHORIZE and further VERSIONS may stand anywhere and are ignored;
//! any other cell out of its place closes the channel.

mod identity;
mod transcript;

pub use identity::{AuthSigner, InvalidPeer, LinkIdentity, PeerVerifier, VerifiedPeer};

use core::net::{IpAddr, SocketAddr};
use heddle_proto::cell::Command;
use heddle_proto::cell::frame::{self, Frame};
use heddle_proto::cell::link::{
    AUTH_ED25519_SHA256_RFC5705, AuthChallenge, AuthFields, Authenticate, Certs, Netinfo, Versions,
};
use heddle_proto::channel::{ChannelError, Opened, Role, Target};
use heddle_proto::ids::RelayIds;
use heddle_seam::rng::Rng;
use heddle_seam::time::UnixTime;
use std::sync::Arc;
use transcript::Transcript;

/// The link protocols that we speak: both have four-byte circuit ids.
pub(crate) const LINK_PROTOCOLS: &[u16] = &[4, 5];
/// Bytes of cells that a peer may send before the channel is open. A stock relay sends about 4 KB.
pub(crate) const HANDSHAKE_CELL_BYTES_MAX: usize = 64 * 1024;
/// More of a peer's addresses are dropped.
const PEER_ADDRS_MAX: usize = 8;

/// What the handshake needs of the TLS connection below.
pub trait TlsBinding {
    /// The certificate that the responder used for TLS, as DER.
    fn responder_cert_der(&self) -> Option<&[u8]>;

    /// 32 bytes of the TLS exporter (RFC 5705) under the label of AUTHENTICATE type 3.
    fn export_auth_secret(&self, context: &[u8]) -> Result<[u8; 32], ChannelError>;
}

/// What a step of the handshake may use of the world.
pub struct Context<'a> {
    pub tls: &'a dyn TlsBinding,
    pub wall: UnixTime,
    pub rng: &'a mut Rng,
    /// Cells to send are appended here, as plaintext.
    pub out: &'a mut Vec<u8>,
}

/// What stays the same during a handshake.
pub(crate) struct LinkConfig {
    /// Ours, or `None` for a client.
    pub identity: Option<Arc<LinkIdentity>>,
    pub verifier: Arc<dyn PeerVerifier>,
    /// A subset of [`LINK_PROTOCOLS`].
    pub link_protocols: Vec<u16>,
}

/// One side of one handshake.
pub(crate) struct LinkHandshake {
    config: Arc<LinkConfig>,
    /// Where the peer is, for NETINFO.
    peer_addr: IpAddr,
    /// Zero until VERSIONS came.
    link_protocol: u16,
    received_bytes: usize,
    sent: Transcript,
    received: Transcript,
    state: State,
}

/// What is awaited, in the order of the protocol.
enum State {
    /// Of the initiator: 2.
    VersionsOfResponder(Target),
    /// Of the initiator: 3.
    CertsOfResponder(Target),
    /// Of the initiator: 4, or 5 of a responder that wants no authentication.
    AuthChallenge(VerifiedPeer),
    /// Of the initiator: 5.
    NetinfoOfResponder(RelayIds),
    /// Of the responder: 1.
    VersionsOfInitiator,
    /// Of the responder: 6 of a relay, 8 of a client.
    CertsOfInitiator,
    /// Of the responder: 7, or 8 of a relay that knows no method of ours.
    Authenticate(VerifiedPeer),
    /// Of the responder: 8 of a relay.
    NetinfoOfRelay(RelayIds),
    /// Open, or failed.
    Over,
}

impl LinkHandshake {
    /// The initiator's side. It sends its first cell at once.
    pub(crate) fn initiate(
        config: Arc<LinkConfig>,
        target: Target,
        peer: SocketAddr,
        out: &mut Vec<u8>,
    ) -> Self {
        let mut handshake = Self::new(config, peer, State::VersionsOfResponder(target));
        handshake.send_versions(out);
        handshake
    }

    /// The responder's side. Its configuration has an identity, or the handshake fails.
    pub fn respond(config: Arc<LinkConfig>, peer: SocketAddr) -> Self {
        Self::new(config, peer, State::VersionsOfInitiator)
    }

    fn new(config: Arc<LinkConfig>, peer: SocketAddr, state: State) -> Self {
        LinkHandshake {
            config,
            peer_addr: peer.ip().to_canonical(),
            link_protocol: 0,
            received_bytes: 0,
            sent: Transcript::new(),
            received: Transcript::new(),
            state,
        }
    }

    /// Takes a cell; says what was found out when it was the last. After an error, and after the
    /// last cell, every further cell is an error.
    pub fn handle_cell(
        &mut self,
        cell: Frame<'_>,
        cx: &mut Context<'_>,
    ) -> Result<Option<Opened>, ChannelError> {
        self.received_bytes += cell.bytes.len();
        if self.received_bytes > HANDSHAKE_CELL_BYTES_MAX {
            return Err(ChannelError::PeerMisbehaved("too many bytes before NETINFO"));
        }
        // CLOG ends before AUTHENTICATE, which is the last cell that asks for a transcript.
        if cell.command != Command::AUTHENTICATE {
            self.received.add(cell.bytes);
        }
        if self.is_ignored(cell.command) {
            return Ok(None);
        }
        if cell.circ_id.is_some() {
            return Err(ChannelError::PeerMisbehaved("a circuit's cell before NETINFO"));
        }
        match (core::mem::replace(&mut self.state, State::Over), cell.command) {
            (State::VersionsOfResponder(target), Command::VERSIONS) => {
                self.learn_versions(cell.body)?;
                self.state = State::CertsOfResponder(target);
            }
            (State::CertsOfResponder(target), Command::CERTS) => {
                self.state = State::AuthChallenge(self.on_certs_of_responder(cell.body, &target, cx)?);
            }
            (State::AuthChallenge(peer), Command::AUTH_CHALLENGE) => {
                self.on_auth_challenge(cell.body, &peer, cx)?;
                self.state = State::NetinfoOfResponder(peer.ids);
            }
            (State::AuthChallenge(peer), Command::NETINFO) => {
                if self.config.identity.is_some() {
                    self.send_netinfo(cx);
                }
                return self.open(Role::Initiator, Some(peer.ids), cell.body, cx);
            }
            (State::NetinfoOfResponder(peer), Command::NETINFO) => {
                return self.open(Role::Initiator, Some(peer), cell.body, cx);
            }
            (State::VersionsOfInitiator, Command::VERSIONS) => {
                self.learn_versions(cell.body)?;
                self.introduce_ourselves(cx)?;
                self.state = State::CertsOfInitiator;
            }
            (State::CertsOfInitiator, Command::CERTS) => {
                self.state = State::Authenticate(self.verify_certs(cell.body, None, cx)?);
            }
            (State::CertsOfInitiator | State::Authenticate(_), Command::NETINFO) => {
                return self.open(Role::Responder, None, cell.body, cx);
            }
            (State::Authenticate(peer), Command::AUTHENTICATE) => {
                self.on_authenticate(cell.body, &peer, cx)?;
                self.state = State::NetinfoOfRelay(peer.ids);
            }
            (State::NetinfoOfRelay(peer), Command::NETINFO) => {
                return self.open(Role::Responder, Some(peer), cell.body, cx);
            }
            _ => {
                return Err(ChannelError::PeerMisbehaved("a cell out of its place before NETINFO"));
            }
        }
        Ok(None)
    }

    /// "Any VERSIONS cells sent after the first VERSIONS cell MUST be ignored."
    fn is_ignored(&self, command: Command) -> bool {
        match command {
            Command::VPADDING | Command::AUTHORIZE => true,
            Command::VERSIONS => self.link_protocol != 0,
            _ => false,
        }
    }

    /// "Both parties MUST select as the link protocol version the highest number contained both in
    /// the VERSIONS cell they sent and in the versions cell they received."
    fn learn_versions(&mut self, body: &[u8]) -> Result<(), ChannelError> {
        let theirs = Versions::parse(body).map_err(|_| ChannelError::PeerMisbehaved("malformed VERSIONS"))?;
        self.link_protocol = theirs
            .best_common(&self.config.link_protocols)
            .ok_or(ChannelError::PeerIncompatible("no common link protocol"))?;
        Ok(())
    }

    fn on_certs_of_responder(
        &mut self,
        body: &[u8],
        target: &Target,
        cx: &mut Context<'_>,
    ) -> Result<VerifiedPeer, ChannelError> {
        let peer = self.verify_certs(body, Some(responder_cert_digest(cx.tls)?), cx)?;
        let is_other = target.ed25519.is_some_and(|wanted| wanted != peer.ids.ed25519);
        if target.rsa != peer.ids.rsa || is_other {
            return Err(ChannelError::WrongIdentity);
        }
        if self.config.identity.is_none() {
            self.send_netinfo(cx);
        }
        Ok(peer)
    }

    /// "Initiators MUST NOT send an AUTHENTICATE cell before they have verified the certificates
    /// presented in the responder's CERTS cell": the type of `responder` says that it was done.
    fn on_auth_challenge(
        &mut self,
        body: &[u8],
        responder: &VerifiedPeer,
        cx: &mut Context<'_>,
    ) -> Result<(), ChannelError> {
        let challenge = AuthChallenge::parse(body)
            .map_err(|_| ChannelError::PeerMisbehaved("malformed AUTH_CHALLENGE"))?;
        let Some(ours) = self.config.identity.clone() else {
            return Ok(());
        };
        if challenge.methods.contains(&AUTH_ED25519_SHA256_RFC5705) {
            self.send_certs(&ours.initiator_certs, cx.out);
            self.send_authenticate(&ours, responder, cx)?;
        }
        self.send_netinfo(cx);
        Ok(())
    }

    fn on_authenticate(
        &mut self,
        body: &[u8],
        initiator: &VerifiedPeer,
        cx: &mut Context<'_>,
    ) -> Result<(), ChannelError> {
        let malformed = |_| ChannelError::PeerMisbehaved("malformed AUTHENTICATE");
        let auth = Authenticate::parse(body).and_then(|cell| cell.ed25519()).map_err(malformed)?;
        let key =
            initiator.auth_key.ok_or(ChannelError::PeerMisbehaved("CERTS without a key for AUTHENTICATE"))?;
        let ours = self.our_identity()?;
        let fields = AuthFields {
            initiator_rsa: initiator.rsa_key_sha256,
            responder_rsa: ours.rsa_key_sha256,
            initiator_ed25519: initiator.ids.ed25519.0,
            responder_ed25519: ours.ids.ed25519.0,
            responder_log: self.sent.digest(),
            initiator_log: self.received.digest(),
            responder_tls_cert: responder_cert_digest(cx.tls)?,
            tls_secrets: cx.tls.export_auth_secret(&initiator.rsa_key_sha256)?,
        };
        if !auth.matches(&fields) {
            return Err(ChannelError::PeerMisbehaved("AUTHENTICATE is about another channel"));
        }
        identity::verify_ed25519(&key, auth.signed, auth.signature)
            .map_err(|_| ChannelError::PeerMisbehaved("AUTHENTICATE is not signed by the peer"))
    }

    fn verify_certs(
        &self,
        body: &[u8],
        tls_cert_sha256: Option<[u8; 32]>,
        cx: &Context<'_>,
    ) -> Result<VerifiedPeer, ChannelError> {
        let certs = Certs::parse(body).map_err(|_| ChannelError::PeerMisbehaved("malformed CERTS"))?;
        let certs: Vec<(u8, &[u8])> =
            certs.list.iter().map(|(cert_type, cert)| (cert_type.0, *cert)).collect();
        self.config
            .verifier
            .verify_certs(&certs, tls_cert_sha256, cx.wall.as_secs())
            .map_err(|InvalidPeer(why)| ChannelError::PeerMisbehaved(why))
    }

    fn open(
        &self,
        role: Role,
        peer: Option<RelayIds>,
        body: &[u8],
        cx: &Context<'_>,
    ) -> Result<Option<Opened>, ChannelError> {
        let netinfo = Netinfo::parse(body).map_err(|_| ChannelError::PeerMisbehaved("malformed NETINFO"))?;
        let mut peer_addrs = netinfo.my_addrs;
        peer_addrs.truncate(PEER_ADDRS_MAX);
        let says_when = netinfo.timestamp_s != 0;
        let ahead_s = i64::try_from(cx.wall.as_secs()).unwrap_or(i64::MAX) - i64::from(netinfo.timestamp_s);
        Ok(Some(Opened {
            role,
            peer,
            peer_addrs,
            our_addr: netinfo.other_addr,
            clock_ahead_s: if says_when { ahead_s } else { 0 },
            link_protocol: self.link_protocol,
        }))
    }

    fn our_identity(&self) -> Result<Arc<LinkIdentity>, ChannelError> {
        self.config
            .identity
            .clone()
            .ok_or(ChannelError::PeerIncompatible("we are a client and accept no channel"))
    }

    /// Steps 2 to 5.
    fn introduce_ourselves(&mut self, cx: &mut Context<'_>) -> Result<(), ChannelError> {
        let ours = self.our_identity()?;
        self.send_versions(cx.out);
        self.send_certs(&ours.responder_certs, cx.out);
        let mut body = Vec::new();
        AuthChallenge { challenge: cx.rng.array(), methods: vec![AUTH_ED25519_SHA256_RFC5705] }
            .encode(&mut body);
        self.send_variable(Command::AUTH_CHALLENGE, &body, cx.out);
        self.send_netinfo(cx);
        Ok(())
    }

    fn send_versions(&mut self, out: &mut Vec<u8>) {
        let start = out.len();
        frame::write_versions(out, &self.config.link_protocols);
        self.sent.add(&out[start..]);
    }

    fn send_certs(&mut self, certs: &[(u8, Vec<u8>)], out: &mut Vec<u8>) {
        let list =
            certs.iter().map(|(cert_type, cert)| (heddle_proto::cell::link::CertType(*cert_type), &cert[..]));
        let mut body = Vec::new();
        Certs { list: list.collect() }.encode(&mut body);
        self.send_variable(Command::CERTS, &body, out);
    }

    fn send_authenticate(
        &mut self,
        ours: &LinkIdentity,
        responder: &VerifiedPeer,
        cx: &mut Context<'_>,
    ) -> Result<(), ChannelError> {
        let fields = AuthFields {
            initiator_rsa: ours.rsa_key_sha256,
            responder_rsa: responder.rsa_key_sha256,
            initiator_ed25519: ours.ids.ed25519.0,
            responder_ed25519: responder.ids.ed25519.0,
            responder_log: self.received.digest(),
            initiator_log: self.sent.digest(),
            responder_tls_cert: responder_cert_digest(cx.tls)?,
            tls_secrets: cx.tls.export_auth_secret(&ours.rsa_key_sha256)?,
        };
        let mut authentication = fields.signed_part(&cx.rng.array()).to_vec();
        let signature = (ours.auth_signer)(&authentication);
        authentication.extend_from_slice(&signature);
        let mut body = Vec::new();
        Authenticate { auth_type: AUTH_ED25519_SHA256_RFC5705, authentication: &authentication }
            .encode(&mut body);
        self.send_variable(Command::AUTHENTICATE, &body, cx.out);
        Ok(())
    }

    /// "Clients SHOULD send "0" as their timestamp, to avoid fingerprinting"; they also keep their
    /// addresses to themselves.
    fn send_netinfo(&self, cx: &mut Context<'_>) {
        let other_addr = Some(self.peer_addr);
        let netinfo = match &self.config.identity {
            Some(ours) => Netinfo {
                timestamp_s: u32::try_from(cx.wall.as_secs()).unwrap_or(u32::MAX),
                other_addr,
                my_addrs: ours.addrs.clone(),
            },
            None => Netinfo { timestamp_s: 0, other_addr, my_addrs: Vec::new() },
        };
        let mut body = Vec::new();
        netinfo.encode(&mut body);
        frame::write_fixed(cx.out, 0, Command::NETINFO, &body);
    }

    fn send_variable(&mut self, command: Command, body: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        frame::write_variable(out, 0, command, body);
        self.sent.add(&out[start..]);
    }
}

fn responder_cert_digest(tls: &dyn TlsBinding) -> Result<[u8; 32], ChannelError> {
    let cert = tls.responder_cert_der().ok_or(ChannelError::PeerMisbehaved("no TLS certificate"))?;
    Ok(transcript::sha256(cert))
}

#[cfg(test)]
mod tests;
