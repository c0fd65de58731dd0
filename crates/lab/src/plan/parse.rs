//! From the text of a plan to a plan that can be run, or one sentence about what is wrong with it and where.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use heddle_netem::{DirectionOptions, HostOptions, TopologyOptions, WireOptions, units};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::{Arm, Case, Compare, Phase, Plan, Target, Tcp, TorArm, grid, tor, utcp};
use crate::error::{Error, Result};
use crate::figures::Labels;

/// A plan that comes with the program.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Its name.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// Every plan that ships, in the order of lists. A new one is a file and a line here.
const SHIPPED: &[Shipped] = &[
    Shipped { name: "calibrate", text: include_str!("../../plans/calibrate.toml") },
    Shipped { name: "thesis-exp02", text: include_str!("../../plans/thesis-exp02.toml") },
    Shipped { name: "thesis-exp08", text: include_str!("../../plans/thesis-exp08.toml") },
    Shipped { name: "thesis-exp09", text: include_str!("../../plans/thesis-exp09.toml") },
    Shipped { name: "thesis-exp10", text: include_str!("../../plans/thesis-exp10.toml") },
    Shipped { name: "thesis-exp11", text: include_str!("../../plans/thesis-exp11.toml") },
    Shipped { name: "thesis-exp12", text: include_str!("../../plans/thesis-exp12.toml") },
    Shipped { name: "thesis-exp13", text: include_str!("../../plans/thesis-exp13.toml") },
    Shipped { name: "n23-bottleneck", text: include_str!("../../plans/n23-bottleneck.toml") },
    Shipped { name: "n23-open", text: include_str!("../../plans/n23-open.toml") },
    Shipped { name: "pctcp-live", text: include_str!("../../plans/pctcp-live.toml") },
    Shipped { name: "quux-chutney", text: include_str!("../../plans/quux-chutney.toml") },
    Shipped { name: "isolation", text: include_str!("../../plans/isolation.toml") },
    Shipped { name: "fairness", text: include_str!("../../plans/fairness.toml") },
    Shipped { name: "utcp-fidelity", text: include_str!("../../plans/utcp-fidelity.toml") },
    Shipped { name: "bottleneck-position", text: include_str!("../../plans/bottleneck-position.toml") },
    Shipped { name: "udp-blocked", text: include_str!("../../plans/udp-blocked.toml") },
    Shipped { name: "mixed", text: include_str!("../../plans/mixed.toml") },
    Shipped { name: "prober", text: include_str!("../../plans/prober.toml") },
];

/// Every plan that ships.
pub fn shipped() -> &'static [Shipped] {
    SHIPPED
}

/// The most probes of a case.
const PROBES_MAX: usize = 1_000_000;
const PROBE_BYTES: std::ops::RangeInclusive<usize> = 44..=1500;
const PROBE_INTERVAL_MIN: Duration = Duration::from_micros(100);
/// The most runs of a plan.
pub(super) const RUNS_MAX: usize = 10_000;
/// The most flows of an arm: each has two hosts.
const FLOWS_MAX: usize = 500;

/// A plan and the text it was read from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The plan.
    pub plan: Plan,
    /// Its text, with the values of `--set` in place.
    pub text: String,
    /// What `--set` changed.
    pub set: BTreeMap<String, String>,
}

impl Plan {
    /// Reads the plan that ships under this name, or else the file of this name. `set` are the values of `--set`.
    ///
    /// # Errors
    ///
    /// One sentence, with the file and the line where there is one.
    pub fn load(name: &str, set: &BTreeMap<String, String>) -> Result<Loaded> {
        if let Some(shipped) = SHIPPED.iter().find(|shipped| shipped.name == name) {
            return parse(&format!("{name}.toml"), shipped.text, set);
        }
        if !name.ends_with(".toml") {
            let names: Vec<&str> = SHIPPED.iter().map(|shipped| shipped.name).collect();
            let names = names.join(", ");
            return Err(Error::Options(format!(
                "there is no plan {name:?}; the plans are {names}, and a file's name ends in .toml"
            )));
        }
        let text = fs::read_to_string(Path::new(name)).map_err(Error::io(format!("reading {name}")))?;
        parse(name, &text, set)
    }
}

