//! `heddle proxy`: the laboratory's onion proxy over real sockets.
//!
//! Threads: one event loop follows the consensus, one has the SOCKS port and the circuits, and this one hears signals
//! and waits. It is not in `heddle-relay`: whoever operates a relay has no use for a client that hides nobody.

use crate::logging;
use crate::output;
use crate::relay::user::Users;
use crate::torrc::{ClientOptions, LogTarget};
use clap::Args;
use heddle_client::{Directory, RelayName, SocksEvent, SocksLanguage, SocksOptions, SocksProxy};
use heddle_control::Judge;
use heddle_control::{Follower, News};
use heddle_dir::files::Disk;
use heddle_dir::keys::DataDirectoryLock;
use heddle_net::process::{SIGINT, SIGTERM, SignalThread, raise_descriptor_limit};
use heddle_net::{EventLoop, LoopHandle, Options, SystemEntropy, wall_clock};
use heddle_proto::cell::measure::{LaneMeasured, Measured};
use heddle_proto::credit::HopCredit;
use heddle_proto::flow_control::FlowChoice;
use heddle_seam::rng::{Entropy, Seed};
use heddle_seam::time::Duration;
use heddle_transport::tls::{TlsOptions, TlsTransport};
use serde_json::{Value, json};
use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};

/// Examples for `heddle proxy --help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  heddle proxy -f torrc                           paths of three relays, chosen as a client chooses them
  heddle proxy -f torrc --path guard,middle,exit  all circuits over these
  heddle proxy -f torrc --measure 1 --json        and how long circuits' cells wait in relays that tell it
  heddle proxy -f torrc --json                    a line of JSON for the port, the network and each circuit
  curl --socks5-hostname 127.0.0.1:9050 http://127.0.0.1:8000/

The torrc is a stock client's in a private network: TestingTorNetwork 1, DirAuthority lines, DataDirectory, SocksPort.
It is no user's client: it hides nobody, and starts in testing networks only.";

#[derive(Debug, Args)]
pub struct ProxyArgs {
    /// The torrc.
    #[arg(short = 'f', long = "torrc-file", value_name = "FILE")]
    torrc: PathBuf,
    /// The relays of every circuit by nickname or fingerprint, the guard first; 1 to 9.
    #[arg(long, value_name = "RELAYS", value_delimiter = ',', num_args = 1)]
    path: Vec<RelayName>,
    /// Flow control with the exit, where it is ours to choose: auto, fixed-1000, fixed-100, dynamic or vegas.
    #[arg(long, value_name = "NAME", default_value_t)]
    flow_control: FlowChoice,
    /// Credit with a guard that has `HeddleHopCredit`, too: none, "n23 N2 N3" or "n23-adaptive N2".
    #[arg(long, value_name = "SCHEME", default_value_t)]
    hop_credit: HopCredit,
    /// Asks the relays of each circuit every so many seconds what they counted of it; those with `HeddleMeasure 1` say.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    measure: Option<u32>,
    /// Has circuits' cells go as datagrams, over relays that have `HeddleForwardDatagrams 1` all.
    #[arg(long)]
    forward_datagrams: bool,
    /// Tells programs that their streams are open before the exit does, so that their first bytes travel with BEGIN.
    #[arg(long)]
    optimistic: bool,
    /// Prints a line of JSON for each event, and what is logged to standard error.
    #[arg(long)]
    json: bool,
}

/// What the main thread waits for.
enum Message {
    Signal,
    Ended(Result<(), String>),
}

