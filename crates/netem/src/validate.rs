//! What options must hold before wires are made of them, one sentence for each fault.

use crate::options::{
    DirectionOptions, Flap, HostOptions, InterfaceOptions, Jitter, Loss, PolicerOptions, QueueOptions,
    Reorder, Step, TopologyOptions, WireOptions,
};
use crate::rate::Rate;
use core::fmt;
use std::collections::BTreeSet;

/// The longest packet that a wire can take: with it the arithmetic of rates stays within 64 bits.
pub(crate) const PACKET_BYTES_MAX: u64 = 16 << 20;

/// The longest duration of a delay, a jitter or a hold: one day.
pub(crate) const DURATION_NS_MAX: u64 = 86_400_000_000_000;

/// The highest rate: 1 Pbit/s.
pub(crate) const RATE_BITS_PER_S_MAX: u64 = 1_000_000_000_000_000;

const HOSTS_MAX: usize = 1 << 20;
const NAME_BYTES_MAX: usize = 64;
const QUEUE_PACKETS_MAX: u64 = 10_000_000;
const BYTES_MAX: u64 = 64 << 30;
const TABLE_MAX: usize = 65_536;

/// A fault in options: where, and what is wrong, as one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionsError(String);

impl OptionsError {
    fn new(sentence: impl Into<String>) -> Self {
        OptionsError(sentence.into())
    }

