//! Stock Tor's defences against denial of service: circuits and connections by client address, streams by circuit
//! (tor(1), "Denial of service mitigation options"; `src/core/or/dos.c`).
//!
//! They are off unless the operator or the consensus turns them on, and come before the shares of [`crate::admission`],
//! which always hold.
//!
//! - [`options`]: what the operator says, else the consensus, else stock's default.
//! - [`clients`]: what is remembered of clients' addresses.
//!
//! Relays of the consensus are exempt, and so is everybody at an address at which one listens: clients may come through
//! exits.

mod clients;
mod options;

use clients::{Clients, Created};
use core::net::IpAddr;
use heddle_seam::rng::Rng;
use heddle_seam::time::Instant;
pub use options::DosOptions;
pub(super) use options::{Defences, StreamAction};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The defences in force, and the clients that they know.
///
/// The shards of a relay know the same clients, because an address' connections are dealt out to all of them. A lock is
/// taken for each connection and each CREATE of a client.
pub(super) struct Dos {
    defences: Defences,
    clients: Arc<Mutex<Clients>>,
}

impl Dos {
    pub fn new(defences: Defences) -> Self {
        Dos { defences, clients: Arc::default() }
    }

    pub fn defences(&self) -> &Defences {
        &self.defences
    }

    /// Other defences are in force from now on.
    pub fn set_defences(&mut self, defences: Defences) {
        self.defences = defences;
    }

    /// Knows the clients of another shard of the same relay from now on.
    pub fn share_clients(&mut self, with: &Dos) {
        self.clients = with.clients.clone();
    }

    /// Why somebody may not connect, if so; relays are not asked about.
    pub fn refuses_connection(&self, now: Instant, addr: IpAddr) -> Option<&'static str> {
        let defence = self.defences.connections?;
        self.clients().refuses_connection(now, addr, &defence)
    }

    /// A client has a channel, which counts whether or not a defence is on.
    pub fn connect(&self, now: Instant, addr: IpAddr, rng: &mut Rng) {
        self.clients().connect(now, addr, self.defences.connections, rng);
    }

    /// A channel is over that counted.
    pub fn disconnect(&self, now: Instant, addr: IpAddr) {
        self.clients().disconnect(now, addr);
    }

    /// A client begins a circuit. Whether it may, unless nothing forbids that.
    pub fn create(&self, now: Instant, addr: IpAddr, rng: &mut Rng) -> Option<Created> {
        let defence = self.defences.circuits?;
        Some(self.clients().create(now, addr, &defence, rng))
    }

    /// A client filled the queue of a circuit. Whether it is held off for that and was not before.
    pub fn fill_queue(&self, now: Instant, addr: IpAddr, rng: &mut Rng) -> bool {
        let defence = self.defences.circuits;
        defence.is_some_and(|defence| self.clients().fill_queue(now, addr, &defence, rng))
    }

    /// What is remembered is valid after every call, so a panic elsewhere does not spoil it.
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
