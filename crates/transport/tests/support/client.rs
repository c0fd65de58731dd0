//! The client's end of a channel, whose records a test may seal by hand: rustls sends nothing that it would not take.

use super::anybody::Anybody;
use heddle_proto::cell::{Command, frame};
use heddle_proto::channel::{Channel, ChannelError, Incoming};
use heddle_seam::time::Instant;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ConnectionTrafficSecrets};
use std::io::Write;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// NETINFO of a client: no time, and an address of each side (tor-spec, "NETINFO cells").
const NETINFO: &[u8] = &[0, 0, 0, 0, 4, 4, 127, 0, 0, 1, 0];

/// A handshake message's records are of this type inside TLS 1.3 (RFC 8446, section 5.1).
pub const HANDSHAKE: u8 = 22;
pub const APPLICATION_DATA: u8 = 23;

/// Seals records of TLS 1.3.
pub struct Sealer {
    key: LessSafeKey,
    iv: Vec<u8>,
    sequence: u64,
}

impl Sealer {
    /// A record of a type that TLS 1.3 encrypts (RFC 8446, sections 5.2 and 5.3).
    pub fn record(&mut self, content_type: u8, content: &[u8]) -> Vec<u8> {
        let mut sealed = [content, &[content_type]].concat();
        let len = sealed.len() + AES_256_GCM.tag_len();
        let header = [APPLICATION_DATA, 3, 3, (len >> 8) as u8, len as u8];
        let mut nonce: [u8; 12] = self.iv[..].try_into().expect("GCM's nonce has 12 bytes");
        nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()).for_each(|(byte, n)| *byte ^= n);
        self.sequence += 1;
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce, Aad::from(header), &mut sealed).expect("it is short");
        [&header[..], &sealed].concat()
    }
}

/// Opens a responder's channel as a client does.
pub fn open(channel: &mut dyn Channel, now: Instant) -> Sealer {
    let mut opened = false;
    let sealer = open_over(|bytes| {
        opened |= read(channel, now, bytes).expect("nothing is wrong yet");
        let mut answer = Vec::new();
        channel.handle_writable(now, 64 << 10);
        channel.poll_transmit(now, &mut answer);
        answer
    });
    assert!(opened, "the channel opens");
    sealer
}

/// The same of whatever answers bytes with bytes.
pub fn open_over(mut exchange: impl FnMut(&[u8]) -> Vec<u8>) -> Sealer {
    let mut provider = default_provider();
    provider.cipher_suites = vec![rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384];
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the suite is of TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth();
    config.enable_secret_extraction = true;
    let name = ServerName::try_from("www.example.com").expect("it is a name");
    let mut tls = ClientConnection::new(Arc::new(config), name).expect("the options are good");
    while tls.is_handshaking() {
        pass(&mut tls, &mut exchange);
    }
    let mut hello = Vec::new();
    frame::write_versions(&mut hello, &[4, 5]);
    frame::write_fixed(&mut hello, 0, Command::NETINFO, NETINFO);
    tls.writer().write_all(&hello).expect("it has room");
    pass(&mut tls, &mut exchange);
    let secrets = tls.dangerous_extract_secrets().expect("the handshake is over");
    let (sequence, ConnectionTrafficSecrets::Aes256Gcm { key, iv }) = secrets.tx else {
        panic!("another suite");
    };
    let key = UnboundKey::new(&AES_256_GCM, key.as_ref()).expect("a key of that length");
    Sealer { key: LessSafeKey::new(key), iv: iv.as_ref().to_vec(), sequence }
}

/// Hands over all bytes; returns whether the channel opened with them.
pub fn read(channel: &mut dyn Channel, now: Instant, mut bytes: &[u8]) -> Result<bool, ChannelError> {
    let mut opened = false;
    while !bytes.is_empty() {
        let taken = channel.handle_read(now, bytes)?;
        bytes = &bytes[taken..];
        super::work_off(channel, now)?;
        while let Some(incoming) = channel.next_incoming(now)? {
            opened |= matches!(incoming, Incoming::Opened(_));
        }
    }
    Ok(opened)
}

fn pass(tls: &mut ClientConnection, exchange: &mut impl FnMut(&[u8]) -> Vec<u8>) {
    let mut sent = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut sent).expect("a vector takes everything");
    }
    let answer = exchange(&sent);
    let mut rest = &answer[..];
    while !rest.is_empty() {
        tls.read_tls(&mut rest).expect("a slice can be read");
        tls.process_new_packets().expect("the channel speaks TLS");
    }
}