    /// The same fault, seen from what contains it.
    fn within(self, place: impl fmt::Display) -> Self {
        OptionsError(format!("{place}: {}", self.0))
    }
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OptionsError {}

type Checked = Result<(), OptionsError>;

impl TopologyOptions {
    /// The first fault, if there is one.
    pub fn validate(&self) -> Checked {
        let hosts = self.hosts.len();
        check(hosts <= HOSTS_MAX, || format!("there are {hosts} hosts, at most {HOSTS_MAX} are possible"))?;
        let mut names = BTreeSet::new();
        for host in &self.hosts {
            host.validate()?;
            check(names.insert(host.name.as_str()), || format!("host \"{}\" is there twice", host.name))?;
        }
        let mut pairs = BTreeSet::new();
        for wire in &self.wires {
            let place = format!("wire from \"{}\" to \"{}\"", wire.from, wire.to);
            for end in [&wire.from, &wire.to] {
                check(names.contains(end.as_str()), || format!("{place}: there is no host \"{end}\""))?;
            }
            wire.validate()?;
            let pair = if wire.from < wire.to { (&wire.from, &wire.to) } else { (&wire.to, &wire.from) };
            check(pairs.insert(pair), || format!("{place}: the two hosts have a wire already"))?;
        }
        self.default_wire
            .as_ref()
            .map_or(Ok(()), |wire| wire.validate().map_err(|e| e.within("default_wire")))
    }
}

impl HostOptions {
    /// The first fault, if there is one.
    pub fn validate(&self) -> Checked {
        let length = self.name.len();
        check((1..=NAME_BYTES_MAX).contains(&length), || {
            format!("host \"{}\": a name has from 1 to {NAME_BYTES_MAX} bytes", self.name)
        })?;
        self.up.validate().map_err(|e| e.within(format!("host \"{}\": up", self.name)))?;
        self.down.validate().map_err(|e| e.within(format!("host \"{}\": down", self.name)))
    }
}

impl WireOptions {
    /// The first fault, if there is one. Whether the hosts exist is the topology's to check.
    pub fn validate(&self) -> Checked {
        let place = format!("wire from \"{}\" to \"{}\"", self.from, self.to);
        check(self.from != self.to, || format!("{place}: a wire joins two different hosts"))?;
        self.there.validate().map_err(|e| e.within(format!("{place}: there")))?;
        self.back
            .as_ref()
            .map_or(Ok(()), |back| back.validate().map_err(|e| e.within(format!("{place}: back"))))
    }
}

impl InterfaceOptions {
    /// The first fault, if there is one.
    pub fn validate(&self) -> Checked {
        self.rate.validate()?;
        check(self.framing_bytes <= 65_536, || {
            format!("framing is {} bytes, at most 65536 are possible", self.framing_bytes)
        })?;
        for step in &self.schedule {
            step.rate.validate().map_err(|e| e.within(format!("schedule: step at {} ns", step.at_ns)))?;
        }
        check(self.schedule.is_sorted_by_key(|step| step.at_ns), || {
            "schedule: the steps are not in the order of time".to_owned()
        })?;
        self.queue.validate()
    }
}

impl Rate {
    /// The first fault, if there is one.
    pub fn validate(&self) -> Checked {
        match self {
            Rate::BitsPerS(0) => {
                Err(OptionsError::new("rate is 0; for a direction that passes nothing write down = true"))
            }
            Rate::BitsPerS(rate) if *rate > RATE_BITS_PER_S_MAX => Err(OptionsError::new(format!(
                "rate is {rate} bit/s, at most {RATE_BITS_PER_S_MAX} are possible; write \"unlimited\" for none"
            ))),
            _ => Ok(()),
        }
    }
}

impl QueueOptions {
    /// The first fault, if there is one.
    pub fn validate(&self) -> Checked {
        let packets = self.packets_max;
        check((1..=QUEUE_PACKETS_MAX).contains(&packets), || {
            format!("queue: packets is {packets}, possible is from 1 to {QUEUE_PACKETS_MAX}")
        })?;
        let bytes = self.bytes_max;
        check((1..=BYTES_MAX).contains(&bytes), || {
            format!("queue: bytes is {bytes}, possible is from 1 to {BYTES_MAX}")
        })?;
        let Some(codel) = &self.codel else { return Ok(()) };
        duration("queue: codel: target", codel.target_ns)?;
        duration("queue: codel: interval", codel.interval_ns)?;
        check(codel.target_ns > 0 && codel.target_ns <= codel.interval_ns, || {
            "queue: codel: target is above 0 and at most interval".to_owned()
        })
    }
}

impl PolicerOptions {
    /// The first fault, if there is one.
    pub fn validate(&self) -> Checked {
        let rate = self.rate_bits_per_s;
        check((1..=RATE_BITS_PER_S_MAX).contains(&rate), || {
            format!("policer: rate is {rate} bit/s, possible is from 1 to {RATE_BITS_PER_S_MAX}")
        })?;
        let bytes = self.burst_bytes;
        check((1..=BYTES_MAX).contains(&bytes), || {
            format!("policer: burst is {bytes} bytes, possible is from 1 to {BYTES_MAX}")
        })
    }
}

impl DirectionOptions {
    /// The first fault, if there is one.
    pub fn validate(&self) -> Checked {
        self.interface().validate()?;
        self.policer.as_ref().map_or(Ok(()), PolicerOptions::validate)?;
        mtu(self.mtu_bytes)?;
        duration("delay", self.delay_ns)?;
        self.jitter.validate()?;
        self.loss.validate()?;
        self.reorder.as_ref().map_or(Ok(()), Reorder::validate)?;
        probability("duplicate", self.duplicate)?;
        probability("corrupt", self.corrupt)?;
        self.flap.as_ref().map_or(Ok(()), Flap::validate)?;
        for step in &self.schedule {
            step.validate().map_err(|e| e.within(format!("schedule: step at {} ns", step.at_ns)))?;
        }
        check(self.schedule.is_sorted_by_key(|step| step.at_ns), || {
            "schedule: the steps are not in the order of time".to_owned()
        })?;
        check((1..=QUEUE_PACKETS_MAX).contains(&self.in_flight_packets_max), || {
            format!(
                "in_flight_packets is {}, possible is from 1 to {QUEUE_PACKETS_MAX}",
                self.in_flight_packets_max
            )
        })?;
        check((1..=BYTES_MAX).contains(&self.in_flight_bytes_max), || {
            format!("in_flight_bytes is {}, possible is from 1 to {BYTES_MAX}", self.in_flight_bytes_max)
        })
    }
}

impl Jitter {
    /// The first fault, if there is one.
    pub fn validate(&self) -> Checked {
        match self {
            Jitter::None => Ok(()),
            Jitter::Exponential { mean_ns } => duration("jitter: exponential: mean", *mean_ns),
            Jitter::Normal { std_dev_ns } => duration("jitter: normal: std_dev", *std_dev_ns),
            Jitter::Uniform { spread_ns } => duration("jitter: uniform: spread", *spread_ns),
            Jitter::Table { offsets_ns } => {
                let length = offsets_ns.len();
                check((1..=TABLE_MAX).contains(&length), || {
                    format!("jitter: table: there are {length} offsets, possible is from 1 to {TABLE_MAX}")
                })?;
                let longest = offsets_ns.iter().map(|offset| offset.unsigned_abs()).max();
                duration("jitter: table: the longest offset", longest.unwrap_or(0))
            }
        }
    }
}

impl Loss {
    /// The first fault, if there is one.
    pub fn validate(&self) -> Checked {
        match self {
            Loss::None => Ok(()),
            Loss::Bernoulli { probability: p } => probability("loss: bernoulli: probability", *p),
            Loss::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad } => {
                probability("loss: gilbert_elliott: good_to_bad", *good_to_bad)?;
                probability("loss: gilbert_elliott: bad_to_good", *bad_to_good)?;
                probability("loss: gilbert_elliott: loss_good", *loss_good)?;
                probability("loss: gilbert_elliott: loss_bad", *loss_bad)
            }
            Loss::EveryNth { n } => check(*n > 0, || "loss: every_nth: n is 0, it is at least 1".to_owned()),
            Loss::Listed { packets } => {
                check(packets.first().is_none_or(|first| *first > 0), || {
                    "loss: listed: packets are counted from 1".to_owned()
                })?;
                check(packets.is_sorted_by(|earlier, later| earlier < later), || {
                    "loss: listed: the packets do not rise".to_owned()
                })
            }
        }
    }
}

