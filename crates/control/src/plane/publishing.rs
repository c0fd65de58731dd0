//! The descriptor: what it says, and its way to the authorities.

use super::following::PROTOCOLS;
use super::{ControlPlane, Purpose};
use crate::exchanges::Request;
use heddle_dir::descriptor::{Bandwidth, DescriptorOptions, sign_descriptor};
use heddle_dir::http::{self, HttpError, HttpResponse};
use heddle_dir::publish::{
    POST_ANSWER_BYTES_MAX, POST_MAX, POST_PATH, PostOutcome, PublishReason, PublishView, addressees,
};
use heddle_proto::policy::ExitPolicy;
use heddle_seam::time::Instant;
use std::net::SocketAddr;

/// A descriptor on its way to the authorities.
pub(super) struct Posting {
    reason: PublishReason,
    view: PublishView,
    /// Authorities that have not answered yet.
    left: usize,
    accepted: usize,
}

impl ControlPlane {
    pub(super) fn publish(&mut self, now: Instant) {
        if self.posting.is_some() {
            return;
        }
        let view = self.view(now);
        let Some(reason) = self.schedule.poll(&view) else { return };
        let Some(descriptor) = self.describe(&view) else { return };
        self.schedule.on_signed();
        let descriptor = match sign_descriptor(&descriptor, &self.identity.keys, view.now_unix_s) {
            Ok(descriptor) => descriptor,
            Err(error) => {
                log::error!("No descriptor: {error}");
                return self.schedule.on_published(&view, false);
            }
        };
        let to: Vec<(SocketAddr, String)> = addressees(&self.options.authorities)
            .map(|authority| {
                let name = authority.nickname.clone().unwrap_or_else(|| "an authority".to_owned());
                (authority.dir_address.into(), name)
            })
            .collect();
        self.posting = Some(Posting { reason, view, left: to.len(), accepted: 0 });
        for (to, name) in to {
            let request = Request {
                to,
                bytes: http::post(to, POST_PATH, descriptor.text.as_bytes()),
                body_bytes_max: POST_ANSWER_BYTES_MAX,
                within: POST_MAX,
            };
            self.ask(now, request, Purpose::Post(name));
        }
        self.end_posting();
    }

    pub(super) fn on_posted(&mut self, authority: &str, answer: Result<HttpResponse, HttpError>) {
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
        let Some(Posting { reason, view, accepted, .. }) = self.posting.take_if(|posting| posting.left == 0)
        else {
            return;
        };
        log::info!("Published our descriptor ({reason:?}); {accepted} authorities took it");
        self.schedule.on_published(&view, accepted > 0);
    }

    fn view(&self, now: Instant) -> PublishView {
        let now_unix_s = self.unix_s(now);
        let live = self.directory.consensus().filter(|consensus| consensus.is_live(now_unix_s));
        PublishView {
            now_unix_s,
            uptime_s: self.started.map_or(0, |started| now.since(started).as_secs()),
            observed_bandwidth: self.bandwidth.observed(),
            listing: live.map(|consensus| consensus.listing(&self.identity.keys.rsa_id())),
        }
    }

    pub(super) fn describe(&self, view: &PublishView) -> Option<DescriptorOptions> {
        let options = &self.options;
        let (ipv4, or_port) = options.advertised.iter().find_map(|addr| match addr {
            SocketAddr::V4(addr) => Some((*addr.ip(), addr.port())),
            SocketAddr::V6(_) => None,
        })?;
        let ipv6_or_address = options.advertised.iter().find_map(|addr| match addr {
            SocketAddr::V4(_) => None,
            SocketAddr::V6(addr) => Some(*addr),
        });
        let nothing = ExitPolicy::reject_all();
        let policy = if self.resolves { &options.exit_policy } else { &nothing };
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
            uptime_s: view.uptime_s,
            bandwidth: Bandwidth {
                rate: clip(options.bandwidth_rate.min(advertised_max)),
                burst: clip(options.bandwidth_burst),
                observed: view.observed_bandwidth.min(clip(advertised_max)),
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
