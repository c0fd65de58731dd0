//! The demo over emulated wires: a browsing client beside a bulk client.
//!
//! In its turn, an arm
//!
//! 1. builds a circuit for each client, both over the same three relays;
//! 2. has the browsing client fetch a few pages by itself;
//! 3. has the bulk client download files one after the other, and when the first one is there, the browsing client
//!    fetch pages beside that. What the relays cost in the meantime is theirs and that of all bytes of both clients.
//!    What the middle relay hears, all from its two neighbours, tells which transport carried the circuits: stock Tor's
//!    is TCP.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::Arm;
use super::network::{self, BULK, Placed, Received, SERVER, UDP_PCT_MIN, WEB};
use super::rounds::{BUILD_MAX, File, OPEN_MAX, Rounds, Turn, Way, usage};
use crate::backend::emu;
use crate::control::{Attacher, CircuitId, Control};
use crate::emulator::{Emulation, RunOptions};
use crate::error::{Error, Result};
use crate::socks::Target;
use crate::testnet::{Client, Network, NetworkOptions};
use crate::traffic::{Server, Stop, Transfer};

/// Pages that the browsing client fetches by itself in each turn.
const PAGES_ALONE: usize = 2;
/// What somebody who browses waits between two pages.
const PAUSE: Duration = Duration::from_millis(250);
/// No bulk download that counts begins later than so long after the first of them.
const WINDOW: Duration = Duration::from_secs(5);
/// How long an arm's relays may take to find each other as pairs. They find each other by circuits only.
const PAIRS_MAX: Duration = Duration::from_secs(15);

/// Starts hosts and network, makes the rounds and stops everything.
pub(super) fn measure(rounds: &mut Rounds<'_>) -> Result<()> {
    let options = rounds.options;
    rounds.screen.show("making hosts and wires");
    let run = RunOptions { seed: options.seed, ..RunOptions::default() };
    let emulation = Emulation::start(&network::hosts(options)?, &run)?;
    on_hosts(rounds, &emulation)?;
    rounds.report = emu::report(emulation.stop()?);
    Ok(())
}

fn on_hosts(rounds: &mut Rounds<'_>, emulation: &Emulation) -> Result<()> {
    let options = NetworkOptions {
        heddle: Some(rounds.options.heddle.clone()),
        relays: rounds.options.relays(),
        clients: 2,
        startup_timeout: rounds.options.budget / 2,
        ..NetworkOptions::default()
    };
    let placed = Placed(emulation);
    let network = Network::start_at(&options, &placed, &mut |progress| rounds.screen.show(progress.step))?;
    let address = network::address(emulation, SERVER)?;
    let server = emulation.inside(SERVER, || Server::start_on(address))??;
    let mut clients = network.clients();
    let (Some(web), Some(bulk)) = (clients.next(), clients.next()) else {
        return Err(Error::Options("two clients are needed".to_owned()));
    };
    let attachers = [web, bulk].map(|client| Attacher::start(&client.control_socket(), OPEN_MAX));
    let attachers: Vec<Attacher> = attachers.into_iter().collect::<Result<_>>()?;
    let mut demo = Demo {
        emulation,
        network: &network,
        target: Target::Addr(server.addr()),
        web: (web, web.control()?),
        bulk: (bulk, bulk.control()?),
        page: File::new(rounds.options.page_bytes),
        file: rounds.download(),
    };
    let mut pages = 1;
    // Twice, so that each arm's relays have passed on as many pages when the rounds begin.
    for arm in rounds.options.arms.clone().repeat(2) {
        rounds.screen.show(&format!("first circuits over {}", rounds.options.arm_name(arm)));
        pages = pages.max(demo.open_channels(rounds, arm, pages)?);
    }
    rounds.make(&mut |rounds, turn| demo.turn(rounds, turn))?;
    // Streams end before the circuits' keepers do.
    drop(attachers);
    Ok(())
}