impl Plan {
    /// The plan with these arms only, and without the known values and targets that are about others. Without names, with
    /// all arms that are not there by choice only.
    ///
    /// # Errors
    ///
    /// A name that no arm has.
    pub fn with_arms(&self, names: &[String]) -> Result<Plan> {
        let mut plan = self.clone();
        let has = |name: &String| self.arms.iter().any(|arm| arm.as_ref().name == *name);
        if let Some(unknown) = names.iter().find(|name| !has(name)) {
            let arms: Vec<&str> = self.arms.iter().map(|arm| &*arm.as_ref().name).collect();
            let arms = arms.join(", ");
            return Err(Error::Options(format!("--arms: there is no arm {unknown:?}; the plan has {arms}")));
        }
        let is_chosen = |arm: &Spanned<Arm>| match names.is_empty() {
            true => !arm.as_ref().by_choice,
            false => names.contains(&arm.as_ref().name),
        };
        plan.arms.retain(is_chosen);
        // What no arm gives is kept, and told as not measured.
        let is_about_others = |gives: &dyn Fn(&Arm) -> bool| {
            let mut giving = self.arms.iter().filter(|arm| gives(arm.as_ref())).peekable();
            giving.peek().is_some() && !giving.any(is_chosen)
        };
        plan.known.retain(|known| !is_about_others(&|arm| arm.gives(&known.as_ref().labels)));
        let case_labels = self.case_label_names();
        plan.targets
            .retain(|target| !is_about_others(&|arm| arm.may_give(&target.as_ref().labels, &case_labels)));
        Ok(plan)
    }

    /// The names of all labels by which cases are told apart.
    fn case_label_names(&self) -> BTreeSet<String> {
        let arms = self.arms.iter().map(Spanned::as_ref);
        let labels = arms.flat_map(|arm| arm.cases.iter().map(|case| case_labels(arm, case.as_ref())));
        labels.flat_map(Labels::into_keys).collect()
    }

    /// The plan with these phases of its network only, in their own order, and with the known values and targets that are
    /// about them. Without names, with all of them.
    ///
    /// # Errors
    ///
    /// A name that no phase has, an arm that is left without any, or a plan without phases.
    pub fn with_phases(&self, names: &[String]) -> Result<Plan> {
        let mut plan = self.clone();
        if names.is_empty() {
            return Ok(plan);
        }
        let wrong = |what: String| Error::Options(format!("--phase: {what}"));
        let Plan { tor: Some(tor), arms, known, targets, .. } = &mut plan else {
            return Err(wrong(format!("{} has no phases", self.name)));
        };
        let tor = tor.as_mut();
        let all: Vec<&str> = tor.phases.iter().map(|phase| &*phase.as_ref().name).collect();
        if let Some(unknown) = names.iter().find(|name| !all.contains(&name.as_str())) {
            return Err(wrong(format!("there is no phase {unknown:?}; the plan has {}", all.join("; "))));
        }
        let before = std::mem::take(&mut tor.phases);
        tor.phases = before.iter().filter(|phase| names.contains(&phase.as_ref().name)).cloned().collect();
        for arm in arms {
            let arm = arm.as_mut();
            let Some(chosen) = arm.tor.as_mut().map(|tor| &mut tor.phases).filter(|own| !own.is_empty())
            else {
                continue;
            };
            chosen.retain(|name| names.contains(name));
            if chosen.is_empty() {
                return Err(wrong(format!("the arm {:?} has none of these", arm.name)));
            }
        }
        let may_give =
            |labels: &Labels| tor.phases.iter().any(|phase| phase.as_ref().may_give(labels, &before));
        known.retain(|known| may_give(&known.as_ref().labels));
        targets.retain(|target| may_give(&target.as_ref().labels));
        Ok(plan)
    }
}

impl Phase {
    /// Whether a figure with these labels can be this phase's. Those that none of `all` phases has are not about phases.
    fn may_give(&self, labels: &Labels, all: &[Spanned<Phase>]) -> bool {
        let is_ours = |(name, value): (&String, &String)| match self.labels.get(name) {
            Some(own) => own == value,
            None => all.iter().all(|phase| !phase.as_ref().labels.contains_key(name)),
        };
        labels.iter().all(is_ours)
    }
}

