//! `heddle relay`: from a torrc to a running relay.
//!
//! Threads: one event loop per shard and one for the control plane (keys, consensus, descriptor), workers for
//! onionskins, one for the resolver, one that logs what shards tell, and this one, which hears signals and waits.

mod address;
mod control_plane;
mod endpoints;
mod metrics;
pub(crate) mod observe;
mod service;
mod shards;
mod sockets;
mod stacks;
pub(crate) mod user;

use crate::logging;
use crate::torrc::{Options, Torrc, Warning};
use address::Listeners;
use control_plane::{ControlThread, Reach};
use heddle_assembly::{Setup, key_options};
use heddle_control::{ControlLanguage, Identity};
use heddle_dir::certs::ChannelCerts;
use heddle_dir::keys::{DataDirectoryLock, RelayKeys};
use heddle_net::process::{
    SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SignalThread, raise_descriptor_limit, refuse_debuggers,
    total_memory_bytes,
};
use heddle_net::{ANSWER_BYTES, LoopHandle, Resolver, ResolverOptions, SystemEntropy, wall_clock};
use heddle_relay::{Control, Event, Limits, RelayLanguage};
use heddle_seam::rng::Entropy;
use metrics::{DriverMetrics, Timed};
pub use observe::fuzz_requests;
use service::Service;
use shards::{Parts, Shards, shard_count};
use stacks::Stacks;
use std::collections::BTreeSet;
use std::error::Error;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use user::Users;

/// Events of the shards that may wait to be logged; more are dropped, they are only news.
const EVENTS_MAX: usize = 4096;
/// How long threads may take to end.
const STOP_MAX: Duration = Duration::from_secs(2);

/// What the descriptor says of the program.
const PLATFORM: &str = concat!("Heddle ", env!("CARGO_PKG_VERSION"), " on Linux");

type Failure = Box<dyn Error>;

/// What the main thread waits for.
enum Message {
    Signal(i32),
    ThreadEnded(Result<(), String>),
}

/// Reads the torrc and says what is wrong with it.
pub(crate) fn verify_config(layers: &[PathBuf]) -> Result<(), Failure> {
    let (options, warnings) = load(layers)?;
    for warning in warnings {
        println!("{warning}");
    }
    // Whoever looks over a torrc need not be the one who runs the relay.
    if let Some(warning) = Users::of_system().differs(&options) {
        println!("{warning}");
    }
    println!("Configuration was valid");
    Ok(())
}

/// Prints the nickname and the fingerprint, as `tor --list-fingerprint` does.
pub fn list_fingerprint(layers: &[PathBuf]) -> Result<(), Failure> {
    let (options, _) = load(layers)?;
    if let Some(warning) = Users::of_system().check(&options)? {
        eprintln!("{warning}");
    }
    let mut rng = SystemEntropy::new()?.rng();
    let keys = RelayKeys::load_or_create(key_options(&options), wall_clock().as_secs(), &mut rng)?;
    println!("{} {}", options.nickname, keys.fingerprint());
    Ok(())
}

fn load(layers: &[PathBuf]) -> Result<(Options, Vec<Warning>), Failure> {
    let layers: Vec<&Path> = layers.iter().map(PathBuf::as_path).collect();
    Ok(Torrc::load_layers(&layers)?)
}

/// Runs the relay until a signal stops it.
pub fn run(layers: &[PathBuf]) -> Result<(), Failure> {
    let (options, warnings) = load(layers)?;
    // Log files, too, would be another user's.
    let other_user = Users::of_system().check(&options)?;
    // Before anything else, so that whoever makes them has nothing of ours.
    let stacks = Stacks::open(&options, &net_options(&options), shard_count(&options))?;
    logging::start(&options.log)?;
    log::info!("Heddle {} starts", env!("CARGO_PKG_VERSION"));
    stacks.warn();
    warnings.iter().for_each(|warning| log::warn!("{warning}"));
    other_user.iter().for_each(|warning| log::warn!("{warning}"));
    let result = serve(&options, stacks);
    if let Err(error) = &result {
        logging::say_last(error);
    }
    result
}