struct Demo<'a> {
    emulation: &'a Emulation,
    network: &'a Network,
    target: Target,
    web: (&'a Client, Control),
    bulk: (&'a Client, Control),
    page: File,
    file: File,
}

/// What both clients did at the same time.
#[derive(Debug, Default)]
struct Beside {
    /// Pages that were fetched while the bulk client was busy.
    pages: Vec<Transfer>,
    /// The bulk client's downloads. The first one was over before the browsing client began, and does not count.
    downloads: Vec<Transfer>,
    /// A page that was not there when the bulk client was done.
    late: Vec<Transfer>,
}

impl Demo<'_> {
    /// Sends pages through the relays of an arm, over new circuits each, so that the channels between them are there
    /// before anything counts, and that the circuits that count go over what pairs have. Where that does not come about
    /// in time, the rounds will say so. Returns how many pages it took, `pages_min` at least.
    fn open_channels(&mut self, rounds: &Rounds<'_>, arm: Arm, pages_min: usize) -> Result<usize> {
        let relays = rounds.options.path(arm);
        let until = Instant::now() + PAIRS_MAX;
        for pages in 1.. {
            let circuits = self.circuits(&relays)?;
            let way = self.way(self.web.0, circuits[0], rounds.deadline());
            let page = self.page;
            let before = Received::by(self.emulation, &relays[1])?;
            self.emulation.inside(WEB, || way.fetch(&page, &mut |_| ()))??;
            let udp_pct = Received::by(self.emulation, &relays[1])?.udp_pct_since(before);
            self.close(circuits)?;
            let is_ready = !rounds.options.is_all_heddle(arm) || udp_pct >= Some(UDP_PCT_MIN);
            if pages >= pages_min && (is_ready || Instant::now() > until) {
                return Ok(pages);
            }
        }
        Ok(pages_min)
    }

    fn turn(&mut self, rounds: &mut Rounds<'_>, turn: &Turn) -> Result<()> {
        let relays = rounds.options.path(turn.arm);
        let [_, middle, _] = &relays;
        let circuits = self.circuits(&relays)?;
        let web = self.way(self.web.0, circuits[0], rounds.deadline());
        let bulk = self.way(self.bulk.0, circuits[1], rounds.deadline());

        rounds.screen.show(&format!("{}: pages alone", turn.step));
        let page = self.page;
        let fetch = || (0..PAGES_ALONE).map(|_| web.fetch(&page, &mut |_| ())).collect::<Result<Vec<_>>>();
        let alone = self.emulation.inside(WEB, fetch)??;
        add_pages(rounds, turn, "nothing", &alone);
        rounds.add_hashes(turn, &alone);

        rounds.screen.show(&format!("{}: pages beside bulk", turn.step));
        let (mut before, mut heard) = (Vec::new(), Received::default());
        let beside = self.beside(&web, &bulk, &mut || {
            before = usage(self.network, &relays)?;
            heard = Received::by(self.emulation, middle)?;
            Ok(())
        })?;
        let after = usage(self.network, &relays)?;
        let udp_pct = Received::by(self.emulation, middle)?.udp_pct_since(heard);
        rounds.add(turn, "middle_udp_pct", &[], "%", udp_pct.as_slice());
        add_pages(rounds, turn, "bulk", &beside.pages);
        let counted = beside.downloads.get(1..).unwrap_or_default();
        let labels = [("client", "bulk"), ("beside", "web")];
        rounds
            .add_transfers(turn, "first_byte_ms", &labels, "ms", counted, |transfer| transfer.first_byte_ms);
        rounds.add_transfers(turn, "download_mb_s", &[], "MB/s", counted, Transfer::mb_s);
        for transfers in [&beside.pages, &beside.late, &beside.downloads] {
            rounds.add_hashes(turn, transfers);
        }
        let busy = beside.pages.iter().chain(&beside.late).chain(counted);
        rounds.add_costs(turn, &before, &after, busy.map(|transfer| transfer.bytes).sum());
        self.network.check()?;
        self.close(circuits)
    }

    /// Has the browsing client fetch pages while the bulk client is busy. `on_busy` is called when that is so.
    fn beside(&self, web: &Way, bulk: &Way, on_busy: &mut dyn FnMut() -> Result<()>) -> Result<Beside> {
        let (busy, begun) = sync_channel(1);
        let over = AtomicBool::new(false);
        let (page, file) = (self.page, self.file);
        thread::scope(|scope| {
            let downloads = scope.spawn(|| {
                let downloads = self.emulation.inside(BULK, || download(bulk, &file, busy));
                over.store(true, Ordering::Relaxed);
                downloads
            });
            let mut beside = Beside::default();
            // Why the bulk client never was busy is its own to say.
            let pages = begun.recv().map_or(Ok(()), |()| {
                on_busy()?;
                self.emulation.inside(WEB, || browse(web, &page, &over, &mut beside))?
            });
            let panicked = || Err(Error::Options("the bulk client panicked".to_owned()));
            let downloads = downloads.join().unwrap_or_else(|_| panicked())??;
            pages?;
            Ok(Beside { downloads, ..beside })
        })
    }

    /// A circuit for each client over the same relays.
    fn circuits(&mut self, relays: &[String; 3]) -> Result<[CircuitId; 2]> {
        let path: Vec<&str> = relays.iter().map(String::as_str).collect();
        let path = self.network.path(&path)?;
        let web = self.web.1.build_circuit(&path, BUILD_MAX)?;
        Ok([web, self.bulk.1.build_circuit(&path, BUILD_MAX)?])
    }

    fn close(&mut self, circuits: [CircuitId; 2]) -> Result<()> {
        for ((_, control), circuit) in [&mut self.web, &mut self.bulk].into_iter().zip(circuits) {
            match control.close_circuit(circuit) {
                Ok(()) | Err(Error::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn way(&self, client: &Client, circuit: CircuitId, deadline: Instant) -> Way {
        Way { proxy: client.socks(), target: self.target.clone(), isolation: circuit.isolation(), deadline }
    }
}

/// Downloads one file to warm up, says so, and then one after the other for a while.
fn download(way: &Way, file: &File, busy: SyncSender<()>) -> Result<Vec<Transfer>> {
    let mut transfers = vec![way.fetch(file, &mut |_| ())?];
    let begun = Instant::now();
    // Whoever waits for it may have given up.
    let _ = busy.send(());
    while begun.elapsed() < WINDOW {
        transfers.push(way.fetch(file, &mut |_| ())?);
    }
    Ok(transfers)
}

/// Fetches pages with pauses until the bulk client is done. A page that outlasted it does not count.
fn browse(way: &Way, page: &File, over: &AtomicBool, beside: &mut Beside) -> Result<()> {
    let stop = Stop::default();
    while !over.load(Ordering::Relaxed) {
        let transfer = way.fetch(page, &mut |_| ())?;
        let pages = if over.load(Ordering::Relaxed) { &mut beside.late } else { &mut beside.pages };
        pages.push(transfer);
        stop.sleep_until(Instant::now() + PAUSE);
    }
    Ok(())
}

fn add_pages(rounds: &mut Rounds<'_>, turn: &Turn, beside: &str, pages: &[Transfer]) {
    let labels = [("client", "web"), ("beside", beside)];
    rounds.add_transfers(turn, "first_byte_ms", &labels, "ms", pages, |transfer| transfer.first_byte_ms);
    rounds.add_transfers(turn, "page_s", &labels, "s", pages, |transfer| transfer.seconds);
}
