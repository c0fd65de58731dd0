//! DNS for exits, by `hickory-resolver` on a thread of its own.

mod answers;
mod fuzz;
mod liars;
mod ttl;

use crate::entropy::SystemEntropy;
use crate::mailbox::{Asker, LoopHandle};
use answers::{Answers, Found};
pub use fuzz::fuzz_answers;
use heddle_seam::language::Language;
use heddle_seam::node::{Query, RESOLVER_PLACES, Resolution, ResolveError, ResolveId};
use heddle_seam::rng::Entropy;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::system_conf::parse_resolv_conf;
use liars::Liars;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// The longest name that fits the length byte of a RESOLVED answer (tor-spec, "Remote hostname
/// lookup").
const NAME_LEN_MAX: usize = 255;

/// Sockets that a question may hold at once: for each family of addresses, one for each time that the library sends it
/// in a datagram, because an earlier one still waits for its answer, and a connection for an answer that no datagram
/// holds, which stays open for others.
///
/// ```text
/// 2 families · (3 datagrams + 1 connection) = 8
/// ```
pub const SOCKETS_PER_QUESTION: usize = 2 * (3 + 1);

/// What an answer takes that is remembered, at most: a name of at most 255 bytes, 16 addresses of 24 bytes or as long a
/// name, and its places in the map. `tests/resolver_memory.rs` measures it.
pub const ANSWER_BYTES: usize = 1536;

/// Between two looks whether name servers lie, and up to as much again; as in stock Tor.
const LOOK_EVERY: Duration = Duration::from_secs(12 * 3600);
/// The same after a look to which too few answers came.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

/// Options of a [`Resolver`].
#[derive(Clone, Debug)]
pub struct ResolverOptions {
    /// Where the name servers, search domains, time-outs and attempts are written
    /// (ServerDNSResolvConfFile). Default `/etc/resolv.conf`.
    pub resolv_conf: PathBuf,
    /// Name servers to ask instead of those of the file, which is then not read. Default none.
    pub name_servers: Vec<SocketAddr>,
    /// Look for names in the local search domains too (ServerDNSSearchDomains). Default off: a
    /// client's name means the same on every exit.
    pub search_domains: bool,
    /// Mix the case of questions and expect it back, which makes answers harder to forge
    /// (ServerDNSRandomizeCase). Default on.
    pub randomize_case: bool,
    /// Look whether the name servers have addresses for names that nobody has, which are no answers then
    /// (ServerDNSDetectHijacking). Default off.
    pub detect_hijacking: bool,
    /// Names that everybody knows (ServerDNSTestAddresses). If such servers lie about most of them, too, nothing can be
    /// resolved. Default none.
    pub well_known: Vec<String>,
    /// Ask for IPv6 addresses too. Default on.
    pub ipv6: bool,
    /// Questions under way at once, of all shards; more fail at once. Each may need [`SOCKETS_PER_QUESTION`]. One of
    /// them is our own where hijacking is looked for. Default [`RESOLVER_PLACES`], 8192.
    pub in_flight_max: usize,
    /// Answers remembered, for minutes up to an hour, each of [`ANSWER_BYTES`] at most. Default 8192.
    pub cache_answers_max: u64,
    /// How long the name servers get for a try. Default: what the file says, or 5 s.
    pub try_timeout: Option<Duration>,
    /// How long a question may take with all its tries. Default 20 s.
    pub query_timeout: Duration,
}

impl Default for ResolverOptions {
    fn default() -> Self {
        ResolverOptions {
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            name_servers: Vec::new(),
            search_domains: false,
            randomize_case: true,
            detect_hijacking: false,
            well_known: Vec::new(),
            ipv6: true,
            in_flight_max: RESOLVER_PLACES,
            cache_answers_max: 8192,
            try_timeout: None,
            query_timeout: Duration::from_secs(20),
        }
    }
}