/// Runs the relay once there is a log.
fn serve(options: &Options, stacks: Stacks) -> Result<(), Failure> {
    if options.disable_debugger_attachment
        && let Err(error) = refuse_debuggers()
    {
        log::warn!("Debuggers and core dumps cannot be kept from our keys: {error}");
    }
    let sockets_max = raise_descriptor_limit()?;
    let mut entropy = SystemEntropy::new()?;
    let now_unix_s = wall_clock().as_secs();
    let _lock = DataDirectoryLock::take(&options.data_directory)?;
    let keys = RelayKeys::load_or_create(key_options(options), now_unix_s, &mut entropy.rng())?;
    log::info!("Our fingerprint is {} {}", options.nickname, keys.fingerprint());
    let certs = Arc::new(ChannelCerts::create(&keys, now_unix_s, &mut entropy.rng())?);
    let listeners = Listeners::bind(options)?;
    let metrics_port = metrics::bind(options)?;
    options.outbound_bind_address_or.iter().chain(&options.outbound_bind_address).for_each(warn_unless_ours);
    let _pid_file = PidFile::write(options)?;
    let places = Places { listeners, metrics_port, stacks };
    let running = start(options, keys, certs, places, entropy, sockets_max)?;
    let result = wait(options, &running);
    drop(running.signals);
    result
}

struct Running {
    messages: Receiver<Message>,
    handles: Vec<LoopHandle<RelayLanguage>>,
    control: LoopHandle<ControlLanguage>,
    resolver: Option<Resolver>,
    signals: SignalThread,
}

/// Where the relay is reached, bound.
struct Places {
    listeners: Listeners,
    metrics_port: Option<TcpListener>,
    stacks: Stacks,
}

fn start(
    options: &Options,
    keys: RelayKeys,
    certs: Arc<ChannelCerts>,
    Places { listeners, metrics_port, mut stacks }: Places,
    entropy: SystemEntropy,
    sockets_max: Option<u64>,
) -> Result<Running, Failure> {
    let stack_sockets_max = stacks.sockets_max(options, sockets_max, shard_count(options));
    let divided_max = sockets_max.map(|sockets_max| sockets_max - stack_sockets_max.min(sockets_max));
    let resolver = start_resolver(options, divided_max)?;
    let setup = Setup {
        options,
        platform: PLATFORM,
        advertised: listeners.advertised(),
        shards: shard_count(options),
        queue_bytes_max: queue_bytes_max(options) - answers_max(options) as usize * ANSWER_BYTES,
        sockets_max: divided_max,
        limits: Limits { questions: sockets::questions(divided_max), ..Limits::default() },
    };
    let timed = Timed::new(options);
    let wanted = options.heddle.observe.then(|| observe::Unstarted::new(&options.data_directory));
    let unstarted = wanted.transpose()?;
    let observatory = unstarted.as_ref().map(observe::Unstarted::observatory);
    let stopwatch = |shard| observe::stopwatch(shard, timed.0.clone(), observatory.as_ref());
    let parts = Parts {
        setup: &setup,
        keys: &keys,
        certs: &certs,
        entropy,
        resolver: resolver.as_ref(),
        stack_sockets_max,
        stopwatch: &stopwatch,
    };
    let own_addresses = listeners.own_addresses();
    let mut shards = Shards::new(&parts, listeners, stacks)?;
    let handles = shards.handles();
    log::info!("The relay runs in {} shards", handles.len());
    if let Some(unstarted) = unstarted {
        unstarted.spawn(handles.clone())?;
    }
    let metrics = DriverMetrics { shards: handles.clone(), timed: timed.clone(), sockets_max };
    let missed = BTreeSet::new();
    let reach = Reach { shards: handles.clone(), metrics, resolver: resolver.clone(), missed, own_addresses };
    let files = key_options(options).files;
    let identity = Identity { keys, certs, files };
    let control_thread = ControlThread::new(&setup, identity, reach, metrics_port, entropy)?;
    let control = control_thread.handle();
    let (news, news_rx) = mpsc::sync_channel(EVENTS_MAX);
    shards.set_events(&control, observatory.as_ref(), &news);
    std::thread::Builder::new().name("news".into()).spawn(move || log_all(&news_rx))?;
    let (sender, messages) = mpsc::sync_channel(16);
    let ended = sender.clone();
    let ended = move |result| drop(ended.send(Message::ThreadEnded(result)));
    shards.spawn(ended.clone())?;
    let signals = SignalThread::start(&[SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2], move |signal| {
        drop(sender.send(Message::Signal(signal)));
    })?;
    control_thread.spawn(ended)?;
    Ok(Running { messages, handles, control, resolver, signals })
}

