//! The control plane on its event loop: what its node wants of the rest of the relay is carried out here.

use super::metrics::Known;
use super::{Failure, net_options, outcome};
use crate::torrc::Options;
use heddle_control::{ControlLanguage, ControlOptions, ControlPlane, Identity, Told, Wanted};
use heddle_net::{EventLoop, LoopHandle, NotTaken, Resolver, SystemEntropy, wall_clock};
use heddle_relay::RelayLanguage;
use std::net::SocketAddr;

const PLATFORM: &str = concat!("Heddle ", env!("CARGO_PKG_VERSION"), " on Linux");

/// The rest of the relay, as the control plane reaches it.
pub struct Reach {
    pub shards: Vec<LoopHandle<RelayLanguage>>,
    /// What metrics tell of the control plane.
    pub known: Known,
    /// Exits have one.
    pub resolver: Option<Resolver>,
}

/// A control plane, made and not running yet.
pub struct ControlThread(EventLoop<ControlLanguage, ControlPlane>);

impl ControlThread {
    pub fn new(
        options: &Options,
        identity: Identity,
        advertised: Vec<SocketAddr>,
        reach: Reach,
        entropy: SystemEntropy,
    ) -> Result<Self, Failure> {
        let shards = u16::try_from(reach.shards.len())?;
        let chosen = control_options(options, advertised);
        let now_unix_s = wall_clock().as_secs();
        let plane =
            ControlPlane::new(chosen, identity, shards, reach.can_resolve(), now_unix_s, Box::new(entropy));
        let mut event_loop = EventLoop::new(plane, net_options(options))?;
        let ours = event_loop.handle();
        event_loop.set_on_event(move |wanted| {
            if let Err(error) = reach.carry_out(wanted, &ours) {
                log::warn!("A shard was not told: {error}");
            }
        });
        Ok(ControlThread(event_loop))
    }

    pub fn handle(&self) -> LoopHandle<ControlLanguage> {
        self.0.handle()
    }

    /// Runs it on a thread of its own, and calls `ended` there when it is over.
    pub fn spawn(self, ended: impl FnOnce(Result<(), String>) + Send + 'static) -> std::io::Result<()> {
        std::thread::Builder::new().name("control plane".into()).spawn(move || {
            let run = || self.0.run().map(drop).map_err(|error| error.to_string());
            ended(outcome("the control plane", run).flatten());
        })?;
        Ok(())
    }
}

impl Reach {
    fn carry_out(&self, wanted: Wanted, ours: &LoopHandle<ControlLanguage>) -> Result<(), NotTaken> {
        match wanted {
            Wanted::Tell { shard, control } => {
                return self.shards.get(usize::from(shard)).map_or(Ok(()), |shard| shard.control(control));
            }
            Wanted::Carried => {
                let (read, written) = self.carried_bytes();
                // When the control plane has too much to hear it asks again in a second.
                let _ = ours.control(Told::Carried { read, written });
            }
            Wanted::NameServers { reload } => {
                if reload && let Some(Err(error)) = self.resolver.as_ref().map(Resolver::reload) {
                    log::warn!("Still no name can be resolved for clients: {error}");
                }
                let _ = ours.control(Told::NameServers { known: self.can_resolve() });
            }
            Wanted::Facts(facts) => self.known.set(facts),
        }
        Ok(())
    }

    /// Whether names can be resolved, as far as anybody needs that.
    fn can_resolve(&self) -> bool {
        self.resolver.as_ref().is_none_or(Resolver::is_ready)
    }

    /// Bytes read and written.
    fn carried_bytes(&self) -> (u64, u64) {
        let counters = self.shards.iter().map(LoopHandle::counters);
        counters.fold((0, 0), |(read, written), counters| {
            let datagrams = (counters.datagram_recv_bytes, counters.datagram_send_bytes);
            (read + counters.recv_bytes + datagrams.0, written + counters.send_bytes + datagrams.1)
        })
    }
}

fn control_options(options: &Options, advertised: Vec<SocketAddr>) -> ControlOptions {
    let addresses: Vec<_> = advertised.iter().map(SocketAddr::ip).collect();
    let (bandwidth_rate, bandwidth_burst) = options.relay_rate_and_burst();
    ControlOptions {
        nickname: options.nickname.clone(),
        contact: options.contact_info.clone(),
        family: options.my_family.clone(),
        platform: PLATFORM.to_owned(),
        advertised,
        authorities: options.authorities().cloned().collect(),
        data_directory: options.data_directory.clone(),
        cache_directory: options.cache_directory().to_owned(),
        assume_reachable: options.assume_reachable,
        publish: options.publish_server_descriptor,
        offline_master_key: options.offline_master_key,
        exit_policy: options.exit_policy(&addresses),
        bandwidth_rate,
        bandwidth_burst,
        max_advertised_bandwidth: options.max_advertised_bandwidth,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_dir::authority::DirAuthority;
    use heddle_dir::certs::ChannelCerts;
    use heddle_dir::files::Disk;
    use heddle_dir::keys::RelayKeys;
    use heddle_seam::rng::Entropy;
    use std::io::Read;
    use std::net::{IpAddr, TcpListener};
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
        let keys = crate::relay::key_options(&options);
        let keys = RelayKeys::load_or_create(keys, now_unix_s, &mut entropy.rng()).unwrap();
        let certs = Arc::new(ChannelCerts::create(&keys, now_unix_s, &mut entropy.rng()).unwrap());
        let identity = Identity { keys, certs, files: Arc::new(Disk) };
        let reach = Reach { shards: Vec::new(), known: Known::default(), resolver: None };
        let advertised = vec![([203, 0, 113, 5], 9001).into()];
        let thread = ControlThread::new(&options, identity, advertised, reach, entropy).unwrap();
        let control = thread.handle();
        let (ended, end) = mpsc::channel();
        thread.spawn(move |result| drop(ended.send(result))).unwrap();

        let (mut stream, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), IpAddr::from([127, 0, 0, 2]));
        let mut request = [0; 13];
        stream.read_exact(&mut request).unwrap();
        assert_eq!(&request, b"POST /tor/ HT");
        control.control(Told::Ending).unwrap();
        control.stop();
        assert_eq!(end.recv(), Ok(Ok(())));
        let state = std::fs::read_to_string(directory.path().join("state")).unwrap();
        assert!(state.contains("BWHistoryReadEnds "), "{state}");
    }
}
