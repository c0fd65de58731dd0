//! The renewal of keys and certificates.

use super::ControlPlane;
use crate::language::Wanted;
use heddle_assembly::{Shown, transport};
use heddle_dir::certs::ChannelCerts;
use heddle_dir::keys::{KeyError, OnionKeyLifetimes, SigningRenewal};
use heddle_proto::crypto::{NtorKeypair, OnionKeys};
use heddle_relay::Control;
use std::net::SocketAddr;
use std::sync::Arc;

/// How long before its end we warn of a signing key that we cannot replace.
const WARN_OF_MASTER_KEY_S: u64 = 7 * 24 * 3600;

impl ControlPlane {
    pub(super) fn renew(&mut self, now_unix_s: u64) {
        self.renewed_unix_s = now_unix_s;
        let params = self.directory.consensus().map(|consensus| consensus.params.clone()).unwrap_or_default();
        let lifetimes = OnionKeyLifetimes::from_params(&params);
        let renewal = self.identity.keys.renew(now_unix_s, lifetimes, &mut self.entropy.rng());
        let expires_unix_s = self.identity.keys.signing_expires_unix_s();
        self.tell_facts(|facts| facts.signing_expires_unix_s = expires_unix_s);
        self.warn_of_master_key(now_unix_s);
        let signing_changed = or_log(renewal.signing.map(|signing| signing == SigningRenewal::Renewed));
        let onion_rotated = or_log(renewal.onion_rotated);
        if or_log(renewal.onion_expired) || onion_rotated {
            self.tell_onion_keys();
        }
        if onion_rotated || signing_changed {
            self.schedule.on_change();
        }
        // Also when keys could not be written: without valid certificates nobody opens a channel to us.
        if signing_changed || self.identity.certs.renewal_due(now_unix_s) {
            self.renew_certs(now_unix_s);
        }
    }

    /// Without the master key here nobody but the operator can replace a signing key that is about to end.
    pub(super) fn warn_of_master_key(&self, now_unix_s: u64) {
        let keys = &self.identity.keys;
        let left_s = keys.signing_expires_unix_s().saturating_sub(now_unix_s);
        if self.options.offline_master_key && left_s < WARN_OF_MASTER_KEY_S {
            log::warn!(
                "The signing key ends in {} hours, and the relay with it: make a new one with `tor --keygen` where the \
                 master key is, and put ed25519_signing_cert and ed25519_signing_secret_key into {}",
                left_s / 3600,
                keys.directory().display()
            );
        }
    }

    pub(super) fn tell_onion_keys(&mut self) {
        let keys = &self.identity.keys;
        let mut pairs = keys.ntor_keys().into_iter().map(|key| NtorKeypair::from_secret(&key.secret));
        let Some(ntor_current) = pairs.next() else { return };
        let keys = Arc::new(OnionKeys {
            rsa_id: keys.rsa_id(),
            ed25519_id: keys.ed25519_id(),
            ntor_current,
            ntor_previous: pairs.next(),
        });
        self.tell(|| Control::OnionKeys(keys.clone()));
    }

    fn renew_certs(&mut self, now_unix_s: u64) {
        match ChannelCerts::create(&self.identity.keys, now_unix_s, &mut self.entropy.rng()) {
            Ok(certs) => self.identity.certs = Arc::new(certs),
            Err(error) => return log::error!("Link certificates could not be renewed: {error}"),
        }
        self.replace_transports();
    }

    /// Channels from now on are made anew; those that are open go on as they are.
    pub(super) fn replace_transports(&mut self) {
        let addrs: Vec<_> = self.options.advertised.iter().map(SocketAddr::ip).collect();
        let shown = Shown { keys: &self.identity.keys, certs: &self.identity.certs, addrs: &addrs };
        for shard in 0..self.shards {
            match transport(&shown, self.padding.clone(), self.entropy.branch()) {
                Ok(transport) => {
                    let control = Control::Transport(Box::new(transport));
                    self.wanted.push_back(Wanted::Tell { shard, control });
                }
                Err(error) => log::error!("New channels are made as before: {error}"),
            }
        }
    }
}

/// Whether something changed; nothing did when that failed, and then the present keys stay.
fn or_log(changed: Result<bool, KeyError>) -> bool {
    changed.unwrap_or_else(|error| {
        log::error!("Keys could not be renewed: {error}");
        false
    })
}