/// A disk that is slow to take a log keeps no shard waiting.
fn log_all(news: &Receiver<Event>) {
    news.iter().for_each(|event| log::debug!("{event:?}"));
}

/// What a thread came to that the relay cannot be without. One that panicked is an error, and so the end of the relay,
/// which whoever watches over it can start again.
fn outcome<T>(thread: &str, run: impl FnOnce() -> T) -> Result<T, String> {
    // Nothing of what it had is used any more.
    catch_unwind(AssertUnwindSafe(run)).map_err(|_| format!("{thread} panicked"))
}

/// Connections from an address that the machine does not have fail one by one, with words that do not say so.
fn warn_unless_ours(address: &std::net::IpAddr) {
    if let Err(error) = std::net::UdpSocket::bind((*address, 0)) {
        log::warn!(
            "OutboundBindAddress {address} is no address of this machine: {error}; correct it or leave it out"
        );
    }
}

fn start_resolver(options: &Options, sockets_max: Option<u64>) -> Result<Option<Resolver>, Failure> {
    if !options.is_exit() {
        return Ok(None);
    }
    let defaults = ResolverOptions::default();
    let resolver = Resolver::start(ResolverOptions {
        resolv_conf: options.server_dns_resolv_conf_file.clone().unwrap_or(defaults.resolv_conf),
        search_domains: options.server_dns_search_domains,
        randomize_case: options.server_dns_randomize_case,
        detect_hijacking: options.server_dns_detect_hijacking,
        well_known: options.server_dns_test_addresses.clone(),
        ipv6: options.ipv6_exit,
        in_flight_max: sockets::questions(sockets_max),
        cache_answers_max: answers_max(options),
        ..ResolverOptions::default()
    })?;
    if let Err(error) = resolver.reload() {
        log::warn!(
            "No name can be resolved for clients, so the relay is no exit until it is mended: {error}"
        );
    }
    Ok(Some(resolver))
}

fn net_options(options: &Options) -> heddle_net::Options {
    let bind = options.outbound_bind_address_or.iter().chain(&options.outbound_bind_address);
    let mut net = heddle_net::Options {
        tcp_nodelay: options.heddle.tcp_no_delay,
        udp_offload: options.heddle.udp_offload,
        ..heddle_net::Options::default()
    };
    for address in bind {
        match address {
            std::net::IpAddr::V4(address) => net.outbound_bind_v4 = net.outbound_bind_v4.or(Some(*address)),
            std::net::IpAddr::V6(address) => net.outbound_bind_v6 = net.outbound_bind_v6.or(Some(*address)),
        }
    }
    net
}

fn queue_bytes_max(options: &Options) -> usize {
    heddle_assembly::queue_bytes_max(options, total_memory_bytes())
}

/// Answers that the resolver of an exit remembers. They count against `MaxMemInQueues`, of which they have one part in
/// so many at most: the shards have the rest.
fn answers_max(options: &Options) -> u64 {
    const PART: usize = 32;
    let fits = (queue_bytes_max(options) / PART / ANSWER_BYTES) as u64;
    if options.is_exit() { ResolverOptions::default().cache_answers_max.min(fits) } else { 0 }
}

