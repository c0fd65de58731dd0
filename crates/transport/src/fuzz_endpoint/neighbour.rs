//! A neighbour whose keys and proof are right, and behind them records of any contents.

use super::street::{Neighbour, Street, contents, pause};
use super::{Fuzzed, connection};
use crate::connections::Token;
use crate::connections::proof::{KEY_LEN, Proofs};
use crate::dtls::control::{self, Control};
use crate::dtls::engine::{Engine, News};
use crate::dtls::ids::{SessionId, session_ids};
use crate::dtls::key::OurKey;
use crate::dtls::options::SessionOptions;
use crate::{sctp_dtls, shared_tcp, tcp_dtls};
use core::time::Duration;
use heddle_proto::channel::Role;
use heddle_proto::endpoint::PairSecrets;
use heddle_seam::time::Instant;
use std::collections::VecDeque;
use zeroize::Zeroizing;

/// The longest datagram that it says it has seen.
const SEEN_BYTES: u16 = 1300;

/// The dialler of a DTLS session.
struct Dialler {
    engine: Engine,
    proofs: Proofs,
    certificate: Option<[u8; KEY_LEN]>,
    token: Token,
    id: SessionId,
    has_heard: bool,
    /// Contents of records that are to be sent.
    outbox: VecDeque<Vec<u8>>,
}

/// Records of any contents, pauses, and what our relay does meanwhile. Transports without a DTLS session have none.
pub fn records(fuzzed: Fuzzed, anchor: std::time::Instant, mut script: &[u8]) {
    let ours = fuzzed.endpoint(anchor, 1);
    let protocol = match fuzzed {
        Fuzzed::Dtls => tcp_dtls::PROTOCOL,
        Fuzzed::Sctp => sctp_dtls::PROTOCOL,
        Fuzzed::Imux | Fuzzed::Torchestra => shared_tcp::protocol(ours.transport().name),
        Fuzzed::Quic | Fuzzed::PerCircuit => return,
    };
    let key = OurKey::new(protocol, &Zeroizing::new([2; KEY_LEN])).expect("every seed makes a key");
    let dialler = Dialler::new(anchor, &key, ours.public_key());
    let mut street = Street::new(ours, connection(Role::Responder, key.public()), dialler);
    street.run(Duration::from_millis(200));
    // Others have something to agree on first, which the script may say.
    assert!(street.is_ready || fuzzed != Fuzzed::Dtls, "both are who they should be");
    while let Some((&what, rest)) = script.split_first()
        && !street.is_over
    {
        script = rest;
        match what % 8 {
            0..5 => {
                street.neighbour.outbox.extend(contents(&mut script));
                street.exchange_all();
            }
            5 => street.run(pause(what)),
            _ => {
                let Some((&act, rest)) = script.split_first() else { break };
                script = rest;
                street.act(act);
            }
        }
    }
    street.end();
}

impl Dialler {
    fn new(anchor: std::time::Instant, key: &OurKey, listener: [u8; KEY_LEN]) -> Self {
        const GOOD: &str = "the defaults are good";
        let options = SessionOptions::new(anchor);
        let mut engine = Engine::new(Instant::ZERO, Role::Initiator, key, &options, 3).expect(GOOD);
        // It says its hello, which waits among the records.
        assert!(engine.poll().is_none());
        let secrets = connection(Role::Initiator, listener).secrets;
        let id = session_ids(&secrets)[0];
        let PairSecrets { token, dialler_proof, listener_proof } = secrets;
        let proofs = key.proofs(Role::Initiator, listener, [dialler_proof, listener_proof]);
        let (certificate, has_heard, outbox) = (None, false, VecDeque::new());
        Dialler { engine, proofs, certificate, token, id, has_heard, outbox }
    }

    fn on_contents(&mut self, end: usize) {
        let contents = self.engine.contents(end);
        if !control::is_control(contents) {
            return;
        }
        match control::parse(contents) {
            Some(Control::Proof(_)) => self.outbox.push_back(control::seen(SEEN_BYTES)),
            Some(Control::Ping { number }) => self.outbox.push_back(control::pong(number)),
            _ => {}
        }
    }
}

impl Neighbour for Dialler {
    fn handle(&mut self, now: Instant, datagram: &[u8]) {
        self.has_heard = true;
        let records = datagram.get(self.id.len()..).unwrap_or_default();
        self.engine.handle_records(now, records).expect("an honest side's records");
        while let Some(news) = self.engine.poll() {
            match news {
                News::Certificate(fingerprint) => self.certificate = Some(fingerprint),
                News::Connected => {
                    let certificate = self.certificate.expect("it was shown");
                    self.outbox.push_back(control::proof(&self.proofs, &certificate, 1000, 0));
                }
                News::Contents { end } => self.on_contents(end),
                News::Closed => {}
            }
        }
    }

    fn poll_datagram(&mut self, _: Instant) -> Option<Vec<u8>> {
        let mut datagram = if self.has_heard { self.id.to_vec() } else { self.token.to_vec() };
        if let Some(records) = self.engine.poll_records() {
            datagram.extend_from_slice(&records);
            return Some(datagram);
        }
        let contents = self.outbox.pop_front()?;
        self.engine.seal(&contents, &mut datagram).expect("the handshake is over");
        Some(datagram)
    }

    /// Nothing is lost on the way, so it repeats nothing.
    fn poll_timeout(&mut self) -> Option<Instant> {
        None
    }
}
