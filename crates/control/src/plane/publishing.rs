//! The descriptor: what it says, and its way to the authorities.

use super::following::PROTOCOLS;
use crate::options::ControlOptions;
use heddle_dir::consensus::Consensus;
use heddle_dir::descriptor::{Bandwidth, DescriptorOptions, sign_descriptor};
use heddle_dir::http::{self, HttpError, HttpResponse, Request};
use heddle_dir::keys::RelayKeys;
use heddle_dir::publish::{
    POST_ANSWER_BYTES_MAX, POST_MAX, POST_PATH, PostOutcome, PublishReason, PublishSchedule, PublishView,
    addressees,
};
use heddle_proto::policy::ExitPolicy;
use std::net::SocketAddr;

#[derive(Default)]
pub(crate) struct Publishing {
    schedule: PublishSchedule,
    posting: Option<Posting>,
}

/// A descriptor on its way to the authorities.
struct Posting {
    reason: PublishReason,
    view: PublishView,
    /// Authorities that it was sent to, and those that have not answered yet.
    authorities: usize,
    left: usize,
    accepted: usize,
}

/// What a descriptor is about, as it is now.
pub(crate) struct Described<'a> {
    pub options: &'a ControlOptions,
    /// Where we are reached, as far as that is known.
    pub advertised: &'a [SocketAddr],
    pub exit_policy: &'a ExitPolicy,
    pub keys: &'a RelayKeys,
    /// Whether names can be resolved, without which no relay is an exit.
    pub resolves: bool,
    pub now_unix_s: u64,
    pub uptime_s: u64,
    pub observed_bandwidth: u32,
    pub consensus: Option<&'a Consensus>,
}

impl Publishing {
    /// Something in the descriptor other than bandwidth and uptime has changed.
    pub fn on_change(&mut self) {
        self.schedule.on_change();
    }

    #[cfg(test)]
    pub fn is_posting(&self) -> bool {
        self.posting.is_some()
    }

    /// What to send to the authorities of these names now, if anything. One descriptor at a time is under way.
    pub fn poll(&mut self, described: &Described<'_>) -> Vec<(String, Request)> {
        if self.posting.is_some() {
            return Vec::new();
        }
        let view = described.view();
        let Some(reason) = self.schedule.poll(&view) else { return Vec::new() };
        let Some(descriptor) = described.descriptor() else { return Vec::new() };
        self.schedule.on_signed();
        let descriptor = match sign_descriptor(&descriptor, described.keys, view.now_unix_s) {
            Ok(descriptor) => descriptor,
            Err(error) => {
                log::error!("No descriptor: {error}");
                self.schedule.on_published(&view, false);
                return Vec::new();
            }
        };
        let requests: Vec<(String, Request)> = addressees(&described.options.authorities)
            .map(|authority| {
                let to = authority.upload_address();
                let name = authority.nickname.clone().unwrap_or_else(|| "an authority".to_owned());
                let bytes = http::post(to, POST_PATH, descriptor.text.as_bytes());
                (name, Request { to, bytes, body_bytes_max: POST_ANSWER_BYTES_MAX, within: POST_MAX })
            })
            .collect();
        let authorities = requests.len();
        self.posting = Some(Posting { reason, view, authorities, left: authorities, accepted: 0 });
        self.end_posting();
        requests
    }

    pub fn on_answer(&mut self, authority: &str, answer: Result<HttpResponse, HttpError>) {
        let Some(posting) = &mut self.posting else { return };
        posting.left -= 1;
        match PostOutcome::from_result(answer) {
            PostOutcome::Accepted => {
                posting.accepted += 1;
                log::debug!("{authority} took our descriptor");
            }
            PostOutcome::Refused { status, reason } => {
                log::warn!("{authority} refused our descriptor: {status} {reason}");
            }
            PostOutcome::Unreachable(error) => log::debug!("{authority} could not be asked: {error}"),
        }
        self.end_posting();
    }

    /// Notes what came of a posting of which nothing is left.
    fn end_posting(&mut self) {
        let Some(Posting { reason, view, authorities, accepted, .. }) =
            self.posting.take_if(|posting| posting.left == 0)
        else {
            return;
        };
        match accepted {
            0 => log::info!("None of {authorities} authorities took our descriptor ({reason:?})"),
            _ => log::info!("Published our descriptor ({reason:?}); {accepted} authorities took it"),
        }
        self.schedule.on_published(&view, accepted > 0);
    }
}

impl Described<'_> {
    fn view(&self) -> PublishView {
        let live = self.consensus.filter(|consensus| consensus.is_live(self.now_unix_s));
        PublishView {
            now_unix_s: self.now_unix_s,
            uptime_s: self.uptime_s,
            observed_bandwidth: self.observed_bandwidth,
            listing: live.map(|consensus| consensus.listing(&self.keys.rsa_id())),
            is_testing: self.options.testing_tor_network,
        }
    }

    /// `None` while our IPv4 address is not known.
    pub fn descriptor(&self) -> Option<DescriptorOptions> {
        let options = self.options;
        let (ipv4, or_port) = self.advertised.iter().find_map(|addr| match addr {
            SocketAddr::V4(addr) => Some((*addr.ip(), addr.port())),
            SocketAddr::V6(_) => None,
        })?;
        let ipv6_or_address = self.advertised.iter().find_map(|addr| match addr {
            SocketAddr::V4(_) => None,
            SocketAddr::V6(addr) => Some(*addr),
        });
        let nothing = ExitPolicy::reject_all();
        let policy = if self.resolves { self.exit_policy } else { &nothing };
        let advertised_max = options.max_advertised_bandwidth;
        let clip = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX).min(i32::MAX as u32);
        Some(DescriptorOptions {
            nickname: options.nickname.clone(),
            ipv4,
            or_port,
            dir_port: 0,
            ipv6_or_address,
            platform: options.platform.clone(),
            protocols: PROTOCOLS.to_owned(),
            uptime_s: self.uptime_s,
            bandwidth: Bandwidth {
                rate: clip(options.bandwidth_rate.min(advertised_max)),
                burst: clip(options.bandwidth_burst),
                observed: self.observed_bandwidth.min(clip(advertised_max)),
            },
            contact: options.contact.clone(),
            family: options.family.clone(),
            hibernating: false,
            hidden_service_dir: false,
            tunnelled_dir_server: false,
            exit_policy: policy.descriptor_lines(),
            ipv6_policy: policy.ipv6_summary(),
        })
    }
}