/// Asks the name servers for the loops of all shards. The thread ends with the last clone.
#[derive(Clone)]
pub struct Resolver {
    inner: Arc<Inner>,
}

struct Inner {
    options: Arc<ResolverOptions>,
    /// `None` until the configuration could be read.
    resolver: Mutex<Option<TokioResolver>>,
    answers: Answers,
    liars: Arc<Liars>,
    /// Looks for them.
    look: Mutex<Option<AbortHandle>>,
    entropy: SystemEntropy,
    in_flight: Arc<AtomicUsize>,
    under_way: Arc<UnderWay>,
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Resolver {
    /// Starts the thread. Every question fails as transient until [`Resolver::reload`] has read the configuration.
    pub fn start(options: ResolverOptions) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::Builder::new().name("dns".into()).spawn(move || {
            // It ends with an error when the sender is dropped, which is how it is told to end.
            let _ = runtime.block_on(stopped);
        })?;
        let answers = Answers::new(options.cache_answers_max);
        let entropy = SystemEntropy::new()?;
        let inner = Inner {
            options: Arc::new(options),
            resolver: Mutex::new(None),
            answers,
            liars: Arc::default(),
            look: Mutex::new(None),
            entropy,
            in_flight: Arc::default(),
            under_way: Arc::default(),
            runtime: handle,
            stop: Some(stop),
            thread: Some(thread),
        };
        Ok(Resolver { inner: Arc::new(inner) })
    }

    /// Reads the configuration, for the first time or again, and forgets all answers. Fails when the file cannot be
    /// read; what was known before stays then.
    pub fn reload(&self) -> io::Result<()> {
        let resolver = build(&self.inner.options)?;
        *self.inner.resolver() = Some(resolver.clone());
        self.inner.answers.clear();
        if self.inner.options.detect_hijacking {
            self.look_for_liars(resolver);
        }
        Ok(())
    }

    /// Whether a configuration could be read, and the name servers do not lie about everything.
    pub fn is_ready(&self) -> bool {
        self.inner.resolver().is_some() && !self.inner.liars.are_all_there_is()
    }

    /// From now on, and these servers instead of those before.
    fn look_for_liars(&self, resolver: TokioResolver) {
        let inner = &self.inner;
        let (options, answers, liars) = (inner.options.clone(), inner.answers.clone(), inner.liars.clone());
        let mut entropy = inner.entropy;
        let task = inner.runtime.spawn(async move {
            loop {
                let ask = |name: String| async {
                    let query = Query::Forward(name);
                    ask_in_time(&resolver, &query, &options).await
                };
                let mut rng = entropy.rng();
                let looked = liars.look(&options.well_known, &mut rng, ask).await;
                if looked.is_news {
                    answers.clear();
                }
                let least = if looked.is_whole { LOOK_EVERY } else { LOOK_AGAIN };
                let more_s = rng.below(least.as_secs());
                tokio::time::sleep(least + Duration::from_secs(more_s)).await;
            }
        });
        let mut look = inner.look.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = look.replace(task.abort_handle()) {
            before.abort();
        }
    }

    /// Asks, and has the answer delivered to `to`: always exactly one.
    pub(crate) fn resolve<L: Language>(&self, id: ResolveId, query: Query, to: &LoopHandle<L>) {
        let inner = &self.inner;
        let ticket = Ticket::new(id, Box::new(to.clone()), inner.in_flight.clone());
        if let Some(answer) = inner.answers.get(&query) {
            return ticket.answer(answer);
        }
        let ours = usize::from(inner.options.detect_hijacking);
        if inner.in_flight.load(Ordering::Relaxed) + ours > inner.options.in_flight_max {
            return;
        }
        let Some(resolver) = inner.resolver().clone() else { return };
        let (options, answers, liars) = (inner.options.clone(), inner.answers.clone(), inner.liars.clone());
        let mut entropy = inner.entropy;
        let key = (to.number(), id);
        let asking = Asking { key: Some(key), under_way: inner.under_way.clone() };
        // Its end waits until the task is among those under way.
        let mut under_way = inner.under_way.lock();
        let task = inner.runtime.spawn(async move {
            let found = liars.left_of(ask_in_time(&resolver, &query, &options).await);
            asking.answer(answers.put(query, found, &mut entropy.rng()));
        });
        under_way.insert(key, Question { ticket, task: task.abort_handle() });
    }

