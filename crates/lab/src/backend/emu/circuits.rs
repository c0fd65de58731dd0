//! Circuits of stock onion proxies.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::backend::{BUILDING_MAX, OPEN_MAX};
use crate::control::CircuitId;
use crate::error::{Error, Result};
use crate::socks::Isolation;
use crate::testnet::{Client, Network};

/// A circuit that was built.
#[derive(Clone, Debug)]
pub(super) struct Open {
    /// Which of the network's clients has it.
    client: usize,
    id: CircuitId,
}

/// A circuit that is wanted: the client's place in the network, and the relays' nicknames, guard first.
pub(super) type Wanted<'a> = (usize, &'a [String]);

/// Builds circuits, several at the same time, and says how long each took.
pub(super) fn build(network: &Network, wanted: &[Wanted<'_>]) -> Result<Vec<(Open, Duration)>> {
    let panicked = || Err(Error::Options("the building of a circuit panicked".into()));
    let mut open = Vec::new();
    for some in wanted.chunks(BUILDING_MAX) {
        let built: Result<Vec<_>> = thread::scope(|scope| {
            let building: Vec<_> = some
                .iter()
                .map(|(client, path)| scope.spawn(move || build_one(network, *client, path)))
                .collect();
            building.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
        });
        open.extend(built?);
    }
    Ok(open)
}

fn build_one(network: &Network, client: usize, path: &[String]) -> Result<(Open, Duration)> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let path = network.path(&path)?;
    let mut control = find(network, client)?.control()?;
    let begun = Instant::now();
    let id = control.build_circuit(&path, OPEN_MAX)?;
    Ok((Open { client, id }, begun.elapsed()))
}

fn find(network: &Network, client: usize) -> Result<&Client> {
    network.clients().nth(client).ok_or_else(|| Error::Options(format!("there is no client {client}")))
}

impl Open {
    /// Which of the network's clients has it.
    pub(super) fn client<'a>(&self, network: &'a Network) -> Result<&'a Client> {
        find(network, self.client)
    }

    /// What puts a stream on it.
    pub(super) fn isolation(&self) -> Isolation {
        self.id.isolation()
    }

    /// Whether it is there still.
    pub(super) fn is_open(&self, network: &Network) -> Result<bool> {
        let all = self.client(network)?.control()?.circuits()?;
        Ok(all.iter().any(|one| one.id == self.id && one.status == "BUILT"))
    }

    /// Closes it. That it is gone already is no fault: an experiment may be about that.
    pub(super) fn close(&self, network: &Network) -> Result<()> {
        match self.client(network)?.control()?.close_circuit(self.id) {
            Ok(()) | Err(Error::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Where the control sockets of a network's clients are.
pub(super) fn control_sockets(network: &Network) -> Vec<PathBuf> {
    network.clients().map(Client::control_socket).collect()
}
