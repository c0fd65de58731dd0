//! How near a plan in virtual time comes to the same plan over emulated wires: `sim_over_emu`, by figure and quantile.

use serde::Serialize;

use crate::error::Result;
use crate::experiment;
use crate::figures::{Figure, Labels};
use crate::plan::of_model;
use crate::results::Summary;
use crate::run::{BackendKind, RunOptions};

/// By how much the median may be off before somebody has to say why, and by how much the 90th percentile.
pub(crate) const MEDIAN_WITHIN: f64 = 0.10;
pub(crate) const P90_WITHIN: f64 = 0.20;

/// One figure in both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The plan's name.
    pub plan: String,
    /// The figure's name.
    pub figure: String,
    /// Its labels.
    pub labels: Labels,
    /// Its unit.
    pub unit: String,
    /// Medians over emulated wires and in virtual time.
    pub p50: [f64; 2],
    /// The same at the 90th percentile.
    pub p90: [f64; 2],
    /// How many samples there were in each.
    pub n: [usize; 2],
    /// The median in virtual time over that of emulated wires; absent where the latter is zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sim_over_emu_p50: Option<f64>,
    /// The same at the 90th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sim_over_emu_p90: Option<f64>,
    /// Whether the median is within 10 % and the 90th percentile within 20 %.
    pub is_near: bool,
}

/// Runs a plan on each backend, with results in `PLAN/emu` and `PLAN/sim` of the options' directory, and compares what
/// they gave; what is there already is not measured anew, and the options' own backend does not matter. `on_remark`
/// hears what was taken as it is, and why results must not be trusted.
///
/// # Errors
///
/// See [`run`](crate::run::run).
pub fn measure(options: &RunOptions, on_remark: &mut dyn FnMut(&str)) -> Result<Vec<Ratio>> {
    let plan = options.out.join(&options.loaded.plan.name);
    let mut on = |backend, place: &str| -> Result<Summary> {
        let out = plan.join(place);
        if out.join("summary.json").exists() {
            on_remark(&format!("{} was measured before, and is taken as it is", out.display()));
        } else {
            experiment(&RunOptions { out: out.clone(), backend, ..options.clone() })?;
        }
        let summary = Summary::read(&out)?;
        let reasons = summary.reasons.iter();
        reasons.for_each(|reason| on_remark(&format!("{} on {place} is NOT VALID: {reason}", summary.plan)));
        Ok(summary)
    };
    let (emu, sim) = (on(BackendKind::Emu, "emu")?, on(BackendKind::Sim, "sim")?);
    Ok(compare_summaries(&emu, &sim))
}

fn compare_summaries(emu: &Summary, sim: &Summary) -> Vec<Ratio> {
    compare(&emu.plan, emu.figures.iter(), &sim.figures.iter().collect::<Vec<_>>())
}

/// Compares the figures that both have, in their order over emulated wires.
pub(crate) fn compare<'a>(plan: &str, emu: impl Iterator<Item = &'a Figure>, sim: &[&Figure]) -> Vec<Ratio> {
    let same = |figure: &Figure| {
        let mut figures = sim.iter();
        // Where there is no stock Tor, its model has its place.
        let of_model = of_model(&figure.labels);
        figures.find(|other| {
            other.name == figure.name && (other.labels == figure.labels || other.labels == of_model)
        })
    };
    emu.filter_map(|figure| Some(ratio(plan, figure, same(figure)?))).collect()
}

fn ratio(plan: &str, emu: &Figure, sim: &Figure) -> Ratio {
    let over = |[emu, sim]: [f64; 2]| (emu != 0.0).then(|| sim / emu);
    let is_within = |[emu, sim]: [f64; 2], within: f64| (sim - emu).abs() <= within * emu.abs();
    let (p50, p90) = ([emu.p50, sim.p50], [emu.p90, sim.p90]);
    Ratio {
        plan: plan.to_owned(),
        figure: emu.name.clone(),
        labels: emu.labels.clone(),
        unit: emu.unit.clone(),
        p50,
        p90,
        n: [emu.n, sim.n],
        sim_over_emu_p50: over(p50),
        sim_over_emu_p90: over(p90),
        is_near: is_within(p50, MEDIAN_WITHIN) && is_within(p90, P90_WITHIN),
    }
}

/// The table, a line for each figure, with a `!` where it is not near.
pub fn text(ratios: &[Ratio]) -> String {
    let told = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
    let mut lines = vec!["plan  figure  emu p50, sim p50  sim_over_emu at p50, p90".to_owned()];
    for ratio in ratios {
        let labels = ratio.labels.iter().map(|(name, value)| format!("{name}={value}"));
        let labels = labels.collect::<Vec<_>>().join(", ");
        let [emu, sim] = ratio.p50;
        lines.push(format!(
            "{} {}  {} ({labels})  {emu:.4} {sim:.4} {}  {} {}",
            if ratio.is_near { " " } else { "!" },
            ratio.plan,
            ratio.figure,
            ratio.unit,
            told(ratio.sim_over_emu_p50),
            told(ratio.sim_over_emu_p90),
        ));
    }
    let near = ratios.iter().filter(|ratio| ratio.is_near).count();
    lines.push(format!("{near} of {} are near: within 10 % at the median and 20 % at p90", ratios.len()));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::labels;
    use crate::results::RunSamples;

    fn summary(values: &[f64]) -> Summary {
        let mut samples = RunSamples::default();
        samples.add(0, "echo_ms", &labels([("transport", "tls")]), "ms", values);
        samples.add(0, "failures", &labels([]), "1", &[0.0]);
        Summary { plan: "p".into(), figures: samples.figures(), ..Summary::default() }
    }

    /// Stock's figures over emulated wires beside those of its model.
    fn ratios_of_stock() -> Vec<Ratio> {
        let [emu, sim] = [("stock", 2.0), ("stock-model", 3.0)].map(|(transport, value)| {
            let mut samples = RunSamples::default();
            samples.add(0, "echo_ms", &labels([("transport", transport)]), "ms", &[value]);
            Summary { figures: samples.figures(), ..Summary::default() }
        });
        compare_summaries(&emu, &sim)
    }

    #[test]
    fn quantiles_of_the_same_figure_are_compared() {
        let mut sim = summary(&[95.0, 105.0, 140.0]);
        let ratios = compare_summaries(&summary(&[90.0, 100.0, 120.0]), &sim);
        assert_eq!(ratios.len(), 2);
        let echo = &ratios[0];
        assert_eq!((echo.p50, echo.n, echo.sim_over_emu_p50), ([100.0, 105.0], [3, 3], Some(1.05)));
        assert!(echo.is_near && ratios[1].is_near && ratios[1].sim_over_emu_p50.is_none());
        assert!(text(&ratios).ends_with("2 of 2 are near: within 10 % at the median and 20 % at p90\n"));
        assert!(
            !compare_summaries(&summary(&[90.0, 100.0, 120.0]), &summary(&[95.0, 111.0, 120.0]))[0].is_near
        );
        let stock = ratios_of_stock();
        assert_eq!((stock.len(), stock[0].sim_over_emu_p50), (1, Some(1.5)));
        // What only one of them has is not compared.
        sim.figures.remove(0);
        assert_eq!(compare_summaries(&summary(&[1.0]), &sim).len(), 1);
    }
}