    /// Gives up a question of this loop, which is answered as failed at once and holds no place any more. Its sockets
    /// are closed as soon as the thread comes to it.
    pub(crate) fn give_up<L: Language>(&self, id: ResolveId, of: &LoopHandle<L>) {
        let question = self.inner.under_way.lock().remove(&(of.number(), id));
        if let Some(Question { task, .. }) = question {
            task.abort();
        }
    }
}

/// A question's loop, and its name there.
type QuestionKey = (usize, ResolveId);

/// Questions that the name servers are asked: at most [`ResolverOptions::in_flight_max`].
#[derive(Default)]
struct UnderWay(Mutex<BTreeMap<QuestionKey, Question>>);

impl UnderWay {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<QuestionKey, Question>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Question {
    ticket: Ticket,
    task: AbortHandle,
}

/// What a task holds of its question, which ends with it.
struct Asking {
    /// Nothing once it is answered: whoever asked may then ask by the same name again.
    key: Option<QuestionKey>,
    under_way: Arc<UnderWay>,
}

impl Asking {
    fn end(&mut self) -> Option<Question> {
        self.under_way.lock().remove(&self.key.take()?)
    }

    fn answer(mut self, answer: Result<Resolution, ResolveError>) {
        if let Some(Question { ticket, .. }) = self.end() {
            ticket.answer(answer);
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        drop(self.end());
    }
}

impl Inner {
    fn resolver(&self) -> MutexGuard<'_, Option<TokioResolver>> {
        self.resolver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread does nothing that could panic.
            let _ = thread.join();
        }
    }
}

/// A question's right to an answer. Dropped without one, because there are too many, the runtime
/// ended or the library panicked, it answers that the question failed.
struct Ticket {
    id: ResolveId,
    to: Box<dyn Asker>,
    in_flight: Arc<AtomicUsize>,
    answer: Result<Resolution, ResolveError>,
}

impl Ticket {
    fn new(id: ResolveId, to: Box<dyn Asker>, in_flight: Arc<AtomicUsize>) -> Self {
        in_flight.fetch_add(1, Ordering::Relaxed);
        Ticket { id, to, in_flight, answer: Err(ResolveError::Transient) }
    }

    fn answer(mut self, answer: Result<Resolution, ResolveError>) {
        self.answer = answer;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        let answer = std::mem::replace(&mut self.answer, Err(ResolveError::Transient));
        self.to.resolved(self.id, answer);
    }
}

fn build(options: &ResolverOptions) -> io::Result<TokioResolver> {
    let (mut config, mut opts) = if options.name_servers.is_empty() {
        read_resolv_conf(&options.resolv_conf)?
    } else {
        let servers = options.name_servers.iter().map(|addr| name_server(*addr)).collect();
        (ResolverConfig::from_parts(None, Vec::new(), servers), ResolverOpts::default())
    };
    if !options.search_domains {
        config = ResolverConfig::from_parts(None, Vec::new(), config.name_servers().to_vec());
    }
    opts.case_randomization = options.randomize_case;
    // Names and addresses of the operator's own machines are nothing for clients. Stock Tor does not look either.
    opts.use_hosts_file = ResolveHosts::Never;
    // What is remembered is in `answers`.
    opts.cache_size = 0;
    opts.max_active_requests = options.in_flight_max;
    // One server is asked after the other, as by stock Tor: asked at once, each would take as many sockets again and
    // hear every name.
    opts.num_concurrent_reqs = 1;
    opts.preserve_intermediates = false;
    if let Some(timeout) = options.try_timeout {
        opts.timeout = timeout;
    }
    let builder =
        TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()).with_options(opts);
    builder.build().map_err(io::Error::other)
}