impl Arm {
    /// Whether a figure with these labels and no others can be this arm's.
    fn gives(&self, labels: &Labels) -> bool {
        match self.tor {
            Some(_) => self.gives_over_tor(labels),
            None => self.cases.iter().any(|case| case_labels(self, case.as_ref()) == *labels),
        }
    }

    /// Whether a figure with these labels, and maybe others, can be this arm's. Those that are not among `all`, which the
    /// plan's cases have, are not about cases.
    fn may_give(&self, labels: &Labels, all: &BTreeSet<String>) -> bool {
        if self.tor.is_some() {
            return self.gives_over_tor(labels);
        }
        self.cases.iter().any(|case| {
            let own = case_labels(self, case.as_ref());
            labels.iter().all(|(name, value)| own.get(name) == Some(value) || !all.contains(name))
        })
    }

    /// Figures of a Tor network have labels of phases and clients besides the arm's.
    fn gives_over_tor(&self, labels: &Labels) -> bool {
        self.labels.iter().all(|(name, value)| labels.get(name).is_none_or(|other| other == value))
    }
}

/// Reads a plan from its text. `file` is for messages.
pub(super) fn parse(file: &str, text: &str, set: &BTreeMap<String, String>) -> Result<Loaded> {
    let source = Source { file, text };
    let text = substitute(source, set)?;
    let source = Source { file, text: &text };
    let mut plan: Plan = toml::from_str(&text).map_err(|error| source.toml_error(&error))?;
    grid::expand(&mut plan).map_err(|(at, what)| source.error(at, what))?;
    check(&plan, source)?;
    Ok(Loaded { plan, text, set: set.clone() })
}

/// Reads a duration such as `"50 ms"`.
pub(super) fn duration<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    units::duration_ns(&text).map(Duration::from_nanos).map_err(serde::de::Error::custom)
}

/// Reads the least and the greatest of two durations.
pub(super) fn durations<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<[Duration; 2], D::Error> {
    let both = both(from, units::duration_ns)?;
    Ok(both.map(Duration::from_nanos))
}

/// Reads the least and the greatest of two sizes such as `"300 KiB"`, in bytes.
pub(super) fn sizes_bytes<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<[u64; 2], D::Error> {
    both(from, units::size_bytes)
}

fn both<'de, D: Deserializer<'de>, E: std::fmt::Display>(
    from: D,
    read: impl Fn(&str) -> std::result::Result<u64, E>,
) -> std::result::Result<[u64; 2], D::Error> {
    let [least, greatest] = <[String; 2]>::deserialize(from)?;
    let read = |text: String| read(&text).map_err(serde::de::Error::custom);
    Ok([read(least)?, read(greatest)?])
}

/// A plan's text, for messages that name a line of it.
#[derive(Clone, Copy)]
struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl Source<'_> {
    /// An error at a byte of the text.
    fn error(self, at: usize, what: impl std::fmt::Display) -> Error {
        let before = self.text.as_bytes().get(..at).unwrap_or(self.text.as_bytes());
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Error::Options(format!("{}:{line}: {what}", self.file))
    }

    fn toml_error(self, error: &toml::de::Error) -> Error {
        let at = error.span().map_or(0, |span| span.start);
        self.error(at, error.message().trim().replace('\n', "; "))
    }
}

/// Replaces `${key}` by the value of `--set` or the plan's own. Lines stay where they are.
fn substitute(source: Source<'_>, set: &BTreeMap<String, String>) -> Result<String> {
    #[derive(Deserialize)]
    struct Head {
        #[serde(default)]
        set: BTreeMap<String, String>,
    }
    // Before the values are known, anything that is a number and a part of a text will do.
    let draft = replace_keys(source, |_| Some("0"))?;
    let head: Head = toml::from_str(&draft).map_err(|error| source.toml_error(&error))?;
    let mut values = head.set;
    let known: Vec<String> = values.keys().cloned().collect();
    for (key, value) in set {
        if value.contains(['"', '\\', '$']) || value.contains(char::is_control) {
            return Err(Error::Options(format!("--set {key}: {value:?} has characters that no value has")));
        }
        let slot = values.get_mut(key).ok_or_else(|| {
            let known = if known.is_empty() { "nothing".to_owned() } else { known.join(", ") };
            Error::Options(format!("--set {key}: the plan has no such value; it lets you set {known}"))
        })?;
        slot.clone_from(value);
    }
    replace_keys(source, |key| values.get(key).map(String::as_str))
}

