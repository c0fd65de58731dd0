//! What the tests share: relays with real keys and certificates.

#![allow(dead_code)]
// The crate knows no sockets and clocks; its tests are drivers, which do.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use heddle_control::Judge;
use heddle_dir::certs::{ChannelCerts, ChannelSide};
use heddle_dir::keys::{KeyOptions, RelayKeys};
use heddle_proto::channel::{Channel, ChannelError};
use heddle_proto::ids::{Ed25519Id, RelayIds, RsaId};
use heddle_seam::rng::{Repeatable, Seed};
use heddle_seam::time::Instant;
use heddle_transport::link::LinkIdentity;
use heddle_transport::tls::{TlsIdentity, TlsKey, TlsOptions, TlsTransport};
use std::sync::Arc;
use tempfile::TempDir;

mod anybody;
pub mod client;
pub mod stock;

/// A relay's identity with new keys and certificates, which are valid at that time.
pub fn relay_identity(seed: u64, unix_s: u64) -> TlsIdentity {
    let dir = TempDir::new().unwrap();
    let mut rng = Seed::from_number(seed).rng();
    let options = KeyOptions::new(dir.path(), "heddle");
    let keys = RelayKeys::load_or_create(options, unix_s, &mut rng).unwrap();
    let certs = Arc::new(ChannelCerts::create(&keys, unix_s, &mut rng).unwrap());
    let owned = |side| certs.certs_cell(side).iter().map(|(t, cert)| (*t, cert.to_vec())).collect();
    let signer = certs.clone();
    TlsIdentity {
        link: LinkIdentity {
            ids: RelayIds { rsa: RsaId(keys.rsa_id()), ed25519: Ed25519Id(keys.ed25519_id()) },
            rsa_key_sha256: certs.rsa_key_sha256(),
            responder_certs: owned(ChannelSide::Responder),
            initiator_certs: owned(ChannelSide::Initiator),
            auth_signer: Arc::new(move |message| signer.sign_authenticate(message)),
            addrs: vec![[127, 0, 0, 1].into()],
        },
        key: TlsKey {
            private_key_der: certs.tls_key_pkcs8().to_vec().into(),
            cert_der: certs.tls_cert_der().to_vec(),
        },
    }
}

/// Memory of this process that is in use.
pub fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}

/// Does at once what a channel leaves to workers.
pub fn work_off(channel: &mut dyn Channel, now: Instant) -> Result<(), ChannelError> {
    while let Some(work) = channel.poll_work() {
        channel.handle_work(now, work())?;
    }
    Ok(())
}

pub fn transport(options: TlsOptions, identity: Option<TlsIdentity>, seed: u64) -> TlsTransport {
    let entropy = Box::new(Repeatable::new(&Seed::from_number(seed)));
    TlsTransport::new(options, identity, Arc::new(Judge), entropy).unwrap()
}