fn read_resolv_conf(path: &Path) -> io::Result<(ResolverConfig, ResolverOpts)> {
    let named = |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let text = fs::read(path).map_err(|error| named(&error))?;
    let mut text = String::from_utf8_lossy(&text).into_owned();
    // A file that names no server means the machine's own (resolv.conf(5)).
    if !text.lines().any(|line| line.trim_start().starts_with("nameserver")) {
        text.push_str("\nnameserver 127.0.0.1\n");
    }
    parse_resolv_conf(text).map_err(|error| named(&error))
}

fn name_server(addr: SocketAddr) -> NameServerConfig {
    let mut server = NameServerConfig::udp_and_tcp(addr.ip());
    for connection in &mut server.connections {
        let connection: &mut ConnectionConfig = connection;
        connection.port = addr.port();
    }
    server
}

async fn ask_in_time(resolver: &TokioResolver, query: &Query, options: &ResolverOptions) -> Found {
    let asked = tokio::time::timeout(options.query_timeout, ask(resolver, query, options));
    asked.await.unwrap_or_else(|_| Found::transient())
}

async fn ask(resolver: &TokioResolver, query: &Query, options: &ResolverOptions) -> Found {
    match query {
        Query::Forward(name) => {
            let Ok(mut name) = Name::from_ascii(name) else { return not_found(0) };
            if !options.search_domains {
                name.set_fqdn(true);
            }
            forward(resolver, name, options.ipv6).await
        }
        Query::Reverse(ip) => name_found(resolver.lookup(Name::from(*ip), RecordType::PTR).await),
    }
}

/// What servers say an address is called.
fn name_found(answer: Result<Lookup, NetError>) -> Found {
    match answer {
        Ok(lookup) => name_of(&lookup),
        Err(error) => match meaning(&error) {
            NotThere::Transient => Found::transient(),
            NotThere::Final { ttl_s } => not_found(ttl_s),
        },
    }
}

fn name_of(lookup: &Lookup) -> Found {
    let mut names = lookup.answers().iter().filter_map(|record| match &record.data {
        RData::PTR(name) => Some((name.0.to_ascii(), record.ttl)),
        _ => None,
    });
    let Some((name, ttl_s)) = names.next() else { return not_found(0) };
    let name = name.strip_suffix('.').unwrap_or(&name).to_owned();
    match name.is_empty() || name.len() > NAME_LEN_MAX {
        true => not_found(ttl_s),
        false => Found { answer: Ok(Resolution::Name(name, ttl_s)), ttls_s: vec![ttl_s] },
    }
}

fn not_found(ttl_s: u32) -> Found {
    Found { answer: Err(ResolveError::NotFound), ttls_s: vec![ttl_s] }
}

async fn forward(resolver: &TokioResolver, name: Name, ipv6: bool) -> Found {
    let v4 = resolver.lookup(name.clone(), RecordType::A);
    let v6 = async {
        match ipv6 {
            true => Some(resolver.lookup(name.clone(), RecordType::AAAA).await),
            false => None,
        }
    };
    let (v4, v6) = tokio::join!(v4, v6);
    addresses_found(v4, v6)
}

