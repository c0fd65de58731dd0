//! Arms with a private Tor network: brought up once in each run, and taken through the phases of the plan.

mod hops;
mod phase;
mod sockets;
mod streams;
mod transport_use;
mod wire_use;
mod wire_view;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use toml::Spanned;

use super::sampled::Sampled;
use crate::arm::Transport;
use crate::backend::{Backend, BackendReport, Deployment, Placed, Reached, Role, ServerKind};
use crate::error::Result;
use crate::plan::hosts::{self, AUTHORITIES};
use crate::plan::{Flow, Relay, Tor, TorArm};
use crate::testnet::Program;

/// Has a Heddle relay leave Nagle's algorithm on.
const NAGLE: &str = "HeddleTCPNoDelay 0";
/// Has one count for clients that ask.
const MEASURE: &str = "HeddleMeasure 1";

/// One arm in one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArmRun<'a> {
    pub(super) tor: &'a Tor,
    pub(super) arm: &'a TorArm,
    /// Which run it is, from 0.
    pub(super) run: usize,
    pub(super) seed: u64,
}

impl ArmRun<'_> {
    /// Brings the network up, goes through its phases, and takes everything away.
    pub(super) fn measure(
        self,
        backend: &mut dyn Backend,
        on_step: &mut dyn FnMut(&str),
    ) -> Result<(Vec<Sampled>, BackendReport)> {
        let ArmRun { tor, arm, run, seed } = self;
        let mut testbed = backend.bring_up(&self.deployment(), on_step)?;
        let (mut samples, mut reasons) = (Vec::new(), Vec::new());
        for phase in tor.phases_of(arm, run) {
            let played = phase::PhaseRun { tor, arm, phase, seed }.measure(testbed.as_mut(), on_step)?;
            samples.extend(played.samples);
            reasons.extend(played.faults);
        }
        let mut report = testbed.take_down()?;
        report.reasons.extend(reasons);
        Ok((samples, report))
    }

    /// What it brings up.
    pub(super) fn deployment(self) -> Deployment {
        let ArmRun { tor, arm, run, seed } = self;
        let first = tor.phases_of(arm, run).next();
        Deployment {
            network: hosts::hosts(tor, arm),
            programs: programs(tor, arm),
            seed,
            attackers_act: first.is_some_and(|phase| phase.attack_early),
        }
    }
}

/// What runs on the hosts of a plan's network.
fn programs(tor: &Tor, arm: &TorArm) -> Vec<Placed> {
    let all = |ours: &[String], arms: &[String]| [ours, arms].concat();
    let place = |host: &str, role: Role| Placed { host: host.to_owned(), role };
    let authorities = Role::Authorities { torrc: all(&tor.authority_torrc, &arm.authority_torrc) };
    let mut programs = vec![place(AUTHORITIES, authorities)];
    programs.extend(
        tor.relays.iter().map(Spanned::as_ref).map(|options| place(&options.name, relay(options, tor, arm))),
    );
    let client_torrc = all(&tor.client_torrc, &arm.client_torrc);
    let clients = tor.clients.iter().map(Spanned::as_ref);
    programs
        .extend(clients.map(|client| place(&client.name, Role::OnionProxy { torrc: client_torrc.clone() })));
    let of_flows = tor.flows.iter().map(Spanned::as_ref).map(|flow| (&*flow.to, server_of(flow)));
    let of_all = tor.server.iter().map(|host| (&**host, Reached::FromAnywhere.into()));
    let servers: BTreeSet<(&str, ServerKind)> = of_flows.chain(of_all).collect();
    programs.extend(servers.into_iter().map(|(host, kind)| place(host, Role::Server(kind))));
    if tor.server.is_none() {
        let paths = tor.clients.iter().map(|client| &client.as_ref().path);
        let paths = paths.chain(tor.phases.iter().map(|phase| &phase.as_ref().path));
        let exits: BTreeSet<&String> = paths.filter_map(|path| path.last()).collect();
        programs.extend(exits.into_iter().map(|exit| place(exit, Role::Server(Reached::FromItsHost.into()))));
    }
    programs
}

/// The server that answers a flow.
fn server_of(flow: &Flow) -> ServerKind {
    ServerKind { reached: Reached::FromAnywhere, congestion_control: flow.congestion_control.clone() }
}

/// What an arm makes of a relay.
fn relay(options: &Relay, tor: &Tor, arm: &TorArm) -> Role {
    let transport = arm.transport_of(options);
    let program = if transport == Transport::Stock { Program::Stock } else { Program::Heddle };
    let mut torrc: Vec<String> =
        transport.heddle_name().map(|name| format!("HeddleTransports {name}")).into_iter().collect();
    torrc.extend((program == Program::Heddle && !arm.nodelay).then(|| NAGLE.to_owned()));
    let counts = tor.phases_of(arm, 0).any(|phase| phase.hops);
    torrc.extend(counts.then(|| MEASURE.to_owned()));
    torrc.extend(arm.relay_torrc.iter().chain(&options.torrc).cloned());
    Role::Relay { program, exit: options.exit, torrc }
}
