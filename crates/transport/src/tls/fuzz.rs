//! Bodies of fuzz targets of a responder: strangers' bytes in place of TLS, and in TLS behind a real handshake.
//!
//! The key and its certificate, `fuzz/*.pem`, are nobody's.

use super::config::{self, WallClock};
use super::{TlsIdentity, TlsKey, TlsOptions, TlsTransport};
use crate::fuzz::plain;
use heddle_proto::cell::{CELL_LEN, Command};
use heddle_proto::channel::{Channel, ChannelError, Incoming, StreamTransport};
use heddle_seam::rng::{Repeatable, Seed};
use heddle_seam::time::{Instant, UnixTime};
use rustls::ClientConnection;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::io::Write;
use std::sync::Arc;

/// VERSIONS and NETINFO of a client (tor-spec, "Negotiating versions" and "NETINFO cells").
const VERSIONS: &[u8] = &[0, 0, 7, 0, 4, 0, 4, 0, 5];
const NETINFO: &[u8] = &[0, 0, 0, 0, 8, 0, 0, 0, 0, 4, 4, 127, 0, 0, 1, 0];
/// The shortest record of a cut stream; shorter ones cost time and no more.
const RECORD_LEN_MIN: usize = 32;

/// What a channel lends: the circuit, the command and the body of a cell, or of VPADDING. That it is open is a NETINFO
/// cell without a body.
type Got = (u32, u8, Vec<u8>);

/// A responder's channel whose peer sends these bytes instead of TLS. Nothing of it is a cell.
pub fn tls_responder(bytes: &[u8]) {
    let mut channel = responder();
    let mut got = Vec::new();
    for piece in bytes.chunks(1 + bytes.len() / 3) {
        if receive(&mut *channel, piece, &mut got).is_err() {
            break;
        }
        transmit(&mut *channel);
    }
    assert!(got.is_empty(), "{got:?} without a handshake");
}

/// A responder's channel that a client has opened and then sends these bytes on, inside TLS. The first one says how
/// they are cut into records, which changes nothing.
pub fn tls_open(bytes: &[u8]) {
    let Some((cut, plaintext)) = bytes.split_first() else { return };
    let whole = Opened::new().receive_plaintext(plaintext, usize::MAX);
    let pieces = Opened::new().receive_plaintext(plaintext, RECORD_LEN_MIN + usize::from(*cut));
    assert_eq!(whole, pieces);
}

/// The first bytes of an honest initiator.
pub fn client_hello() -> Vec<u8> {
    let mut hello = Vec::new();
    // A vector takes everything.
    let _ = client().write_tls(&mut hello);
    hello
}

fn responder() -> Box<dyn Channel> {
    let private_key = PrivateKeyDer::from_pem_slice(include_bytes!("fuzz/key.pem")).expect("it is a key");
    let cert = CertificateDer::from_pem_slice(include_bytes!("fuzz/cert.pem")).expect("it is a certificate");
    let key = TlsKey {
        private_key_der: private_key.secret_der().to_vec().into(),
        cert_der: cert.as_ref().to_vec(),
    };
    let identity = TlsIdentity { link: plain::identity(plain::RESPONDER), key };
    let entropy = Box::new(Repeatable::new(&Seed::from_number(2)));
    let transport =
        TlsTransport::new(TlsOptions::default(), Some(identity), Arc::new(plain::Verifier), entropy);
    let mut transport = transport.expect("the key is the certificate's");
    transport.accept(Instant::ZERO, UnixTime { ns: 0 }, plain::ADDR, plain::ADDR)
}

fn client() -> ClientConnection {
    let config = config::client(&TlsOptions::default(), Arc::new(WallClock::default()));
    let name = ServerName::try_from("www.example.com").expect("it is a name");
    ClientConnection::new(Arc::new(config.expect("the options are good")), name).expect("the name is one")
}

/// Hands bytes of the wire to a channel, which puts what it lends into `got`.
fn receive(channel: &mut dyn Channel, mut bytes: &[u8], got: &mut Vec<Got>) -> Result<(), ChannelError> {
    while !bytes.is_empty() {
        let taken = channel.handle_read(Instant::ZERO, bytes)?;
        assert!(taken > 0, "nothing that came before is unread, and yet there is no room");
        bytes = &bytes[taken..];
        while let Some(work) = channel.poll_work() {
            channel.handle_work(Instant::ZERO, work())?;
        }
        while let Some(incoming) = channel.next_incoming(Instant::ZERO)? {
            match incoming {
                Incoming::Cell { circ_id, command, body } => {
                    got.push((circ_id.get(), command.0, body.to_vec()))
                }
                Incoming::Vpadding { body } => got.push((0, Command::VPADDING.0, body.to_vec())),
                Incoming::Opened(_) => got.push((0, Command::NETINFO.0, Vec::new())),
            }
        }
    }
    Ok(())
}

fn transmit(channel: &mut dyn Channel) -> Vec<u8> {
    let mut out = Vec::new();
    channel.handle_writable(Instant::ZERO, 1 << 16);
    channel.poll_transmit(Instant::ZERO, &mut out);
    out
}

/// A responder's channel that is open, and the client's end of TLS.
struct Opened {
    channel: Box<dyn Channel>,
    tls: ClientConnection,
}

impl Opened {
    fn new() -> Self {
        let mut opened = Opened { channel: responder(), tls: client() };
        // Each side speaks twice at most (RFC 8446, section 2).
        for _ in 0..3 {
            opened.exchange(&mut Vec::new()).expect("an honest client's");
        }
        let mut hello = VERSIONS.to_vec();
        hello.extend_from_slice(NETINFO);
        hello.resize(VERSIONS.len() + CELL_LEN, 0);
        let got = opened.receive_plaintext(&hello, usize::MAX);
        assert_eq!(got, (vec![(0, Command::NETINFO.0, Vec::new())], None));
        opened
    }

    /// What each side has to say goes to the other; what the channel lends goes into `got`.
    fn exchange(&mut self, got: &mut Vec<Got>) -> Result<(), ChannelError> {
        let mut wire = Vec::new();
        while self.tls.wants_write() {
            // A vector takes everything.
            let _ = self.tls.write_tls(&mut wire);
        }
        receive(&mut *self.channel, &wire, got)?;
        let answer = transmit(&mut *self.channel);
        let mut answer = &answer[..];
        while !answer.is_empty() {
            self.tls.read_tls(&mut answer).expect("a slice has what it has");
            self.tls.process_new_packets().expect("our own TLS is good");
        }
        Ok(())
    }

    /// What the channel makes of plaintext, and how it ends if it does.
    fn receive_plaintext(&mut self, plaintext: &[u8], record_len: usize) -> (Vec<Got>, Option<ChannelError>) {
        let mut got = Vec::new();
        for record in plaintext.chunks(record_len) {
            self.tls.writer().write_all(record).expect("rustls buffers it");
            if let Err(error) = self.exchange(&mut got) {
                return (got, Some(error));
            }
        }
        (got, None)
    }
}
