//! One Markov chain of a model: states, transitions, and what a state emits.

use std::collections::BTreeMap;

use heddle_netem::Rng;
use serde::Deserialize;

use super::distribution::Distribution;

/// The most states of one chain.
const STATES_MAX: usize = 4096;
/// The state in which every walk begins; it emits nothing.
const START: &str = "start";

/// What a state may emit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Emission {
    /// `+`: a packet from client to server, or a new stream or flow.
    ToServer,
    /// `-`: a packet from server to client, or a new stream or flow.
    ToClient,
    /// `F`: the end.
    End,
}

/// A chain as a file has it. Ordered maps make a walk depend on the file's content alone.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChainText {
    transitions: BTreeMap<String, BTreeMap<String, f64>>,
    emissions: BTreeMap<String, BTreeMap<String, EmissionText>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EmissionText {
    w: f64,
    distribution: String,
    param_low: Option<f64>,
    param_high: Option<f64>,
    param_location: Option<f64>,
    param_scale: Option<f64>,
    param_rate: Option<f64>,
    param_shape: Option<f64>,
}

/// A chain in which every walk begins with a step and every state emits something.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chain {
    /// The first is the start.
    states: Vec<State>,
}

#[derive(Clone, Debug, PartialEq)]
struct State {
    /// Weights and states.
    next: Vec<(f64, usize)>,
    /// Weights and what is emitted; empty for the start.
    emissions: Vec<(f64, (Emission, Distribution))>,
}

impl Chain {
    /// Checks what a file says, or tells in one sentence what is wrong with it.
    pub(super) fn parse(text: &ChainText) -> Result<Chain, String> {
        let names: Vec<&str> =
            std::iter::once(START).chain(text.emissions.keys().map(String::as_str)).collect();
        if names.len() > STATES_MAX {
            return Err(format!("there are {} states, at most {STATES_MAX} are taken", names.len()));
        }
        if text.emissions.contains_key(START) {
            return Err(format!("the state {START:?} must not emit anything"));
        }
        if let Some(unknown) = text.transitions.keys().find(|name| !names.contains(&name.as_str())) {
            return Err(format!("the state {unknown:?} has transitions and emits nothing"));
        }
        let states = names.iter().map(|name| State::parse(text, &names, name));
        Ok(Chain { states: states.collect::<Result<_, _>>()? })
    }

    /// A walk from the start.
    pub(super) fn walk(&self, rng: Rng) -> Walk<'_> {
        Walk { chain: self, rng, at: Some(0) }
    }
}

impl State {
    fn parse(text: &ChainText, names: &[&str], name: &str) -> Result<State, String> {
        let mut next = Vec::new();
        for (to, weight) in text.transitions.get(name).into_iter().flatten() {
            let found = names.iter().position(|other| other == to).filter(|index| *index > 0);
            let to =
                found.ok_or_else(|| format!("the state {name:?} leads to {to:?}, which emits nothing"))?;
            next.push((*weight, to));
        }
        let mut emissions = Vec::new();
        for (symbol, emission) in text.emissions.get(name).into_iter().flatten() {
            let what = match symbol.as_str() {
                "+" => Emission::ToServer,
                "-" => Emission::ToClient,
                "F" => Emission::End,
                _ => return Err(format!("the state {name:?} emits {symbol:?}, which is not +, - or F")),
            };
            let distribution = emission
                .distribution()
                .map_err(|wrong| format!("the emission {symbol:?} of the state {name:?} {wrong}"))?;
            emissions.push((emission.w, (what, distribution)));
        }
        // As in TGen, a state that leads nowhere ends the walk after what it emits.
        if name == START || !next.is_empty() {
            check_weights(&next).map_err(|wrong| format!("the transitions of the state {name:?} {wrong}"))?;
        }
        if name != START {
            check_weights(&emissions)
                .map_err(|wrong| format!("the emissions of the state {name:?} {wrong}"))?;
        }
        Ok(State { next, emissions })
    }
}

impl EmissionText {
    fn distribution(&self) -> Result<Distribution, String> {
        let parameter = |name: &str, value: Option<f64>| match value {
            Some(value) if value.is_finite() => Ok(value),
            _ => Err(format!("has no number as {name:?}")),
        };
        let location = || parameter("param_location", self.param_location);
        let scale = || parameter("param_scale", self.param_scale);
        let positive = |name: &str, value: Option<f64>| match parameter(name, value)? {
            value if value > 0.0 => Ok(value),
            value => Err(format!("has {value} as {name:?}, which must be positive")),
        };
        let distribution = match self.distribution.as_str() {
            "uniform" => {
                let low = parameter("param_low", self.param_low)?;
                let high = parameter("param_high", self.param_high)?;
                if low > high {
                    return Err(format!("has {low} as its low and {high} as its high bound"));
                }
                Distribution::Uniform { low, high }
            }
            "normal" => Distribution::Normal { location: location()?, scale: scale()? },
            "lognormal" => Distribution::Lognormal { location: location()?, scale: scale()? },
            "exponential" => Distribution::Exponential { rate: positive("param_rate", self.param_rate)? },
            "pareto" => {
                let shape = positive("param_shape", self.param_shape)?;
                Distribution::Pareto { scale: positive("param_scale", self.param_scale)?, shape }
            }
            other => return Err(format!("has the unknown distribution {other:?}")),
        };
        match self.param_scale {
            Some(scale) if scale < 0.0 => {
                Err(format!("has {scale} as \"param_scale\", which must not be negative"))
            }
            _ => Ok(distribution),
        }
    }
}

/// Weights are finite, none is negative, and some are not zero.
fn check_weights<T>(weighted: &[(f64, T)]) -> Result<(), String> {
    let allowed = |weight: f64| weight.is_finite() && weight >= 0.0;
    if let Some((weight, _)) = weighted.iter().find(|(weight, _)| !allowed(*weight)) {
        return Err(format!("have the weight {weight}"));
    }
    match weighted.iter().map(|(weight, _)| weight).sum::<f64>() {
        sum if sum > 0.0 && sum.is_finite() => Ok(()),
        _ => Err("have no weight, or too much".into()),
    }
}

/// Chooses by weight. The last choice that has one takes what rounding leaves.
fn choose<T: Copy>(weighted: &[(f64, T)], rng: &mut Rng) -> Option<T> {
    let sum: f64 = weighted.iter().map(|(weight, _)| weight).sum();
    let mut left = rng.unit() * sum;
    let mut chosen = None;
    for (weight, choice) in weighted.iter().filter(|(weight, _)| *weight > 0.0) {
        chosen = Some(*choice);
        if left < *weight {
            break;
        }
        left -= weight;
    }
    chosen
}

/// The emissions of one walk, each with the delay after it in microseconds. It has an end only if
/// the chain leads to one; whoever walks counts.
#[derive(Clone, Debug)]
pub(super) struct Walk<'a> {
    chain: &'a Chain,
    rng: Rng,
    at: Option<usize>,
}

impl Iterator for Walk<'_> {
    type Item = (Emission, u32);

    fn next(&mut self) -> Option<(Emission, u32)> {
        let here = &self.chain.states[self.at?];
        self.at = choose(&here.next, &mut self.rng);
        let state = &self.chain.states[self.at?];
        let (emission, delay) = choose(&state.emissions, &mut self.rng)?;
        if emission == Emission::End {
            self.at = None;
            return None;
        }
        Some((emission, delay.delay_us(&mut self.rng)))
    }
}
