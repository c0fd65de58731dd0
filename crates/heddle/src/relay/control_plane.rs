//! The control plane on its event loop: what its node wants of the rest of the relay is carried out here.

use super::address::OwnAddresses;
use super::metrics::DriverMetrics;
use super::{Failure, net_options, outcome};
use heddle_assembly::Setup;
use heddle_control::{ControlLanguage, ControlPlane, Identity, Told, Wanted};
use heddle_net::{EventLoop, LoopHandle, NotTaken, Resolver, SystemEntropy, wall_clock};
use heddle_relay::{Control, RelayLanguage};
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::Duration;

/// The rest of the relay, as the control plane reaches it.
pub struct Reach {
    pub shards: Vec<LoopHandle<RelayLanguage>>,
    pub metrics: DriverMetrics,
    /// Exits have one.
    pub resolver: Option<Resolver>,
    /// Shards that missed something of which the control plane has not heard yet.
    pub missed: BTreeSet<u16>,
    pub own_addresses: OwnAddresses,
}

/// A control plane, made and not running yet.
pub(crate) struct ControlThread(EventLoop<ControlLanguage, ControlPlane>);

impl ControlThread {
    pub fn new(
        setup: &Setup<'_>,
        identity: Identity,
        mut reach: Reach,
        metrics_port: Option<TcpListener>,
        entropy: SystemEntropy,
    ) -> Result<Self, Failure> {
        let now_unix_s = wall_clock().as_secs();
        let plane = setup.control_plane(identity, reach.can_resolve(), now_unix_s, Box::new(entropy));
        // A clock that was set shows at once, in what is published and renewed.
        let net =
            heddle_net::Options { wall_clock_every: Duration::from_secs(1), ..net_options(setup.options) };
        let mut event_loop = EventLoop::new(plane, net)?;
        if let Some(listener) = metrics_port {
            log::info!("Metrics are served at {}", listener.local_addr()?);
            event_loop.add_listener(listener)?;
        }
        let ours = event_loop.handle();
        event_loop.set_on_event(move |wanted| reach.carry_out(wanted, &ours));
        Ok(ControlThread(event_loop))
    }

    pub fn handle(&self) -> LoopHandle<ControlLanguage> {
        self.0.handle()
    }

    /// Runs it on a thread of its own, and calls `ended` there when it is over.
    pub fn spawn(self, ended: impl FnOnce(Result<(), String>) + Send + 'static) -> std::io::Result<()> {
        std::thread::Builder::new().name("control plane".into()).spawn(move || {
            let run = || self.0.run().map(|plane| plane.save()).map_err(|error| error.to_string());
            ended(outcome("the control plane", run).flatten());
        })?;
        Ok(())
    }
}

impl Reach {
    fn carry_out(&mut self, wanted: Wanted, ours: &LoopHandle<ControlLanguage>) {
        // When the control plane itself has too much to hear, what it asks every second comes another time.
        let answer = |told| {
            let _ = ours.control(told);
        };
        match wanted {
            Wanted::Tell { shard, control } => {
                // What is asked for again by itself need not be repeated.
                let is_news = !matches!(
                    control,
                    Control::Stats | Control::ProbeReachability { .. } | Control::AskAddress { .. }
                );
                let taken = self.shards.get(usize::from(shard)).map(|shard| shard.control(control));
                if is_news && taken == Some(Err(NotTaken::Full)) && self.missed.insert(shard) {
                    log::warn!(
                        "Shard {shard} has too much to hear, and is told once more what it has to know"
                    );
                }
            }
            Wanted::Carried => {
                self.missed.retain(|shard| ours.control(Told::Missed { shard: *shard }).is_err());
                answer(Told::Carried(self.metrics.carried()));
            }
            Wanted::NameServers { reload } => {
                if reload && let Some(Err(error)) = self.resolver.as_ref().map(Resolver::reload) {
                    log::warn!("Still no name can be resolved for clients: {error}");
                }
                answer(Told::NameServers { known: self.can_resolve() });
            }
            Wanted::Addresses => {
                if let Some(addresses) = self.own_addresses.look() {
                    answer(Told::Addresses(addresses));
                }
            }
            Wanted::Figures => answer(Told::Figures(Box::new(self.metrics.figures()))),
        }
    }

    /// Whether names can be resolved, as far as anybody needs that.
    fn can_resolve(&self) -> bool {
        self.resolver.as_ref().is_none_or(Resolver::is_ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::metrics::Timed;
    use crate::torrc::Options;
    use heddle_dir::authority::DirAuthority;
    use heddle_dir::certs::ChannelCerts;
    use heddle_dir::files::Disk;
    use heddle_dir::keys::RelayKeys;
    use heddle_relay::Limits;
    use heddle_seam::rng::Entropy;
    use std::io::Read;
    use std::net::IpAddr;
    use std::sync::{Arc, mpsc};

    #[test]
    fn authorities_are_asked_from_the_address_that_the_operator_chose_and_told_of_us() {
        let directory = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let authority = format!("a {} {}", listener.local_addr().unwrap(), "00".repeat(20));
        let mut options = Options { data_directory: directory.path().to_owned(), ..Options::default() };
        options.dir_authority.push(DirAuthority::parse(&authority, &mut Vec::new()).unwrap());
        options.outbound_bind_address.push([127, 0, 0, 2].into());
        options.assume_reachable = true;
        options.publish_server_descriptor = true;
        let mut entropy = SystemEntropy::new().unwrap();
        let now_unix_s = wall_clock().as_secs();
        let keys = heddle_assembly::key_options(&options);
        let keys = RelayKeys::load_or_create(keys, now_unix_s, &mut entropy.rng()).unwrap();
        let certs = Arc::new(ChannelCerts::create(&keys, now_unix_s, &mut entropy.rng()).unwrap());
        let identity = Identity { keys, certs, files: Arc::new(Disk) };
        let metrics =
            DriverMetrics { shards: Vec::new(), timed: Timed::new(&options), sockets_max: Some(1000) };
        let (missed, own_addresses) = (BTreeSet::new(), OwnAddresses::default());
        let reach = Reach { shards: Vec::new(), metrics, resolver: None, missed, own_addresses };
        let setup = Setup {
            options: &options,
            platform: "Heddle",
            advertised: vec![([203, 0, 113, 5], 9001).into()],
            shards: 0,
            queue_bytes_max: 0,
            sockets_max: None,
            limits: Limits::default(),
        };
        let thread = ControlThread::new(&setup, identity, reach, None, entropy).unwrap();
        let control = thread.handle();
        let (ended, end) = mpsc::channel();
        thread.spawn(move |result| drop(ended.send(result))).unwrap();

        // Whatever is wrong, the test ends.
        let patience = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
        let mut ready = [rustix::event::PollFd::new(&listener, rustix::event::PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut ready, Some(&patience)), Ok(1), "nobody was told of us");
        let (mut stream, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), IpAddr::from([127, 0, 0, 2]));
        let mut request = [0; 13];
        stream.read_exact(&mut request).unwrap();
        assert_eq!(&request, b"POST /tor/ HT");
        control.stop();
        assert_eq!(end.recv(), Ok(Ok(())));
        let state = std::fs::read_to_string(directory.path().join("state")).unwrap();
        assert!(state.contains("BWHistoryReadEnds "), "{state}");
    }
}