/// The text with every `${key}` replaced.
fn replace_keys<'a>(source: Source<'_>, value: impl Fn(&str) -> Option<&'a str>) -> Result<String> {
    let mut text = String::new();
    let mut rest = source.text;
    while let Some(start) = rest.find("${") {
        let at = source.text.len() - rest.len() + start;
        let inside = &rest[start + 2..];
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = inside.find(|c| !plain(c)).unwrap_or(inside.len());
        let (key, after) = inside.split_at(end);
        let after = after
            .strip_prefix('}')
            .ok_or_else(|| source.error(at, "`${` without a name and `}` after it"))?;
        text.push_str(&rest[..start]);
        text.push_str(value(key).ok_or_else(|| source.error(at, format!("[set] has no value {key:?}")))?);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

/// The first fault that the form alone does not show.
fn check(plan: &Plan, source: Source<'_>) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if plan.name.is_empty() || !plan.name.chars().all(plain) {
        return Err(
            source.error(0, format!("the name {:?} has more than letters, digits and hyphens", plan.name))
        );
    }
    if !(1..=RUNS_MAX).contains(&plan.runs) {
        return Err(source.error(0, format!("{} runs; possible is from 1 to {RUNS_MAX}", plan.runs)));
    }
    if plan.budget.is_zero() {
        return Err(source.error(0, "the budget is no time at all"));
    }
    if plan.arms.iter().all(|arm| arm.as_ref().by_choice) {
        return Err(source.error(0, "there is no [[arm]] that is measured without being named"));
    }
    if let Some(network) = &plan.tor {
        let start = network.span().start;
        tor::check(network.as_ref()).map_err(|(at, what)| source.error(at.unwrap_or(start), what))?;
    }
    let mut names = BTreeSet::new();
    let mut labels = BTreeSet::new();
    for arm in &plan.arms {
        let at = arm.span().start;
        let arm = arm.as_ref();
        if !names.insert(&arm.name) {
            return Err(source.error(at, format!("arm {:?} is there twice", arm.name)));
        }
        let copies = arm.cases.iter().map(|case| case.as_ref().copies);
        let flows = copies.fold(0, usize::saturating_add);
        if let Some(options) = &arm.tor {
            check_tor_arm(plan, arm, options).map_err(|what| source.error(at, what))?;
            continue;
        }
        if !(1..=FLOWS_MAX).contains(&flows) {
            let what = format!("arm {:?} has {flows} flows; possible is from 1 to {FLOWS_MAX}", arm.name);
            return Err(source.error(at, what));
        }
        for case in &arm.cases {
            let at = case.span().start;
            check_case(case.as_ref()).map_err(|what| source.error(at, what))?;
            if !labels.insert(case_labels(arm, case.as_ref())) {
                return Err(source.error(at, "another case has the same labels"));
            }
        }
    }
    for known in &plan.known {
        let bounds = known.as_ref().within_pct.iter().chain(&known.as_ref().within);
        if !known.as_ref().value.is_finite()
            || bounds.clone().any(|bound| !(*bound >= 0.0 && bound.is_finite()))
        {
            return Err(source.error(
                known.span().start,
                "a known value and its bounds are finite numbers, bounds at least 0",
            ));
        }
    }
    for target in &plan.targets {
        let Target { at_most, at_least, .. } = target.as_ref();
        let bounds = at_most.iter().chain(at_least);
        if bounds.clone().count() == 0 || bounds.clone().any(|bound| !bound.is_finite()) {
            let what = "a target has `at_most`, `at_least` or both, and they are finite numbers";
            return Err(source.error(target.span().start, what));
        }
    }
    for compare in &plan.compare {
        check_compare(compare.as_ref()).map_err(|what| source.error(compare.span().start, what))?;
    }
    Ok(())
}

