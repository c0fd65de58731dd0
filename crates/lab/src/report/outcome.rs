//! What came out, in sentences: what became of each target, and how arms compare.

use super::words::{arm_of, better, compared, pieces, round_number, title_of, unit_after, with_words};
use crate::figures::{Better, Figure, Labels};
use crate::plan::{Compare, Comparison, Plan};
use crate::results::{Judgement, Outcome, Results};

/// How many sentences stand by themselves; the others are folded up.
const SHOWN: usize = 12;
/// How many of them comparisons have, where there are so many.
const COMPARED: usize = 5;

/// A sentence, and which way it went if it is about a target.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sentence {
    pub(super) outcome: Option<Outcome>,
    pub(super) text: String,
}

/// A value that a sentence is about.
struct Value<'a> {
    plan: &'a Plan,
    figure: &'a str,
    labels: &'a Labels,
    unit: &'a str,
    value: f64,
    ci95: Option<[f64; 2]>,
}

/// What came out: the sentences that stand by themselves, and those that are folded up.
pub(super) fn sentences(results: &Results<'_>) -> [Vec<Sentence>; 2] {
    let (mut judged, mut compared) = (judged(results), compared_figures(results));
    let targets = SHOWN - compared.len().min(COMPARED);
    let mut folded = Vec::new();
    if judged.len() > targets {
        let tally = tally(&judged);
        // What was missed is what people must see.
        judged.sort_by_key(|sentence| sentence.outcome.map(urgency));
        folded = judged.split_off(targets - 1);
        judged.insert(0, tally);
    }
    let rest = compared.split_off(compared.len().min(SHOWN - judged.len()));
    folded.extend(rest);
    judged.extend(compared);
    [judged, folded]
}

/// How early the sentence about a target stands where there are too many.
fn urgency(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Missed => 0,
        Outcome::NotMeasured => 1,
        Outcome::Open => 2,
        Outcome::Met => 3,
    }
}

/// How many targets there are of each outcome.
fn tally(judged: &[Sentence]) -> Sentence {
    let count = |outcome: Outcome| {
        let count = judged.iter().filter(|sentence| sentence.outcome == Some(outcome)).count();
        (count > 0).then(|| format!("{count} {}", outcome.name()))
    };
    let counts = [Outcome::Met, Outcome::Missed, Outcome::Open, Outcome::NotMeasured].map(count);
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    Sentence { outcome: None, text: format!("Of {} targets: {}.", judged.len(), counts.join(", ")) }
}

/// What became of the targets.
fn judged(results: &Results<'_>) -> Vec<Sentence> {
    let of = |target: &Judgement| Sentence {
        outcome: Some(target.outcome),
        text: judgement(results.plan, target),
    };
    results.summary.targets.iter().map(of).collect()
}

/// Every figure that compares arms and that no target is about.
fn compared_figures(results: &Results<'_>) -> Vec<Sentence> {
    let Results { plan, summary, .. } = results;
    let is_judged = |figure: &Figure| {
        let mut targets = summary.targets.iter();
        targets.any(|target| target.figure == figure.name && target.labels == figure.labels)
    };
    let figures = plan.compare.iter().flat_map(|compare| {
        let name = &compare.as_ref().name;
        summary.figures.iter().filter(move |figure| figure.name == *name)
    });
    let sentence = |figure: &Figure| {
        let value = Value {
            plan,
            figure: &figure.name,
            labels: &figure.labels,
            unit: &figure.unit,
            value: figure.mean,
            ci95: figure.ci95,
        };
        let is_trusted = summary.valid && !summary.was_extended();
        let sense = if is_trusted { value.sense() } else { "" };
        Sentence { outcome: None, text: format!("{}{sense}.", value.claim()) }
    };
    figures.filter(|figure| !is_judged(figure)).map(sentence).collect()
}

/// What became of a target.
fn judgement(plan: &Plan, target: &Judgement) -> String {
    let Judgement { figure, labels, unit, ours, ci95, runs, runs_due, outcome, .. } = target;
    let said = match ours {
        Some(value) => Value { plan, figure, labels, unit, value: *value, ci95: *ci95 }.claim(),
        None => with_words(title_of(plan, figure), pieces(plan, labels).iter().map(|piece| piece.words())),
    };
    let lacking = match outcome {
        Outcome::Open if runs < runs_due => format!(", measured in {runs} of {runs_due} runs"),
        Outcome::Open if ours.is_some() && ci95.is_none() => ", without an interval".to_owned(),
        _ => String::new(),
    };
    let mut name = outcome.name().to_owned();
    name[..1].make_ascii_uppercase();
    format!("{name}: {said}, to be {}{lacking}.", bounds(target))
}