/// Runs the proxy until a signal ends it.
pub fn run(args: ProxyArgs) -> Result<ExitCode, Box<dyn Error>> {
    let (mut options, warnings) = ClientOptions::load(&args.torrc)?;
    Users::of_system().must_own("DataDirectory", &options.data_directory)?;
    if args.path.len() > 9 {
        return Err("--path: a circuit has at most 9 relays; name fewer".into());
    }
    if args.json {
        // Standard output is for those who read JSON.
        let to_stdout = options.log.iter_mut().filter(|line| line.target == LogTarget::Stdout);
        to_stdout.for_each(|line| line.target = LogTarget::Stderr);
    }
    logging::start(&options.log)?;
    log::info!("Heddle {} starts as an onion proxy of a laboratory", env!("CARGO_PKG_VERSION"));
    warnings.iter().for_each(|warning| log::warn!("{warning}"));
    raise_descriptor_limit()?;
    let _lock = DataDirectoryLock::take(&options.data_directory)?;
    let (sender, messages) = mpsc::channel();
    let handles = start(&args, &options, &sender)?;
    let _signals = SignalThread::start(&[SIGINT, SIGTERM], move |_| drop(sender.send(Message::Signal)))?;
    let ended = match messages.recv() {
        Ok(Message::Ended(Err(why))) => Err(why.into()),
        Ok(Message::Signal | Message::Ended(Ok(()))) | Err(_) => Ok(ExitCode::SUCCESS),
    };
    handles.into_iter().for_each(|stop| stop());
    ended
}

type Stop = Box<dyn FnOnce()>;

/// Starts both loops; returns what stops them.
fn start(
    args: &ProxyArgs,
    options: &ClientOptions,
    ended: &Sender<Message>,
) -> Result<[Stop; 2], Box<dyn Error>> {
    let mut entropy = SystemEntropy::new()?;
    let seed = Seed::from_bytes(&entropy.rng().array());
    let transport = TlsTransport::new(TlsOptions::default(), None, Arc::new(Judge), Box::new(entropy))?;
    let chosen = SocksOptions {
        path: (!args.path.is_empty()).then(|| args.path.clone()),
        flow_control: args.flow_control,
        hop_credit: args.hop_credit,
        measure_every: args.measure.map(|seconds| Duration::from_secs(seconds.into())),
        forward_datagrams: args.forward_datagrams,
        optimistic: args.optimistic,
        dirty_max: options.dirty_max,
        ..SocksOptions::default()
    };
    let listener = heddle_net::listen(options.socks).map_err(|error| {
        format!("SocksPort {} cannot be opened: {error}; choose another or free it", options.socks)
    })?;
    let teller = Teller { json: args.json };
    teller.listening(listener.local_addr()?);
    let proxy = SocksProxy::new(Box::new(transport), chosen, &seed);
    let mut proxy = EventLoop::new(proxy, Options::default())?;
    proxy.add_listener(listener)?;
    let mut is_ready = false;
    proxy.set_on_event(move |event| {
        let is_built = matches!(event, SocksEvent::Built { .. });
        teller.circuit(event);
        if is_built && !std::mem::replace(&mut is_ready, true) {
            teller.ready();
        }
    });
    let (files, now_unix_s) = (Arc::new(Disk), wall_clock().as_secs());
    let authorities = options.authorities.clone();
    let follower = Follower::new(files, &options.data_directory, authorities, now_unix_s, entropy.rng());
    let mut follower = EventLoop::new(follower, Options::default())?;
    let hears = proxy.handle();
    follower.set_on_event(move |news| on_news(news, teller, &hears));
    let handles = (proxy.handle(), follower.handle());
    spawn("proxy", proxy, ended)?;
    spawn("directory", follower, ended)?;
    Ok([Box::new(move || handles.0.stop()), Box::new(move || handles.1.stop())])
}

