//! Stock Tor's transport: all circuits of two relays in one TLS connection over one TCP stream.
//!
//! It isolates nothing: one lost packet, one full window or one reader that stops holds back every
//! circuit of the channel.

mod channel;
mod config;
pub mod fuzz;
mod hello;
mod plaintext;
mod record;
mod refused;
mod rounds;
mod signatures;
mod signing;
mod stream;

pub use channel::TlsChannel;

use crate::link::{LINK_PROTOCOLS, LinkConfig, LinkIdentity, PeerVerifier};
use crate::{Ciphers, PaddingOptions};
use channel::{Setup, Side};
use config::WallClock;
use core::fmt;
use core::net::SocketAddr;
use heddle_proto::channel::{Channel, ChannelError, StreamTransport, Target};
use heddle_proto::transport::{Isolation, Scope, Transport, TransportId};
use heddle_seam::rng::{Entropy, Rng};
use heddle_seam::time::{Duration, Instant, UnixTime};
use hello::HelloGate;
use refused::Refused;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use signatures::Signatures;
use std::sync::Arc;
use stream::TlsStream;
use zeroize::Zeroizing;

/// What may be chosen about TLS channels.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// From the TCP connection to the open channel; a peer that takes longer is given up. A
    /// circuit that waits for the channel is given up by its client after about as long, so more
    /// patience would serve nobody.
    pub handshake_timeout: Duration,
    pub padding: PaddingOptions,
    /// The link protocols offered, of `LINK_PROTOCOLS`.
    pub link_protocols: Vec<u16>,
    /// Whether to speak TLS 1.3 besides 1.2, as stock relays do.
    pub tls13: bool,
    pub ciphers: Ciphers,
}

impl Default for TlsOptions {
    fn default() -> Self {
        TlsOptions {
            handshake_timeout: Duration::from_secs(60),
            padding: PaddingOptions::default(),
            link_protocols: LINK_PROTOCOLS.to_vec(),
            tls13: true,
            ciphers: Ciphers::default(),
        }
    }
}

/// The key of a relay's TLS connections.
#[derive(Clone)]
pub struct TlsKey {
    /// RSA with 2048 bits, which is what stock peers expect; PKCS#1 or PKCS#8 DER.
    pub private_key_der: Zeroizing<Vec<u8>>,
    /// X.509 DER of that key. The certificate of type 5 in
    /// [`LinkIdentity::responder_certs`] vouches for exactly these bytes.
    pub cert_der: Vec<u8>,
}

impl fmt::Debug for TlsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsKey(..)")
    }
}

/// What a relay is on its TLS channels. A client has none.
#[derive(Clone, Debug)]
pub struct TlsIdentity {
    pub link: LinkIdentity,
    pub key: TlsKey,
}

/// Makes TLS channels; see the module.
pub struct TlsTransport {
    options: TlsOptions,
    link: Arc<LinkConfig>,
    client: Arc<ClientConfig>,
    server: Option<(Arc<ServerConfig>, Vec<u8>)>,
    clock: Arc<WallClock>,
    signatures: Signatures,
    entropy: Box<dyn Entropy>,
}

impl TlsTransport {
    /// A relay's transport with an identity, a client's without. Fails when rustls refuses the key
    /// or the versions. AUTH_CHALLENGE comes of `entropy`: "responders MUST generate every challenge independently".
    pub fn new(
        options: TlsOptions,
        identity: Option<TlsIdentity>,
        verifier: Arc<dyn PeerVerifier>,
        entropy: Box<dyn Entropy>,
    ) -> Result<Self, TlsSetupError> {
        let clock = Arc::new(WallClock::default());
        let client = config::client(&options, clock.clone()).map_err(TlsSetupError)?;
        let server = match &identity {
            Some(identity) => {
                let server = config::server(&options, &identity.key, clock.clone()).map_err(TlsSetupError)?;
                Some((Arc::new(server), identity.key.cert_der.clone()))
            }
            None => None,
        };
        let link = LinkConfig {
            identity: identity.map(|identity| Arc::new(identity.link)),
            verifier,
            link_protocols: options.link_protocols.clone(),
        };
        let (link, client, signatures) = (Arc::new(link), Arc::new(client), Signatures::default());
        Ok(TlsTransport { options, link, client, server, clock, signatures, entropy })
    }

    fn channel(
        &mut self,
        now: Instant,
        wall: UnixTime,
        side: Side,
        connect: impl FnOnce(&Self, &mut Rng) -> Result<TlsStream, ChannelError>,
    ) -> Box<dyn Channel> {
        self.clock.set(wall);
        let mut rng = self.entropy.rng();
        match connect(self, &mut rng) {
            Ok(stream) => {
                let (link, clock) = (self.link.clone(), self.clock.clone());
                let setup = Setup { now, wall, link, clock, rng, options: &self.options };
                Box::new(TlsChannel::new(side, stream, setup))
            }
            Err(error) => Box::new(Refused { error, since: now }),
        }
    }
}

/// What it is to relays.
pub static TRANSPORT: Transport = Transport {
    name: "tls",
    id: TransportId::TLS,
    isolation: Isolation {
        ordering: Scope::Channel,
        congestion: Scope::Channel,
        backpressure: Scope::Channel,
    },
};

impl StreamTransport for TlsTransport {
    fn transport(&self) -> &'static Transport {
        &TRANSPORT
    }

    fn accept(
        &mut self,
        now: Instant,
        wall: UnixTime,
        _local: SocketAddr,
        peer: SocketAddr,
    ) -> Box<dyn Channel> {
        self.channel(now, wall, Side::Responder { peer }, |transport, _| {
            let (config, cert_der) =
                transport.server.as_ref().ok_or(ChannelError::PeerIncompatible("we are a client"))?;
            let connection = ServerConnection::new(config.clone()).map_err(|error| tls_error(&error))?;
            let gate = HelloGate::new(transport.signatures.clone(), peer);
            Ok(TlsStream::server(connection, gate, cert_der.clone()))
        })
    }

    fn dial(&mut self, now: Instant, wall: UnixTime, target: &Target, peer: SocketAddr) -> Box<dyn Channel> {
        self.channel(now, wall, Side::Initiator { peer, target: target.clone() }, |transport, rng| {
            let name = config::random_server_name(rng);
            let connection =
                ClientConnection::new(transport.client.clone(), name).map_err(|error| tls_error(&error))?;
            Ok(TlsStream::client(connection))
        })
    }
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsTransport").field("options", &self.options).finish_non_exhaustive()
    }
}

/// rustls refuses the link key, its certificate or the TLS versions; our own fault.
#[derive(Debug)]
pub struct TlsSetupError(rustls::Error);

impl fmt::Display for TlsSetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS cannot be set up: {}", self.0)
    }
}

impl core::error::Error for TlsSetupError {}

fn tls_error(error: &rustls::Error) -> ChannelError {
    ChannelError::Tls(error.to_string())
}