fn check_tor_arm(plan: &Plan, arm: &Arm, options: &TorArm) -> std::result::Result<(), String> {
    if !arm.cases.is_empty() || arm.repeat {
        return Err("an arm with `tor` has no cases and is not repeated".into());
    }
    // Names differ, so those before it are other arms.
    let before = plan.arms.iter().map(Spanned::as_ref).take_while(|other| other.name != arm.name);
    let shares = |other: &&Arm| other.tor.as_ref().is_some_and(|other| other.shares_a_phase(options));
    if let Some(other) = before.filter(shares).find(|other| other.labels == arm.labels) {
        let what = "has the same labels and a phase in common: nothing would tell their samples apart";
        return Err(format!("arm {:?} {what}", other.name));
    }
    let network = plan.tor.as_ref().ok_or("the plan has no network: [tor] is missing")?;
    tor::check_arm(network.as_ref(), options)
}

fn check_compare(compare: &Compare) -> std::result::Result<(), String> {
    let by_label = compare.label.is_some() && compare.base.is_some();
    let by_figure = compare.to.is_some() && compare.label.is_none() && compare.base.is_none();
    match (by_label && compare.to.is_none()) || by_figure {
        true => Ok(()),
        false => Err("a comparison has either `label` and `base`, or `to`".into()),
    }
}

fn check_case(case: &Case) -> std::result::Result<(), String> {
    match (&case.bulk, &case.share, &case.probe) {
        (Some(bulk), None, None) => {
            check_control(&bulk.congestion_control, &[bulk.sender])?;
            check_times(bulk.warm_up, bulk.duration)?;
        }
        (None, Some(share), None) => {
            check_control(&share.congestion_control, &[share.first, share.second])?;
            check_times(share.warm_up, share.duration)?;
            if share.first == Tcp::Utcp && share.second == Tcp::Utcp {
                return Err("one of two that share a wire is the kernel's".into());
            }
        }
        (None, None, Some(probe)) => {
            if !(1..=PROBES_MAX).contains(&probe.count) {
                return Err(format!("{} probes; possible is from 1 to {PROBES_MAX}", probe.count));
            }
            if probe.interval < PROBE_INTERVAL_MIN {
                return Err("probes need an interval of at least 100 µs".into());
            }
            if !PROBE_BYTES.contains(&probe.bytes) {
                return Err(format!("probes of {} bytes; possible is from 44 to 1500", probe.bytes));
            }
        }
        _ => return Err("a case has either `bulk`, `share` or `probe`".into()),
    }
    check_wire(&case.wire, case.back.as_ref())
}

fn check_control(name: &str, senders: &[Tcp]) -> std::result::Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if name.is_empty() || !name.chars().all(plain) {
        return Err(format!("{name:?} is no congestion control"));
    }
    if senders.contains(&Tcp::Utcp) && utcp::algorithm(name).is_none() {
        return Err(format!("utcp has no congestion control {name:?}"));
    }
    Ok(())
}

fn check_times(warm_up: Duration, duration: Duration) -> std::result::Result<(), String> {
    match warm_up < duration {
        true => Ok(()),
        false => Err("the warm-up leaves nothing of the duration".into()),
    }
}

fn check_wire(there: &DirectionOptions, back: Option<&DirectionOptions>) -> std::result::Result<(), String> {
    let host = |name: &str| HostOptions { name: name.to_owned(), ..HostOptions::default() };
    let wire = WireOptions {
        from: "sender".into(),
        to: "receiver".into(),
        there: there.clone(),
        back: back.cloned(),
    };
    let topology = TopologyOptions {
        hosts: vec![host("sender"), host("receiver")],
        wires: vec![wire],
        default_wire: None,
    };
    topology.validate().map_err(|error| error.to_string())
}

/// The labels of everything a case measures.
pub(super) fn case_labels(arm: &Arm, case: &Case) -> Labels {
    arm.labels.iter().chain(&case.labels).map(|(name, value)| (name.clone(), value.clone())).collect()
}