fn spawn<L, N>(name: &str, event_loop: EventLoop<L, N>, ended: &Sender<Message>) -> std::io::Result<()>
where
    L: heddle_seam::language::Language,
    N: heddle_seam::node::Node<L> + Send + 'static,
{
    let ended = ended.clone();
    let run = move || {
        let result = event_loop.run().map(drop).map_err(|error| error.to_string());
        // Nobody listens when the program ends.
        let _ = ended.send(Message::Ended(result));
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
    Ok(())
}

fn on_news(news: News, teller: Teller, proxy: &LoopHandle<SocksLanguage>) {
    match news {
        News::Directory { directory, listed, valid_until_unix_s } => {
            teller.directory(&directory, listed, valid_until_unix_s);
            // A proxy that has too much to hear hears of the next consensus.
            if proxy.control(directory).is_err() {
                log::warn!("The proxy has too much to hear, and does not know the newest consensus");
            }
        }
        News::Trouble(why) => log::warn!("The directory: {why}"),
    }
}

/// Says what happens, in words to the log or in JSON to standard output.
#[derive(Clone, Copy)]
struct Teller {
    json: bool,
}

impl Teller {
    fn listening(self, socks: SocketAddr) {
        self.say(json!({ "event": "listening", "socks": socks.to_string() }), || {
            format!("SOCKS is served at {socks}")
        });
    }

    fn directory(self, directory: &Directory, listed: usize, valid_until_unix_s: u64) {
        let usable = directory.relays.len();
        let line = json!({
            "event": "directory", "relays": listed, "usable": usable, "valid_until": valid_until_unix_s,
        });
        self.say(line, || format!("The consensus lists {listed} relays, of which {usable} can be used"));
    }

    fn ready(self) {
        self.say(json!({ "event": "ready" }), || "A circuit is there: streams can be opened".to_owned());
    }

    fn circuit(self, event: SocksEvent) {
        match event {
            SocksEvent::Built { circuit, path, took } => {
                let took_ms = took.as_nanos() as f64 / 1e6;
                let line = json!({ "event": "built", "circuit": circuit, "path": path, "took_ms": took_ms });
                self.say(line, || format!("Circuit {circuit} over {} took {took_ms:.0} ms", path.join(", ")));
            }
            SocksEvent::Closed { circuit, path, why } => {
                let line = json!({ "event": "closed", "circuit": circuit, "path": path, "why": why });
                self.say(line, || format!("Circuit {circuit} over {} ended: {why}", path.join(", ")));
            }
            SocksEvent::Measured { circuit, relay, measured } => self.measured(circuit, &relay, &measured),
            SocksEvent::NoPath { why } => {
                self.say(json!({ "event": "no_path", "why": why }), || {
                    format!("No path can be chosen: {why}")
                });
            }
        }
    }

    fn measured(self, circuit: u64, relay: &str, measured: &Measured) {
        let of = |lane: &LaneMeasured| {
            json!({
                "transport": lane.transport(), "cells": lane.cells, "waited_us": lane.waited_us,
                "waited_max_us": lane.waited_max_us, "queue_max_cells": lane.queue_max_cells,
            })
        };
        let line = json!({
            "event": "measured", "circuit": circuit, "relay": relay, "elapsed_ms": measured.elapsed_ms,
            "towards_client": of(&measured.towards_client), "away": of(&measured.away),
        });
        let words = |lane: &LaneMeasured| {
            let mean_ms = lane.waited_us as f64 / 1e3 / f64::from(lane.cells.max(1));
            let max_ms = f64::from(lane.waited_max_us) / 1e3;
            format!(
                "{} cells over {} waited {mean_ms:.1} ms, {max_ms:.0} at most",
                lane.cells,
                lane.transport()
            )
        };
        self.say(line, || {
            let (back, on) = (words(&measured.towards_client), words(&measured.away));
            format!("Circuit {circuit} at {relay}: towards us {back}; away from us {on}")
        });
    }

    fn say(self, line: Value, words: impl FnOnce() -> String) {
        if !self.json {
            log::info!("{}", words());
        } else if let Err(error) = output::print(&format!("{line}\n")) {
            log::warn!("Standard output takes nothing: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        args: ProxyArgs,
    }

    #[test]
    fn a_path_is_a_list_of_names() {
        let parse = |path: &str| Only::try_parse_from(["proxy", "-f", "torrc", "--path", path]);
        let named = |text: &str| text.parse::<RelayName>().unwrap();
        assert_eq!(parse("a,b,c").unwrap().args.path, ["a", "b", "c"].map(named));
        let fingerprint = "AB".repeat(20);
        assert_eq!(parse(&fingerprint).unwrap().args.path, [named(&fingerprint)]);
        assert!(parse("a,b-c").err().unwrap().to_string().contains("neither a nickname nor a fingerprint"));
        assert!(parse("").is_err());
    }
}