/// Tells who we are, as long as there is a relay or one that starts.
struct PidFile(PathBuf);

impl PidFile {
    fn write(options: &Options) -> Result<Option<Self>, Failure> {
        let Some(path) = &options.pid_file else { return Ok(None) };
        std::fs::write(path, format!("{}\n", std::process::id()))
            .map_err(|error| format!("PidFile {} cannot be written: {error}", path.display()))?;
        Ok(Some(PidFile(path.clone())))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Somebody may have taken it away.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Hears signals until the relay has ended.
fn wait(options: &Options, running: &Running) -> Result<(), Failure> {
    let mut service = Service::new(Instant::now());
    service.ready();
    let mut stop_at: Option<Instant> = None;
    loop {
        let now = Instant::now();
        service.look(now, || running.turns());
        if stop_at.is_some_and(|at| at <= now) {
            return stop(running, &service);
        }
        let message = match [stop_at, service.due()].into_iter().flatten().min() {
            Some(at) => running.messages.recv_timeout(at.saturating_duration_since(now)),
            None => running.messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match message {
            Ok(Message::Signal(SIGHUP)) => reload(running),
            Ok(Message::Signal(SIGUSR1 | SIGUSR2)) => {
                log::info!("SIGUSR1 and SIGUSR2 do nothing here: statistics are at the MetricsPort");
            }
            Ok(Message::Signal(SIGINT)) if stop_at.is_none() => {
                log::info!("Interrupted: no new circuits; stopping in {} s", options.shutdown_wait_length_s);
                for handle in &running.handles {
                    handle.close_listeners();
                    handle.must_hear(Control::Drain);
                }
                stop_at = Some(Instant::now() + Duration::from_secs(options.shutdown_wait_length_s));
            }
            Ok(Message::Signal(_)) => return stop(running, &service),
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Message::ThreadEnded(Err(error))) => return Err(format!("the relay ended: {error}").into()),
            Ok(Message::ThreadEnded(Ok(()))) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

impl Running {
    /// How often each event loop has turned, the control plane's last.
    fn turns(&self) -> Vec<u64> {
        let shards = self.handles.iter().map(|handle| handle.counters().waits);
        shards.chain([self.control.counters().waits]).collect()
    }
}

fn stop(running: &Running, service: &Service) -> Result<(), Failure> {
    log::info!("Stopping");
    service.stopping();
    for handle in &running.handles {
        handle.must_hear(Control::Shutdown);
        handle.stop();
    }
    running.control.stop();
    // Loops end within the time that closed sockets may take.
    let deadline = Instant::now() + STOP_MAX;
    let mut left = running.handles.len() + 1;
    while left > 0 {
        let patience = deadline.saturating_duration_since(Instant::now());
        match running.messages.recv_timeout(patience) {
            Ok(Message::ThreadEnded(_)) => left -= 1,
            Ok(Message::Signal(_)) => {}
            Err(_) => break,
        }
    }
    Ok(())
}

fn reload(running: &Running) {
    let logs = logging::reopen();
    let name_servers = running.resolver.as_ref().map(|resolver| resolver.reload());
    for failure in &logs {
        log::warn!("What was open goes on: {failure}");
    }
    if let Some(Err(error)) = &name_servers {
        log::warn!("The name servers stay as they were: {error}");
    }
    let done: Vec<&str> =
        [("log files", logs.is_empty()), ("name servers", matches!(name_servers, Some(Ok(()))))]
            .into_iter()
            .filter_map(|(what, is_done)| is_done.then_some(what))
            .collect();
    if !done.is_empty() {
        log::info!("Read again: {}; other options need a restart", done.join(" and "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_is_an_error_with_its_name() {
        assert_eq!(outcome("a thread", || 7), Ok(7));
        let panics = outcome("a thread", || panic!("as the test wants"));
        assert_eq!(panics, Err("a thread panicked".to_owned()));
    }
}