impl Reorder {
    /// The first fault, if there is one.
    pub fn validate(&self) -> Checked {
        probability("reorder: probability", self.probability)?;
        duration("reorder: hold", self.hold_ns)
    }
}

impl Flap {
    /// The first fault, if there is one.
    pub fn validate(&self) -> Checked {
        check(self.down_ns > 0 && self.up_ns > 0, || "flap: down and up are both above 0".to_owned())?;
        duration("flap: down", self.down_ns)?;
        duration("flap: up", self.up_ns)
    }
}

impl Step {
    /// The first fault, if there is one.
    pub fn validate(&self) -> Checked {
        self.rate.as_ref().map_or(Ok(()), Rate::validate)?;
        self.mtu_bytes.map_or(Ok(()), mtu)?;
        self.delay_ns.map_or(Ok(()), |delay_ns| duration("delay", delay_ns))?;
        self.jitter.as_ref().map_or(Ok(()), Jitter::validate)?;
        self.loss.as_ref().map_or(Ok(()), Loss::validate)?;
        self.reorder.as_ref().map_or(Ok(()), Reorder::validate)?;
        self.duplicate.map_or(Ok(()), |p| probability("duplicate", p))?;
        self.corrupt.map_or(Ok(()), |p| probability("corrupt", p))?;
        check(*self != Step { at_ns: self.at_ns, ..Step::default() }, || "it changes nothing".to_owned())
    }
}

fn check(holds: bool, sentence: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(OptionsError(sentence())) }
}

fn mtu(bytes: u64) -> Checked {
    check((1..=PACKET_BYTES_MAX).contains(&bytes), || {
        format!("mtu is {bytes} bytes, possible is from 1 to {PACKET_BYTES_MAX}")
    })
}

fn duration(name: &str, ns: u64) -> Checked {
    check(ns <= DURATION_NS_MAX, || format!("{name} is {ns} ns, at most one day is possible"))
}

fn probability(name: &str, value: f64) -> Checked {
    check((0.0..=1.0).contains(&value), || format!("{name} is {value}, a probability is from 0 to 1"))
}