/// What servers say of a name: its IPv4 addresses, and the others if they were asked for.
fn addresses_found(v4: Result<Lookup, NetError>, v6: Option<Result<Lookup, NetError>>) -> Found {
    let mut error = ResolveError::NotFound;
    let mut ttls_s = Vec::new();
    let mut addresses = |answer: Result<Lookup, NetError>, are_ipv4: bool| {
        let (found, ttl_s) = match answer {
            Ok(lookup) => {
                let found = addresses_of(&lookup, are_ipv4);
                let least = found.iter().map(|(_, ttl_s)| *ttl_s).min();
                (found, least.unwrap_or(0))
            }
            Err(why) => match meaning(&why) {
                NotThere::Final { ttl_s } => (Vec::new(), ttl_s),
                NotThere::Transient => {
                    error = ResolveError::Transient;
                    (Vec::new(), 0)
                }
            },
        };
        ttls_s.push(ttl_s);
        found
    };
    let v4 = addresses(v4, true);
    let v6 = v6.map(|v6| addresses(v6, false)).unwrap_or_default();
    let answer = match merge(v4, v6) {
        none if none.is_empty() => Err(error),
        some => Ok(Resolution::Addresses(some)),
    };
    Found { answer, ttls_s }
}

/// Those of the family that was asked for: a server may say others, too, which nobody has asked for.
fn addresses_of(lookup: &Lookup, are_ipv4: bool) -> Vec<(IpAddr, u32)> {
    let addresses = lookup.answers().iter().filter_map(|record| Some((record.data.ip_addr()?, record.ttl)));
    addresses.filter(|(address, _)| address.is_ipv4() == are_ipv4).collect()
}

/// IPv4 first; when there are too many, neither family pushes out the other.
fn merge(mut v4: Vec<(IpAddr, u32)>, mut v6: Vec<(IpAddr, u32)>) -> Vec<(IpAddr, u32)> {
    let half = Resolution::MAX_ANSWERS / 2;
    v4.truncate(Resolution::MAX_ANSWERS - v6.len().min(half));
    v6.truncate(Resolution::MAX_ANSWERS - v4.len());
    v4.append(&mut v6);
    v4
}

/// Why a lookup found nothing.
enum NotThere {
    /// A server's word that there is no such name, or no such address; it holds for so long (RFC 2308).
    Final {
        ttl_s: u32,
    },
    Transient,
}

fn meaning(error: &NetError) -> NotThere {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none))
            if matches!(none.response_code, ResponseCode::NXDomain | ResponseCode::NoError) =>
        {
            NotThere::Final { ttl_s: none.negative_ttl.unwrap_or(0) }
        }
        _ => NotThere::Transient,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_family_pushes_out_the_other() {
        let v4 = vec![(IpAddr::from([10, 0, 0, 1]), 60); 40];
        let v6 = vec![(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]), 60); 40];
        let count = |n4: usize, n6: usize| {
            let merged = merge(v4[..n4].to_vec(), v6[..n6].to_vec());
            let v4_count = merged.iter().filter(|(ip, _)| ip.is_ipv4()).count();
            (v4_count, merged.len() - v4_count)
        };
        assert_eq!(count(40, 40), (8, 8));
        assert_eq!(count(40, 0), (16, 0));
        assert_eq!(count(40, 3), (13, 3));
        assert_eq!(count(2, 40), (2, 14));
        assert_eq!(count(0, 0), (0, 0));
    }

    #[test]
    fn a_configuration_without_servers_means_the_machine_itself() {
        let path = std::env::temp_dir().join(format!("heddle-net-resolv-{}", std::process::id()));
        // One may be left of an earlier process of this number.
        let _ = fs::remove_file(&path);
        let options = ResolverOptions { resolv_conf: path.clone(), ..ResolverOptions::default() };
        let resolver = Resolver::start(options).unwrap();
        let refusal = resolver.reload().unwrap_err().to_string();
        assert!(refusal.starts_with(path.to_str().unwrap()), "{refusal}");
        assert!(!resolver.is_ready());
        fs::write(&path, "# nameserver 192.0.2.1").unwrap();
        let (config, _) = read_resolv_conf(&path).unwrap();
        let servers: Vec<IpAddr> = config.name_servers().iter().map(|server| server.ip).collect();
        assert_eq!(servers, [IpAddr::from([127, 0, 0, 1])]);
        resolver.reload().unwrap();
        fs::remove_file(&path).unwrap();
        assert!(resolver.reload().is_err() && resolver.is_ready(), "what was known stays");
    }
}
