//! The stacks of transports whose flows are the kernel's TCP connections, one for each shard.
//!
//! They are made before the program has a second thread, because only then an ordinary user may make them. Where the
//! system allows none, the relay says so once and does not offer the transport.

use super::{Failure, sockets};
use crate::torrc::Options;
use heddle_net::{Stack, StackError, StackSetup};
use heddle_transport::registry::Registered;
use std::collections::BTreeMap;
use std::fs;

/// The congestion control where the operator chose none: kernels have it, however they are set, and it is what most
/// of the Internet's connections have.
const CONGESTION_CONTROL: &str = "cubic";

/// With fewer sockets than these, ready ones included, a shard has none for flows beside control streams.
const SHARD_SOCKETS_MIN: u64 = 8;

/// The stacks that were made, by shard and transport.
#[derive(Default)]
pub struct Stacks {
    open: BTreeMap<(u16, &'static str), Stack>,
    /// What is to be told once there is a log.
    warnings: Vec<String>,
}

impl Stacks {
    /// Makes the stacks of so many shards, by helpers. The program must have one thread.
    ///
    /// # Errors
    /// When the kernel does not have the congestion control that the operator chose.
    pub fn open(options: &Options, sockets: &heddle_net::Options, shards: u16) -> Result<Self, Failure> {
        let chosen = options.heddle.esp_congestion_control.as_deref();
        let mut setup = StackSetup {
            congestion_control: Some(chosen.unwrap_or(CONGESTION_CONTROL).to_owned()),
            sockets: sockets.clone(),
            plain_device: !options.heddle.udp_offload,
        };
        let is_chosen = chosen.is_some();
        let mut stacks = Stacks::default();
        for transport in options.heddle.over_datagrams() {
            let Some(wanted) = transport.stack else { continue };
            let name = transport.transport.name;
            for shard in 0..shards {
                let mut opened = Stack::open(&wanted, &setup);
                if opened.as_ref().is_err_and(|error| !is_chosen && error.is_congestion_control()) {
                    // A kernel without it has another.
                    setup.congestion_control = None;
                    opened = Stack::open(&wanted, &setup);
                }
                match opened {
                    Ok(stack) => {
                        // All of them are refused the same.
                        if shard == 0 {
                            stacks.warnings.extend(worse(name, &stack));
                            stacks.warnings.extend(slower(name, &stack).filter(|_| !setup.plain_device));
                        }
                        stacks.open.insert((shard, name), stack);
                    }
                    Err(error) if is_chosen && error.is_congestion_control() => {
                        return Err(unknown(&setup).into());
                    }
                    Err(error) => {
                        stacks.open.retain(|(_, other), _| *other != name);
                        stacks.warnings.push(missing(name, &error));
                        break;
                    }
                }
            }
        }
        Ok(stacks)
    }

    /// Says what is missing, if anything is.
    pub fn warn(&self) {
        self.warnings.iter().for_each(|warning| log::warn!("{warning}"));
    }

    /// How many sockets there may be on all of them, where the process may have `sockets_max` descriptors. With too few
    /// for each shard there are no stacks.
    pub fn sockets_max(&mut self, options: &Options, sockets_max: Option<u64>, shards: u16) -> u64 {
        if self.open.is_empty() {
            return 0;
        }
        let chosen = options.heddle.esp_sockets_max;
        let granted = sockets::on_stacks(chosen, sockets_max);
        if let Some(chosen) = chosen.filter(|chosen| u64::from(*chosen) > granted) {
            log::warn!(
                "HeddleESPSocketsMax {chosen} is more than half of the descriptors that the process may have, so it is \
                 {granted}; raise the limit (ulimit -n), or lower it"
            );
        }
        if granted < SHARD_SOCKETS_MIN * u64::from(shards) {
            log::warn!(
                "tcp-esp is not offered, and circuits take the other transports, because it has {granted} sockets, and \
                 {shards} shards need {SHARD_SOCKETS_MIN} each: raise HeddleESPSocketsMax, or the limit of descriptors \
                 (ulimit -n)"
            );
            self.open.clear();
            return 0;
        }
        granted
    }

    /// The stack that a shard has for a transport, to keep.
    pub fn take(&mut self, shard: u16, transport: &Registered) -> Option<Stack> {
        self.open.remove(&(shard, transport.transport.name))
    }
}

fn worse(transport: &str, stack: &Stack) -> Option<String> {
    let settings = stack.unwritten_settings();
    (!settings.is_empty()).then(|| {
        format!(
            "{transport} works less well than it could, because this system does not let the relay set {} in its own \
             network namespaces",
            settings.join(", ")
        )
    })
}

fn slower(transport: &str, stack: &Stack) -> Option<String> {
    stack.has_plain_device().then(|| {
        format!(
            "{transport} takes more processor time than it could, because this system's /dev/net/tun leaves no \
             segmenting to the relay: each packet is handed over by itself"
        )
    })
}

fn missing(transport: &str, error: &StackError) -> String {
    format!(
        "{transport} is not offered, and circuits take the other transports, because this system gives the relay no \
         network stack of its own: {error}. It takes /dev/net/tun and either user namespaces or the capabilities \
         CAP_SYS_ADMIN and CAP_NET_ADMIN"
    )
}

fn unknown(setup: &StackSetup) -> String {
    let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let known = known.map(|names| names.trim().to_owned()).unwrap_or_else(|_| "what it lists".to_owned());
    let chosen = setup.congestion_control.as_deref().unwrap_or_default();
    format!(
        "HeddleESPCongestionControl {chosen} is none of this kernel's congestion controls: there are {known}"
    )
}
