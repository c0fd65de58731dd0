//! The report as HTML.

use std::time::Duration;

use serde::Serialize;

use super::chart::{self, Curve, Row, TAIL, Trace};
use super::looks::{Look, Looks, Place};
use super::network;
use super::outcome::{Sentence, sentences};
use super::words::{
    axis_title, escape, meaning_of, number, say, short_names, title_of, unit_after, with_names,
};
use crate::figures::{Figure, Labels};
use crate::plan::{Plan, Plot, Statistic};
use crate::results::{Check, Invocation, Judgement, Outcome, Repetition, Results, Series, Summary};

const STYLE: &str = include_str!("style.css");

/// The report of these results as one HTML document; the first are named A, B and so on when they are several.
pub fn page(results: &[Results<'_>]) -> String {
    let title = results.first().map_or("No results", |first| &*first.plan.title);
    let title = escape(title);
    let mut html = begin(&title) + "<section class=\"first\">\n" + &format!("<h1>{title}</h1>\n");
    for (number, result) in results.iter().enumerate() {
        if results.len() > 1 {
            html += &format!("<h2>{}</h2>\n", run_name(number));
        }
        html += &first_page(result);
    }
    html += "</section>\n";
    html += &targets(results);
    html += &known_values(results);
    let looks = Looks::of(results);
    html += &figures(results, &looks);
    html += &distributions(results, &looks);
    html += "</body>\n</html>\n";
    html
}

/// The beginning of a document of this title, which is HTML.
pub(super) fn begin(title: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n"
    )
}

/// What a run is called when there are several.
fn run_name(number: usize) -> String {
    match u8::try_from(number).ok().filter(|number| *number < 26) {
        Some(number) => format!("Run {}", char::from(b'A' + number)),
        None => format!("Run {}", number + 1),
    }
}

/// Whether to believe a run, and all that one needs to make it again.
fn first_page(result: &Results<'_>) -> String {
    let summary = result.summary;
    let verdict = verdict(summary);
    let outcome = what_came_out(sentences(result));
    // Who reads of results that must not be trusted reads that first.
    let mut html = if summary.valid { outcome + &verdict } else { verdict + &outcome };
    html += &format!("<p>{}</p>\n", escape(&result.plan.about));
    html += &network::drawing(result.plan);
    html += "<table>\n";
    let conditions = &summary.conditions;
    let noise = &summary.noise;
    let seeds: Vec<String> = summary.seeds.iter().map(u64::to_string).collect();
    let set: Vec<String> = summary.set.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let own_noise = summary.backend_noise.iter().map(|(arm, noise)| {
        let noise: Vec<String> =
            noise.iter().map(|(name, value)| format!("{name} {}", number(*value))).collect();
        format!("{arm}: {}", noise.join(", "))
    });
    let settings = summary.settings.iter().map(|(arm, settings)| {
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        format!("{arm}: {}", settings.join(", "))
    });
    let lines = [
        ("Plan", summary.plan.clone()),
        ("Source", result.plan.source.clone().unwrap_or_default()),
        ("Command", summary.command.clone()),
        ("Set", set.join(", ")),
        ("Commit", summary.commit.clone()),
        ("Programs", format!("heddle {}, tor {}", conditions.heddle, summary.tor)),
        ("Intervals", over(summary.intervals_over).to_owned()),
        ("Seeds", format!("{} ({} of {} runs)", seeds.join(", "), seeds.len(), summary.runs_wanted)),
        ("How runs came about", how_runs_came_about(summary)),
        ("Measured once more", summary.repeated.join("; ")),
        ("Backend", summary.backend.clone()),
        ("Machine", machines(summary)),
        (
            "Noise",
            format!(
                "load {} before and {} after, {} % of the processors' time stolen",
                noise.load_before,
                noise.load_after,
                number(noise.stolen_pct)
            ),
        ),
        ("Backend's own noise", own_noise.collect::<Vec<_>>().join("; ")),
        ("Hosts", settings.collect::<Vec<_>>().join("; ")),
        ("Time", format!("{:.0} s", summary.seconds)),
    ];
    for (name, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        let value = escape(value);
        let value = if *name == "Command" { format!("<code>{value}</code>") } else { value };
        html += &format!("<tr><th>{name}</th><td>{value}</td></tr>\n");
    }
    html + "</table>\n"
}

