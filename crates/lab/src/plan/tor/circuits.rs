//! The circuits of a phase: those of each client, over the path that the plan fixes.

use std::thread;
use std::time::{Duration, Instant};

use crate::control::{Attacher, CircuitId};
use crate::error::{Error, Result};
use crate::testnet::{Client, Network};

/// How many circuits are built at the same time. Relays with a transport of flows permit each other a quarter more than
/// there are, and 16 at least: who asks for more within a round trip gets TLS for some.
const BUILDING_MAX: usize = 10;
/// How long a circuit or a stream may take to open.
pub(super) const OPEN_MAX: Duration = Duration::from_secs(30);

/// What puts each client's streams on its circuit, for as long as they live.
pub(super) fn keepers(network: &Network) -> Result<Vec<Attacher>> {
    network.clients().map(|client| Attacher::start(&client.control_socket(), OPEN_MAX)).collect()
}

/// A circuit that is open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open<'a> {
    pub(super) client: &'a Client,
    pub(super) id: CircuitId,
    /// How long its building took.
    pub(super) took: Duration,
}

/// Builds a circuit for each of these clients over its path, many at the same time.
pub(super) fn build<'a>(network: &'a Network, wanted: &[(&[String], &'a Client)]) -> Result<Vec<Open<'a>>> {
    let panicked = || Err(Error::Options("the building of a circuit panicked".into()));
    let mut open = Vec::new();
    for some in wanted.chunks(BUILDING_MAX) {
        let built: Result<Vec<Open<'a>>> = thread::scope(|scope| {
            let building: Vec<_> = some
                .iter()
                .map(|(path, client)| scope.spawn(move || build_one(network, path, client)))
                .collect();
            building.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
        });
        open.extend(built?);
    }
    Ok(open)
}

fn build_one<'a>(network: &Network, path: &[String], client: &'a Client) -> Result<Open<'a>> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let path = network.path(&path)?;
    let mut control = client.control()?;
    let begun = Instant::now();
    let id = control.build_circuit(&path, OPEN_MAX)?;
    Ok(Open { client, id, took: begun.elapsed() })
}

/// The share of circuits that are open still, in percent.
pub(super) fn left_pct(circuits: &[Open<'_>]) -> Result<f64> {
    let mut left = 0;
    for circuit in circuits {
        let all = circuit.client.control()?.circuits()?;
        left += usize::from(all.iter().any(|one| one.id == circuit.id && one.status == "BUILT"));
    }
    Ok(100.0 * left as f64 / circuits.len().max(1) as f64)
}

/// Closes circuits. One that is gone already is no fault: an experiment may be about that.
pub(super) fn close(circuits: &[Open<'_>]) -> Result<()> {
    for circuit in circuits {
        match circuit.client.control()?.close_circuit(circuit.id) {
            Ok(()) | Err(Error::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
