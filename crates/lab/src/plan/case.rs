//! What flows over single wires, without Tor.

use std::time::Duration;

use heddle_netem::DirectionOptions;
use serde::Deserialize;

use super::units;
use crate::figures::Labels;

/// How long the receiver of probes waits for stragglers, beyond twice the wire's delay.
const STRAGGLERS: Duration = Duration::from_secs(1);
/// The most probes or pings of a case.
const PROBES_MAX: usize = 1_000_000;
const PROBE_BYTES: std::ops::RangeInclusive<usize> = 44..=1500;
const PROBE_INTERVAL_MIN: Duration = Duration::from_micros(100);

/// Something that flows over one wire. Exactly one of `bulk`, `share`, `probe` and `ping` is there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Labels of its figures, besides those of its arm; together unique in the plan.
    pub labels: Labels,
    /// How many such flows there are at the same time, each over a wire of its own: the samples are those of all. What
    /// chance makes vary needs several. Default: 1.
    #[serde(default = "one_flow")]
    pub copies: usize,
    /// The wire from the sending host.
    pub wire: DirectionOptions,
    /// The wire back. Default: like `wire`.
    #[serde(default)]
    pub back: Option<DirectionOptions>,
    /// TCP as fast as it goes.
    #[serde(default)]
    pub bulk: Option<Bulk>,
    /// Two of it.
    #[serde(default)]
    pub share: Option<Share>,
    /// Single datagrams.
    #[serde(default)]
    pub probe: Option<Probe>,
    /// Single datagrams that come back.
    #[serde(default)]
    pub ping: Option<Ping>,
}

/// One TCP connection that sends all the time. Gives `goodput_mbit_s`, one sample a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bulk {
    /// The kernel's name of the sender's congestion control.
    pub congestion_control: String,
    /// Whose TCP sends; it is always the kernel's that receives. Default: `linux`.
    #[serde(default)]
    pub sender: Tcp,
    /// From the connection's opening to the end.
    #[serde(deserialize_with = "units::duration")]
    pub duration: Duration,
    /// What of it does not count, because the connection is still speeding up. Default: 0 s.
    #[serde(default, deserialize_with = "units::duration")]
    pub warm_up: Duration,
}

/// Two TCP connections that send all the time, from one host to another over one wire. Gives `share_beside_linux`, what
/// the one of `utcp` gets of all that both get (or the second one, where neither is), and `together_mbit_s`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// The kernel's name of both senders' congestion control.
    pub congestion_control: String,
    /// Whose TCP sends first.
    pub first: Tcp,
    /// Whose TCP sends second. Both may be the kernel's, but not both `utcp`.
    pub second: Tcp,
    /// How much later the second one begins.
    #[serde(deserialize_with = "units::duration")]
    pub apart: Duration,
    /// From then to the end.
    #[serde(deserialize_with = "units::duration")]
    pub duration: Duration,
    /// What of it does not count. Default: 0 s.
    #[serde(default, deserialize_with = "units::duration")]
    pub warm_up: Duration,
}

/// Whose TCP it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tcp {
    /// The host's kernel's.
    #[default]
    Linux,
    /// The crate `utcp`, in place of the kernel.
    Utcp,
}

/// Numbered datagrams one way. Gives `delay_ms`, a sample for each that arrived, and `loss_pct`, a sample for each
/// thousand that were sent (fewer at the end do not count).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// How many, at most a million.
    pub count: usize,
    /// From one to the next, at least 100 µs.
    #[serde(deserialize_with = "units::duration")]
    pub interval: Duration,
    /// Length of an IP packet, from 44 to 1500.
    #[serde(default = "probe_bytes")]
    pub bytes: usize,
}

/// Numbered datagrams, each of which the other host sends back at once. They keep their times whether or not those
/// before them have come back. What they give is told by `figures::quantity`, in names that begin with `ping_`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ping {
    /// How many, at most a million.
    pub count: usize,
    /// From one to the next, at least 100 µs.
    #[serde(deserialize_with = "units::duration")]
    pub interval: Duration,
    /// Length of an IP packet, from 44 to 1500. Default: 84, as `ping` of Linux has it.
    #[serde(default = "ping_bytes")]
    pub bytes: usize,
}

impl Case {
    /// A case of pings over such a wire.
    pub(crate) fn of_pings(ping: Ping, [there, back]: [DirectionOptions; 2]) -> Case {
        Case {
            labels: Labels::new(),
            copies: one_flow(),
            wire: there,
            back: Some(back),
            bulk: None,
            share: None,
            probe: None,
            ping: Some(ping),
        }
    }

    /// How long the receiver of probes or pings waits for stragglers after the last one was sent.
    pub(crate) fn stragglers(&self) -> Duration {
        let back = self.back.as_ref().unwrap_or(&self.wire);
        STRAGGLERS + 2 * Duration::from_nanos(self.wire.delay_ns.max(back.delay_ns))
    }

    /// Both directions of its wire.
    pub(crate) fn directions(&self) -> [&DirectionOptions; 2] {
        [&self.wire, self.back.as_ref().unwrap_or(&self.wire)]
    }
}

impl Tcp {
    /// Its name in labels.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Tcp::Linux => "linux",
            Tcp::Utcp => "utcp",
        }
    }
}

pub(super) fn one_flow() -> usize {
    1
}

fn probe_bytes() -> usize {
    100
}

pub(super) fn ping_bytes() -> usize {
    84
}

/// Checks single datagrams.
pub(super) fn check_probes(
    what: &str,
    count: usize,
    interval: Duration,
    bytes: usize,
) -> std::result::Result<(), String> {
    if !(1..=PROBES_MAX).contains(&count) {
        return Err(format!("{count} {what}; possible is from 1 to {PROBES_MAX}"));
    }
    if interval < PROBE_INTERVAL_MIN {
        return Err(format!("{what} need an interval of at least 100 µs"));
    }
    if !PROBE_BYTES.contains(&bytes) {
        return Err(format!("{what} of {bytes} bytes; possible is from 44 to 1500"));
    }
    Ok(())
}
