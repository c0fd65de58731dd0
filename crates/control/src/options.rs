//! What the operator chose, as far as the control plane is concerned.

use heddle_dir::authority::DirAuthority;
use heddle_proto::policy::ExitPolicy;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Options of a [`ControlPlane`](crate::ControlPlane), by the names that they have in a torrc where they have one.
#[derive(Clone, Debug)]
pub struct ControlOptions {
    pub nickname: String,
    /// `ContactInfo`.
    pub contact: Option<String>,
    /// `MyFamily`.
    pub family: Vec<String>,
    /// The program and its version, for the descriptor.
    pub platform: String,
    /// Where the ORPort is reached from outside at the start. 0.0.0.0 is an address that is not known: authorities
    /// tell it.
    pub advertised: Vec<SocketAddr>,
    /// `DirAuthority`.
    pub authorities: Vec<DirAuthority>,
    /// `DataDirectory`.
    pub data_directory: PathBuf,
    /// `CacheDirectory`.
    pub cache_directory: PathBuf,
    /// `AssumeReachable`.
    pub assume_reachable: bool,
    /// `PublishServerDescriptor`.
    pub publish: bool,
    /// `TestingTorNetwork`.
    pub testing_tor_network: bool,
    /// What the exit allows, once names can be resolved.
    pub exit_policy: ExitPolicy,
    /// Whether it is to reject our own address too, once that is known.
    pub exit_rejects_own: bool,
    /// `RelayBandwidthRate` or what stands for it, in bytes per second.
    pub bandwidth_rate: u64,
    /// `RelayBandwidthBurst` or what stands for it, in bytes.
    pub bandwidth_burst: u64,
    /// `MaxAdvertisedBandwidth`, in bytes per second.
    pub max_advertised_bandwidth: u64,
    /// `MetricsPortPolicy`: who may ask for metrics.
    pub metrics_policy: ExitPolicy,
}

impl ControlOptions {
    /// What a relay has that publishes itself without asking whether it is reached, is no exit and tells no metrics,
    /// with all its files in `directory`.
    pub fn new(
        nickname: impl Into<String>,
        directory: impl Into<PathBuf>,
        advertised: Vec<SocketAddr>,
        authorities: Vec<DirAuthority>,
    ) -> Self {
        let directory = directory.into();
        ControlOptions {
            nickname: nickname.into(),
            contact: None,
            family: Vec::new(),
            platform: "Heddle".to_owned(),
            advertised,
            authorities,
            data_directory: directory.clone(),
            cache_directory: directory,
            assume_reachable: true,
            publish: true,
            testing_tor_network: false,
            exit_policy: ExitPolicy::reject_all(),
            exit_rejects_own: true,
            bandwidth_rate: 1 << 30,
            bandwidth_burst: 1 << 30,
            max_advertised_bandwidth: 1 << 30,
            metrics_policy: ExitPolicy::reject_all(),
        }
    }
}