/// The bounds of a target.
fn bounds(target: &Judgement) -> String {
    let bound =
        |words: &str, bound: Option<f64>| bound.map(|bound| format!("{words} {}", round_number(bound)));
    let all = [bound("at least", target.at_least), bound("at most", target.at_most)];
    all.into_iter().flatten().collect::<Vec<_>>().join(" and ") + &unit_after(&target.unit)
}

impl Value<'_> {
    /// What the value is: of what, whose, how much, and with which interval.
    fn claim(&self) -> String {
        match compared(self.plan, self.figure) {
            Some(compare) => self.comparison(compare),
            None => {
                let (who, others) = self.who(None);
                let title = with_words(title_of(self.plan, self.figure), others.into_iter());
                let amount = format!("{}{}", round_number(self.value), unit_after(self.unit));
                let who = who.map(|who| format!("{who} ")).unwrap_or_default();
                format!("{title}: {who}{amount}{}", self.interval())
            }
        }
    }

    fn comparison(&self, compare: &Compare) -> String {
        let (who, others) = self.who(compare.label.as_deref());
        let title = with_words(title_of(self.plan, &compare.figure), others.into_iter());
        let who = who.unwrap_or_else(|| "it".to_owned());
        let (whose, whom) = match &compare.to {
            Some(to) => {
                let title = format!("“{}”", title_of(self.plan, to));
                (title.clone(), title)
            }
            None => {
                let base = self.base(compare);
                (format!("{base}'s"), base)
            }
        };
        let (value, interval) = (round_number(self.value), self.interval());
        match compare.kind {
            Comparison::Ratio => format!("{title}: {who} {value} × {whose}{interval}"),
            Comparison::Difference => {
                format!("{title}: {who} {value}{} beyond {whose}{interval}", unit_after(self.unit))
            }
            Comparison::LossPct => format!("{title}: {who} {value} % less than {whose}{interval}"),
            Comparison::Auc => {
                format!("{title}: {who} told from {whom} with {value}, where 0.5 is chance{interval}")
            }
        }
    }

    /// Who the value is about, which is the arm or what differs from the others, and what else its labels say.
    fn who(&self, differs_in: Option<&str>) -> (Option<String>, Vec<String>) {
        let mut pieces = pieces(self.plan, self.labels);
        let arm_has_it =
            |name: &str| arm_of(self.plan, self.labels).is_some_and(|arm| arm.labels.contains_key(name));
        let place = match differs_in {
            Some(name) if !arm_has_it(name) => {
                pieces.iter().position(|piece| piece.label.as_deref() == Some(name))
            }
            _ => pieces.iter().position(|piece| piece.label.is_none()),
        };
        let who = place.map(|place| pieces.remove(place).words());
        (who, pieces.iter().map(|piece| piece.words()).collect())
    }

    /// What it is compared with: the arm, where it is another one, or the label's value.
    fn base(&self, compare: &Compare) -> String {
        let (label, base) =
            (compare.label.clone().unwrap_or_default(), compare.base.clone().unwrap_or_default());
        let mut labels = self.labels.clone();
        labels.insert(label.clone(), base.clone());
        let arm = arm_of(self.plan, &labels).filter(|arm| arm.labels.contains_key(&label));
        arm.map_or(base, |arm| arm.name.clone())
    }

    fn interval(&self) -> String {
        let words = |[low, high]: [f64; 2]| format!(" ({} to {})", round_number(low), round_number(high));
        self.ci95.map(words).unwrap_or_default()
    }

    /// Whether a comparison came out for better or worse.
    fn sense(&self) -> &'static str {
        let Some(compare) = compared(self.plan, self.figure) else { return "" };
        let Some([low, high]) = self.ci95 else { return "" };
        let (even, is_less) = match compare.kind {
            Comparison::Ratio => (1.0, high < 1.0),
            Comparison::Difference => (0.0, high < 0.0),
            Comparison::LossPct => (0.0, low > 0.0),
            Comparison::Auc => return "",
        };
        if low <= even && even <= high {
            return ": no difference is shown";
        }
        match (better(self.plan, self.figure), is_less) {
            (Better::Neither, _) => "",
            (Better::Less, true) | (Better::More, false) => ", which is better",
            (Better::Less, false) | (Better::More, true) => ", which is worse",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::figures::labels;
    use crate::plan::Plan;
    use crate::results::{RunSamples, Summary};

    fn plan() -> Plan {
        Plan::load("thesis-exp11", &BTreeMap::new()).unwrap().plan
    }

    fn said(plan: &Plan, targets: Vec<Judgement>, figures: Vec<Figure>) -> Vec<String> {
        let summary = Summary { targets, figures, valid: true, ..Summary::default() };
        let results = Results { plan, summary: &summary, samples: &RunSamples::default() };
        let [shown, folded] = sentences(&results);
        assert!(folded.is_empty() || shown.len() == SHOWN);
        shown.into_iter().chain(folded).map(|sentence| sentence.text).collect()
    }

    fn of_quic() -> Labels {
        labels([("transport", "quic"), ("wires", "10mbit")])
    }

    fn target(outcome: Outcome, ours: Option<f64>, ci95: Option<[f64; 2]>) -> Judgement {
        Judgement {
            figure: "throughput_over_stock".into(),
            labels: of_quic(),
            unit: if ours.is_some() { "×".into() } else { String::new() },
            at_most: None,
            at_least: Some(0.9),
            source: "a paper".into(),
            ours,
            ci95,
            runs: 1,
            runs_due: 2,
            outcome,
        }
    }

    #[test]
    fn targets_are_sentences() {
        let told = said(
            &plan(),
            vec![
                target(Outcome::Met, Some(1.2), Some([1.1, 1.304])),
                target(Outcome::Missed, Some(0.5), Some([0.4, 0.6])),
                target(Outcome::Open, Some(0.95), None),
                target(Outcome::NotMeasured, None, None),
            ],
            Vec::new(),
        );
        let of = "Throughput of all streams together: quic-10mbit";
        assert_eq!(
            told,
            [
                format!("Met: {of} 1.2 × stock-10mbit's (1.1 to 1.3), to be at least 0.9 ×."),
                format!("Missed: {of} 0.5 × stock-10mbit's (0.4 to 0.6), to be at least 0.9 ×."),
                format!("Open: {of} 0.95 × stock-10mbit's, to be at least 0.9 ×, measured in 1 of 2 runs."),
                "Not measured: Throughput of all streams together, over stock, quic-10mbit, to be at least 0.9."
                    .to_owned(),
            ]
        );
    }

    #[test]
    fn comparisons_say_which_way_they_went_unless_a_target_says_it() {
        let figure = |name: &str, unit: &str, mean: f64, ci95: [f64; 2]| Figure {
            ci95: Some(ci95),
            ..Figure::of(name, of_quic(), unit, &[mean, mean]).unwrap()
        };
        let figures = vec![
            figure("throughput_over_tls", "×", 2.0, [1.5, 2.5]),
            figure("throughput_over_stock", "×", 1.0, [0.9, 1.1]),
            figure("delay_over_base", "×", 3.0, [2.0, 4.0]),
            figure("delay_excess_beyond_stock_ms", "ms", -20.0, [-30.0, -10.0]),
            figure("delay_ms", "ms", 5.0, [4.0, 6.0]),
        ];
        let there = "One cell there and back (beside bulk)";
        assert_eq!(
            said(&plan(), Vec::new(), figures.clone()),
            [
                format!("{there}: quic-10mbit 3 × “One cell there and back (base)” (2 to 4), which is worse."),
                format!(
                    "{there}, minus “One cell there and back (base)”: quic-10mbit -20 ms beyond stock-10mbit's \
                     (-30 to -10), which is better."
                ),
                "Throughput of all streams together: quic-10mbit 1 × stock-10mbit's (0.9 to 1.1): no difference is shown."
                    .to_owned(),
                "Throughput of all streams together: quic-10mbit 2 × tls-10mbit's (1.5 to 2.5), which is better."
                    .to_owned(),
            ]
        );
        let judged = vec![target(Outcome::Met, Some(1.0), None)];
        assert_eq!(said(&plan(), judged, figures).len(), 4);
    }

    #[test]
    fn of_many_targets_those_that_were_missed_are_seen() {
        let mut targets = vec![target(Outcome::Met, Some(1.0), None); 13];
        targets.push(target(Outcome::Missed, Some(0.5), None));
        let told = said(&plan(), targets, Vec::new());
        assert_eq!(told.len(), 15);
        assert_eq!(told[0], "Of 14 targets: 13 met, 1 missed.");
        assert!(told[1].starts_with("Missed: ") && told[2].starts_with("Met: "), "{told:?}");
    }
}