/// The machine, or all kinds of machines that jobs were made on.
fn machines(summary: &Summary) -> String {
    let several = summary.machines.iter();
    let all: Vec<String> = several
        .chain(summary.machines.is_empty().then_some(&summary.conditions))
        .map(|one| format!("{}, {} cores, Linux {}", one.processor, one.cores, one.kernel))
        .collect();
    all.join("; ")
}

/// Whether to believe a run.
fn verdict(summary: &Summary) -> String {
    if summary.valid {
        return "<div class=\"verdict\"><strong>Valid.</strong></div>\n".to_owned();
    }
    let reasons = summary.reasons.iter().map(|reason| format!("<li>{}</li>", escape(reason)));
    format!(
        "<div class=\"verdict bad\"><strong>Not valid: do not trust these figures.</strong><ul>{}</ul></div>\n",
        reasons.collect::<String>()
    )
}

/// The first sentences as a list, and the others folded up.
fn what_came_out([shown, folded]: [Vec<Sentence>; 2]) -> String {
    let list = |sentences: &[Sentence]| -> String {
        let item = |sentence: &Sentence| {
            let class = match sentence.outcome {
                Some(Outcome::Met) => " class=\"met\"",
                Some(Outcome::Missed | Outcome::NotMeasured) => " class=\"missed\"",
                Some(Outcome::Open) | None => "",
            };
            format!("<li{class}>{}</li>\n", escape(&sentence.text))
        };
        format!("<ul class=\"outcome\">\n{}</ul>\n", sentences.iter().map(item).collect::<String>())
    };
    let mut html = if shown.is_empty() { String::new() } else { list(&shown) };
    if !folded.is_empty() {
        html += &format!("<details><summary>{} more</summary>{}</details>\n", folded.len(), list(&folded));
    }
    html
}

/// The commands that made the runs, where there are several; empty otherwise.
pub(super) fn how_runs_came_about(summary: &Summary) -> String {
    if summary.history.len() < 2 {
        return String::new();
    }
    let of = |one: &Invocation| {
        format!("{} to {} runs of {}: {}", one.runs_before, one.runs_after, one.runs_wanted, one.command)
    };
    let commands: Vec<String> = summary.history.iter().map(of).collect();
    let warning = match summary.was_extended() {
        true => {
            "how many runs there are to be was chosen anew when there were some, so that intervals are narrower than they say; "
        }
        false => "",
    };
    format!("{warning}{}", commands.join("; "))
}

/// Over what intervals are, in words.
fn over(repetition: Repetition) -> &'static str {
    match repetition {
        Repetition::Runs => "over runs, each with hosts and processes of its own",
        Repetition::Networks => "over networks, each with processes of its own and several rounds",
        Repetition::RoundsInOneNetwork => "over rounds in one network: another network may differ by more",
    }
}

