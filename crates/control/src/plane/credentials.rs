//! Who the relay is: its keys and certificates, their renewal, and what shards show of them.

use crate::shown::{Shown, transport};
use heddle_dir::certs::ChannelCerts;
use heddle_dir::files::Files;
use heddle_dir::keys::{KeyError, OnionKeyLifetimes, RelayKeys, SigningRenewal};
use heddle_proto::channel::Target;
use heddle_proto::crypto::{NtorKeypair, OnionKeys};
use heddle_proto::ids::{Ed25519Id, RsaId};
use heddle_proto::params::NetworkParams;
use heddle_relay::Control;
use heddle_seam::rng::Entropy;
use heddle_transport::PaddingOptions;
use heddle_transport::tls::TlsOptions;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Who the relay is, and where that is kept.
pub struct Identity {
    pub keys: RelayKeys,
    pub certs: Arc<ChannelCerts>,
    pub files: Arc<dyn Files>,
}

pub(crate) struct Credentials {
    keys: RelayKeys,
    certs: Arc<ChannelCerts>,
    /// Seeds of keys, each for one use.
    entropy: Box<dyn Entropy>,
    /// What NETINFO names.
    addrs: Vec<IpAddr>,
    padding: PaddingOptions,
}

/// What has to be told after a renewal, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// Shards: there are other onion keys to answer with.
    pub onion_keys: bool,
    /// Shards: channels from now on show other certificates.
    pub transports: bool,
    /// Authorities: the descriptor says something new.
    pub descriptor: bool,
}

impl Credentials {
    pub fn new(identity: Identity, addrs: Vec<IpAddr>, entropy: Box<dyn Entropy>) -> Self {
        Credentials {
            keys: identity.keys,
            certs: identity.certs,
            entropy,
            addrs,
            padding: PaddingOptions::default(),
        }
    }

    pub fn keys(&self) -> &RelayKeys {
        &self.keys
    }

    #[cfg(test)]
    pub fn certs(&self) -> &ChannelCerts {
        &self.certs
    }

    pub fn rsa_id(&self) -> [u8; 20] {
        self.keys.rsa_id()
    }

    pub fn signing_expires_unix_s(&self) -> u64 {
        self.keys.signing_expires_unix_s()
    }

    /// Ourselves, as others extend circuits to us.
    pub fn target(&self, advertised: &[SocketAddr]) -> Target {
        Target {
            rsa: RsaId(self.keys.rsa_id()),
            ed25519: Some(Ed25519Id(self.keys.ed25519_id())),
            addrs: advertised.to_vec(),
        }
    }

    /// Renews what is due.
    pub fn renew(&mut self, now_unix_s: u64, params: &NetworkParams) -> Renewed {
        let lifetimes = OnionKeyLifetimes::from_params(&params.0);
        let renewal = self.keys.renew(now_unix_s, lifetimes, &mut self.entropy.rng());
        self.warn_of_master_key(now_unix_s);
        let signing_changed = or_log(renewal.signing.map(|signing| signing == SigningRenewal::Renewed));
        let onion_rotated = or_log(renewal.onion_rotated);
        let onion_expired = or_log(renewal.onion_expired);
        // Also when keys could not be written: without valid certificates nobody opens a channel to us.
        let certs_due = signing_changed || self.certs.renewal_due(now_unix_s);
        Renewed {
            onion_keys: onion_rotated || onion_expired,
            transports: certs_due && self.renew_certs(now_unix_s),
            descriptor: onion_rotated || signing_changed,
        }
    }

    /// Without the master key here nobody but the operator can replace a signing key that is about to end.
    pub(crate) fn warn_of_master_key(&self, now_unix_s: u64) {
        if !self.keys.needs_signing_key(now_unix_s) {
            return;
        }
        let left_s = self.keys.signing_expires_unix_s().saturating_sub(now_unix_s);
        log::warn!(
            "The signing key ends in {} hours, and the relay with it: make a new one with `tor --keygen` where the \
             master key is, and put ed25519_signing_cert and ed25519_signing_secret_key into {}",
            left_s / 3600,
            self.keys.directory().display()
        );
    }

    /// Takes what NETINFO names.
    pub(crate) fn set_addrs(&mut self, addrs: Vec<IpAddr>) {
        self.addrs = addrs;
    }

    /// Takes how channels are padded, and says whether that is another way than before.
    pub(crate) fn set_padding(&mut self, padding: PaddingOptions) -> bool {
        let changed = padding != self.padding;
        self.padding = padding;
        changed
    }

    /// The keys that a shard answers onionskins with.
    pub fn onion_keys(&self) -> Option<Control> {
        let mut pairs = self.keys.ntor_keys().into_iter().map(|key| NtorKeypair::from_secret(&key.secret));
        let keys = OnionKeys {
            rsa_id: self.keys.rsa_id(),
            ed25519_id: self.keys.ed25519_id(),
            ntor_current: pairs.next()?,
            ntor_previous: pairs.next(),
        };
        Some(Control::OnionKeys(Arc::new(keys)))
    }

    /// How a shard's channels are made from now on; those that are open go on as they are.
    pub fn transport(&mut self) -> Option<Control> {
        let shown = Shown { keys: &self.keys, certs: &self.certs, addrs: &self.addrs };
        let options = TlsOptions { padding: self.padding.clone(), ..TlsOptions::default() };
        match transport(&shown, options, self.entropy.branch()) {
            Ok(transport) => Some(Control::Transport(Box::new(transport))),
            Err(error) => {
                log::error!("New channels are made as before: {error}");
                None
            }
        }
    }

    fn renew_certs(&mut self, now_unix_s: u64) -> bool {
        match ChannelCerts::create(&self.keys, now_unix_s, &mut self.entropy.rng()) {
            Ok(certs) => self.certs = Arc::new(certs),
            Err(error) => {
                log::error!("Link certificates could not be renewed: {error}");
                return false;
            }
        }
        true
    }
}

/// Whether something changed; nothing did when that failed, and then the present keys stay.
fn or_log(changed: Result<bool, KeyError>) -> bool {
    changed.unwrap_or_else(|error| {
        log::error!("Keys could not be renewed: {error}");
        false
    })
}
