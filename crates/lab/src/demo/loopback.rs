//! The demo without wires: one client downloads one file over loopback.
//!
//! In its turn, an arm builds a circuit, fetches a few single bytes for the time to the first byte, then one large
//! file.

use super::rounds::{BUILD_MAX, File, OPEN_MAX, Rounds, Turn, Way, usage};
use crate::control::{Attacher, Control};
use crate::error::{Error, Result};
use crate::socks::Target;
use crate::testnet::{Network, NetworkOptions};
use crate::traffic::{Server, Transfer};

/// Fetches of a single byte in each turn.
const SMALL_FETCHES: usize = 10;

/// Starts the network, makes the rounds and stops everything.
pub(super) fn measure(rounds: &mut Rounds<'_>) -> Result<()> {
    let options = NetworkOptions {
        heddle: Some(rounds.options.heddle.clone()),
        relays: rounds.options.relays(),
        startup_timeout: rounds.options.budget / 2,
        ..NetworkOptions::default()
    };
    let network = Network::start(&options, &mut |progress| rounds.screen.show(progress.step))?;
    let server = Server::start()?;
    let attacher = Attacher::start(&network.control_socket(), OPEN_MAX)?;
    let (file, byte) = (rounds.download(), File::new(1));
    let mut demo = Demo { control: network.control()?, network: &network, server: &server, file, byte };
    rounds.make(&mut |rounds, turn| demo.turn(rounds, turn))?;
    // Streams end before the circuits' keeper does.
    drop(attacher);
    Ok(())
}

struct Demo<'a> {
    network: &'a Network,
    server: &'a Server,
    control: Control,
    file: File,
    byte: File,
}

impl Demo<'_> {
    fn turn(&mut self, rounds: &mut Rounds<'_>, turn: &Turn) -> Result<()> {
        let relays = rounds.options.path(turn.arm);
        let path: Vec<&str> = relays.iter().map(String::as_str).collect();
        let circuit = self.control.build_circuit(&self.network.path(&path)?, BUILD_MAX)?;
        let way = Way {
            proxy: self.network.socks(),
            target: Target::Addr(self.server.addr()),
            isolation: circuit.isolation(),
            deadline: rounds.deadline(),
        };
        for _ in 0..SMALL_FETCHES {
            let small = [way.fetch(&self.byte, &mut |_| ())?];
            rounds.add_transfers(turn, "first_byte_ms", &[], "ms", &small, |transfer| transfer.first_byte_ms);
            rounds.add_hashes(turn, &small);
        }
        let before = usage(self.network, &relays)?;
        let screen = &mut rounds.screen;
        let transfer = way.fetch(&self.file, &mut |bytes| screen.show_bytes(&turn.step, bytes))?;
        let after = usage(self.network, &relays)?;
        rounds.add_transfers(turn, "download_mb_s", &[], "MB/s", &[transfer], Transfer::mb_s);
        rounds.add_hashes(turn, &[transfer]);
        rounds.add_costs(turn, &before, &after, transfer.bytes);
        self.network.check()?;
        match self.control.close_circuit(circuit) {
            Ok(()) | Err(Error::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