/// The values from elsewhere beside ours.
fn known_values(results: &[Results<'_>]) -> String {
    let rows: Vec<(usize, &Results<'_>, &Check)> = numbered(results)
        .flat_map(|(number, result)| result.summary.checks.iter().map(move |check| (number, result, check)))
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let several = results.len() > 1;
    let mut html = "<h2>Beside what is known</h2>\n<div class=\"wide\"><table>\n<tr>".to_owned();
    html += if several { "<th>run</th>" } else { "" };
    html += "<th>figure</th><th>labels</th><th>source</th><th class=\"n\">known</th><th class=\"n\">ours [95 %]</th><th class=\"n\">demanded</th><th></th></tr>\n";
    for (number_of_run, result, check) in rows {
        html += "<tr>";
        if several {
            html += &format!("<td>{}</td>", run_name(number_of_run));
        }
        let interval =
            interval_of(result, check).map(|[low, high]| format!(" [{}, {}]", number(low), number(high)));
        let ours = check.ours.map_or("not measured".to_owned(), number) + &interval.unwrap_or_default();
        let bounds =
            check.bounds.map_or(String::new(), |[low, high]| format!("{} – {}", number(low), number(high)));
        let verdict = match check.holds {
            Some(true) => "<span class=\"holds\">holds</span>",
            Some(false) => "<span class=\"fails\">does not hold</span>",
            None => "",
        };
        html += &format!(
            "<td>{} ({})</td><td>{}</td><td>{}</td><td class=\"n\">{}{}</td><td class=\"n\">{ours}</td><td class=\"n\">{bounds}</td><td>{verdict}</td></tr>\n",
            named(result.plan, &check.figure),
            check.statistic.name(),
            escape(&say(result.plan, &check.labels)),
            escape(&check.source),
            number(check.known),
            escape(&unit_after(&check.unit)),
        );
    }
    html + "</table></div>\n"
}

/// What became of the plans' targets.
fn targets(results: &[Results<'_>]) -> String {
    let rows: Vec<(usize, &Plan, &Judgement)> = numbered(results)
        .flat_map(|(run, result)| result.summary.targets.iter().map(move |target| (run, result.plan, target)))
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let several = results.len() > 1;
    let mut html =
        "<h2>Targets</h2>\n<p class=\"soft\">Met when the whole 95 % interval keeps the bound, missed when \
                    none of it does, otherwise open, as always where runs lack the figure.</p>\n<div \
                    class=\"wide\"><table>\n<tr>"
            .to_owned();
    html += if several { "<th>run</th>" } else { "" };
    html += "<th>figure</th><th>labels</th><th>source</th><th class=\"n\">ours [95 %]</th><th class=\"n\">to be</th><th></th></tr>\n";
    for (run, plan, target) in rows {
        html += "<tr>";
        if several {
            html += &format!("<td>{}</td>", run_name(run));
        }
        let outcome = target.outcome.name();
        let verdict = match target.outcome {
            Outcome::Met => format!("<span class=\"holds\">{outcome}</span>"),
            Outcome::Missed | Outcome::NotMeasured => format!("<span class=\"fails\">{outcome}</span>"),
            Outcome::Open => outcome.to_owned(),
        };
        html += &format!(
            "<td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{verdict}</td></tr>\n",
            named(plan, &target.figure),
            escape(&say(plan, &target.labels)),
            escape(&target.source),
            judged(target),
            demanded(target),
        );
    }
    html + "</table></div>\n"
}

/// A figure's title, with its name small behind it.
fn named(plan: &Plan, name: &str) -> String {
    match title_of(plan, name) {
        title if title == name => escape(name),
        title => format!("{} <small>{}</small>", escape(&title), escape(name)),
    }
}

/// The value that is judged, with its interval, and in how many runs it was measured where that is not in all.
pub(super) fn judged(target: &Judgement) -> String {
    let interval = target.ci95.map(|[low, high]| format!(" [{}, {}]", number(low), number(high)));
    let Judgement { runs, runs_due, .. } = target;
    let runs = (runs < runs_due).then(|| format!(" in {runs} of {runs_due} runs"));
    target.ours.map_or("nothing".to_owned(), number)
        + &interval.unwrap_or_default()
        + &runs.unwrap_or_default()
}

/// The bounds of a target in words.
pub(super) fn demanded(target: &Judgement) -> String {
    let most = target.at_most.map(|most| format!("at most {}", number(most)));
    let least = target.at_least.map(|least| format!("at least {}", number(least)));
    least.into_iter().chain(most).collect::<Vec<_>>().join(", ")
}

/// The interval of our value, if it is a mean.
fn interval_of(result: &Results<'_>, check: &Check) -> Option<[f64; 2]> {
    let mut figures = result.summary.figures.iter();
    let figure = figures.find(|figure| figure.name == check.figure && figure.labels == check.labels)?;
    figure.ci95.filter(|_| check.statistic == Statistic::Mean)
}

/// One figure of one of the runs.
struct Found<'a> {
    run: usize,
    plan: &'a Plan,
    figure: &'a Figure,
    known: Option<f64>,
}

/// Every figure: a chart of intervals and a table for each name.
fn figures(results: &[Results<'_>], looks: &Looks<'_>) -> String {
    let all = numbered(results).flat_map(|(run, result)| {
        result.summary.figures.iter().map(move |figure| Found {
            run,
            plan: result.plan,
            figure,
            known: known_mean(result, figure),
        })
    });
    let mut all: Vec<Found<'_>> = all.collect();
    // Runs of the same figure stand under each other.
    all.sort_by(|a, b| {
        (&a.figure.name, &a.figure.labels, a.run).cmp(&(&b.figure.name, &b.figure.labels, b.run))
    });
    let mut names: Vec<&str> = all.iter().map(|found| &*found.figure.name).collect();
    names.dedup();
    // What the plan is about comes first.
    let plans: Vec<&str> = results.iter().flat_map(|result| in_question(result.plan)).collect();
    names.sort_by_key(|name| plans.iter().position(|plan| plan == name).unwrap_or(usize::MAX));
    let mut html = "<h2>Figures</h2>\n<p class=\"soft\">Means of the runs' means, of ratios the geometric one of \
                    pairs, with the 95 % interval of Student's t over runs or rounds; quantiles over all samples. A \
                    diamond is a known value.</p>\n"
        .to_owned();
    for name in names {
        let group: Vec<&Found<'_>> = all.iter().filter(|found| found.figure.name == name).collect();
        html += &figure_group(name, &group, results.len() > 1, looks);
    }
    html
}

/// The names of the figures that a plan has targets for, compares, plots or knows something about.
fn in_question(plan: &Plan) -> Vec<&str> {
    let targets = plan.targets.iter().map(|target| &*target.as_ref().figure);
    let known = plan.known.iter().map(|known| &*known.as_ref().figure);
    let plotted = plan.plots.iter().map(|plot| &*plot.as_ref().figure);
    let compared = plan.compare.iter().flat_map(|compare| {
        let compare = compare.as_ref();
        [&*compare.figure, &*compare.name].into_iter().chain(compare.to.as_deref())
    });
    targets.chain(known).chain(plotted).chain(compared).collect()
}

fn figure_group(name: &str, group: &[&Found<'_>], several: bool, looks: &Looks<'_>) -> String {
    let Some(first) = group.first() else { return String::new() };
    let names = short_names(group.iter().map(|found| (found.plan, &found.figure.labels)));
    let label = |(found, name): (&&Found<'_>, &String)| match several {
        true => format!("{name} · {}", run_name(found.run)),
        false => name.clone(),
    };
    let labels: Vec<String> = group.iter().zip(&names).map(label).collect();
    let places =
        group.iter().map(|found| Place { run: found.run, plan: found.plan, labels: &found.figure.labels });
    let looks = looks.of_plot(&places.collect::<Vec<_>>());
    let row = |((found, label), look): ((&&Found<'_>, &String), _)| Row {
        label: label.clone(),
        mean: found.figure.mean,
        ci95: found.figure.ci95,
        known: found.known,
        look,
    };
    let rows: Vec<Row> = group.iter().zip(&labels).zip(looks).map(row).collect();
    let (title, unit) = (title_of(first.plan, name), &*first.figure.unit);
    let mut html = format!("<h3>{}</h3>\n", named(first.plan, name));
    if let Some(meaning) = meaning_of(first.plan, name) {
        html += &format!("<p class=\"soft\">{}</p>\n", with_names(&meaning));
    }
    html += &format!("<figure>{}</figure>\n", chart::intervals(&title, &axis_title(&title, unit), &rows));
    let figures: Vec<&Figure> = group.iter().map(|found| found.figure).collect();
    html + &figure_table(unit, &labels, &figures) + &data(&figures)
}

/// The numbers of a group of figures.
fn figure_table(unit: &str, labels: &[String], figures: &[&Figure]) -> String {
    let mut html = format!(
        "<div class=\"wide\"><table>\n<tr><th></th><th class=\"n\">n</th><th class=\"n\">{}</th><th class=\"n\">95 % interval</th><th class=\"n\">p50</th><th class=\"n\">p90</th><th class=\"n\">p99</th></tr>\n",
        escape(&axis_title("mean", unit))
    );
    for (figure, label) in figures.iter().zip(labels) {
        // None of one run, and where the runs that there are say nothing about the mean.
        let interval = figure
            .ci95
            .map_or("none".to_owned(), |[low, high]| format!("{} – {}", number(low), number(high)));
        html += &format!(
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{interval}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
            escape(label),
            figure.n,
            number(figure.mean),
            number(figure.p50),
            number(figure.p90),
            number(figure.p99)
        );
    }
    html + "</table></div>\n"
}

/// The known mean of a figure, if the plan has one.
fn known_mean(result: &Results<'_>, figure: &Figure) -> Option<f64> {
    let about = |check: &&Check| {
        check.statistic == Statistic::Mean && check.figure == figure.name && check.labels == figure.labels
    };
    result.summary.checks.iter().find(about).map(|check| check.known)
}

/// The plots that the first plan asks for.
fn distributions(results: &[Results<'_>], looks: &Looks<'_>) -> String {
    let Some(first) = results.first().filter(|first| !first.plan.plots.is_empty()) else {
        return String::new();
    };
    let mut html = "<h2>Distributions</h2>\n".to_owned();
    for plot in &first.plan.plots {
        let plot = plot.as_ref();
        let wanted = |labels: &Labels| plot.only.iter().all(|(name, value)| labels.get(name) == Some(value));
        let found: Vec<_> = numbered(results)
            .flat_map(|(run, result)| {
                result.samples.all().iter().map(move |series| (run, result.plan, series))
            })
            .filter(|(_, _, series)| series.name == plot.figure && wanted(&series.labels))
            .collect();
        let names = short_names(found.iter().map(|(_, plan, series)| (*plan, &series.labels)));
        let places =
            found.iter().map(|(run, plan, series)| Place { run: *run, plan, labels: &series.labels });
        let looks = looks.of_plot(&places.collect::<Vec<_>>());
        let labelled = found.iter().zip(names).zip(looks).map(|(((run, _, series), name), look)| {
            let label = if results.len() > 1 { format!("{name} · {}", run_name(*run)) } else { name };
            (label, look, *series)
        });
        let unit = found.first().map_or("", |(_, _, series)| &*series.unit);
        let axis = axis_title(&title_of(first.plan, &plot.figure), unit);
        let title = escape(&plot.title);
        if let Some(step) = plot.over_time {
            html += &course(plot, &axis, step, labelled);
            continue;
        }
        let curves: Vec<Curve> =
            labelled.filter_map(|(label, look, series)| Curve::of(label, look, series.all())).collect();
        if curves.is_empty() {
            html += &format!("<h3>{title}</h3>\n<p class=\"soft\">Nothing of it was measured.</p>\n");
            continue;
        }
        html += &format!(
            "<h3>{title}</h3>\n<figure>{}<figcaption>Share of samples at or below a value, with the 95 % band of \
             Dvoretzky, Kiefer, Wolfowitz and Massart for independent samples. The axis ends where {} % of every \
             curve are shown.</figcaption></figure>\n{}",
            chart::distributions(&plot.title, &axis, &curves),
            100.0 * TAIL,
            data(&curves)
        );
    }
    html
}

/// A plot of what figures were over time, in the first run of each set of results.
fn course<'a>(
    plot: &Plot,
    axis: &str,
    step: Duration,
    labelled: impl Iterator<Item = (String, Look, &'a Series)>,
) -> String {
    let traces = labelled.filter_map(|(label, look, series)| {
        let points = series.course(step.as_secs_f64())?;
        Some(Trace { label, points, look })
    });
    let traces: Vec<Trace> = traces.collect();
    let title = escape(&plot.title);
    if traces.is_empty() {
        return format!("<h3>{title}</h3>\n<p class=\"soft\">Nothing of it was measured.</p>\n");
    }
    format!(
        "<h3>{title}</h3>\n<figure>{}<figcaption>{} over time, in one run, looked at about every {} ms.</figcaption></figure>\n{}",
        chart::over_time(&plot.title, &traces),
        escape(axis),
        step.as_millis(),
        data(&traces)
    )
}

/// The data of a plot, folded up under it.
pub(super) fn data(data: &impl Serialize) -> String {
    let json = serde_json::to_string(data).unwrap_or_default();
    format!("<details><summary>Data of this plot (JSON)</summary><pre>{}</pre></details>\n", escape(&json))
}

fn numbered<'a, 'b>(results: &'a [Results<'b>]) -> impl Iterator<Item = (usize, &'a Results<'b>)> {
    results.iter().enumerate()
}
