//! Reports are well-formed, complete and need nothing else.

use std::collections::BTreeMap;

use super::*;
use crate::figures::{Labels, labels};
use crate::machine::conditions::{Conditions, Noise};
use crate::plan::{Plan, Statistic};
use crate::results::{Check, Judgement, Outcome, Repetition, RunSamples, Stored, Summary};

fn plan(name: &str) -> Plan {
    Plan::load(name, &BTreeMap::new()).unwrap().plan
}

fn stored(transports: &[&str]) -> Stored {
    let plan = plan("calibrate");
    let mut samples = RunSamples::default();
    for (place, transport) in transports.iter().enumerate() {
        for run in 0..3_u32 {
            let values: Vec<f64> =
                (0..500_u32).map(|n| 50.0 + f64::from(n + run) / 100.0 + place as f64).collect();
            let labels = labels([("transport", transport), ("wire", "delay")]);
            samples.add(run as usize, "delay_ms", &labels, "ms", &values);
        }
    }
    let check = Check {
        figure: "delay_ms".into(),
        labels: labels([("transport", "stock"), ("wire", "delay")]),
        statistic: Statistic::Mean,
        unit: "ms".into(),
        known: 50.0,
        source: "\"Tom & Jerry\" <1940>".into(),
        ours: None,
        bounds: Some([49.0, 51.0]),
        holds: Some(false),
    };
    let target = Judgement {
        figure: "delay_ms".into(),
        labels: labels([("transport", "stock")]),
        unit: "ms".into(),
        at_most: Some(40.0),
        at_least: None,
        source: "a & b".into(),
        ours: Some(52.5),
        ci95: Some([52.0, 53.0]),
        runs: 2,
        runs_due: 3,
        outcome: Outcome::Missed,
    };
    let summary = Summary {
        plan: "calibrate".into(),
        set: BTreeMap::from([("probes".to_owned(), "9".to_owned())]),
        backend: "emu".into(),
        cpu: None,
        null_crypto: false,
        commit: "0123abcd".into(),
        command: "heddle lab run calibrate --set 'a<b'".into(),
        conditions: Conditions::default(),
        machines: Vec::new(),
        tor: "0.4.9.11".into(),
        history: Vec::new(),
        intervals_over: Repetition::Runs,
        seeds: vec![4, 5, 6],
        runs_wanted: 3,
        seconds: 1.0,
        noise: Noise::default(),
        backend_noise: BTreeMap::new(),
        settings: BTreeMap::from([("probes".to_owned(), ["congestion control reno".to_owned()].into())]),
        traces: BTreeMap::new(),
        valid: false,
        reasons: vec!["packets were <late> & lost".into()],
        arms: vec!["tls".into()],
        phases: Vec::new(),
        repeated: vec!["run 1 of 2: tls: late".into()],
        tries: Vec::new(),
        figures: samples.figures(),
        checks: vec![check],
        targets: vec![target],
    };
    Stored { plan, summary, samples }
}

/// Checks that every tag is closed in order, that attributes are quoted and that `&` only begins what HTML knows.
/// Returns the names of all elements.
fn elements(html: &str) -> Vec<String> {
    let html = html.strip_prefix("<!DOCTYPE html>\n").expect("a document type");
    let (mut open, mut names) = (Vec::new(), Vec::new());
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        let (text, tag) = rest.split_at(start);
        assert!(!text.contains('>') || open.last().is_some_and(|name| name == "style"), "{text}");
        for after in text.split('&').skip(1) {
            assert!(["amp;", "lt;", "gt;", "quot;"].iter().any(|name| after.starts_with(name)), "{after}");
        }
        let end = tag.find('>').expect("a tag ends");
        let inside = &tag[1..end];
        rest = &tag[end + 1..];
        if let Some(name) = inside.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name));
            continue;
        }
        let (name, attributes) = inside.split_once(' ').unwrap_or((inside.trim_end_matches('/'), ""));
        let attributes = attributes.trim_end_matches('/');
        assert_eq!(attributes.matches('"').count(), 2 * attributes.matches("=\"").count(), "{inside}");
        names.push(name.to_owned());
        if !inside.ends_with('/') {
            open.push(name.to_owned());
        }
    }
    assert!(open.is_empty(), "{open:?} are not closed");
    names
}

#[test]
fn a_report_is_well_formed_and_says_everything() {
    let stored = stored(&["stock", "tls"]);
    let html = page(&[stored.results()]);
    let elements = elements(&html);
    let count = |name: &str| elements.iter().filter(|element| *element == name).count();
    assert_eq!((count("svg"), count("details"), count("h1")), (3, 2, 1));
    for said in [
        "Not valid",
        "packets were &lt;late&gt; &amp; lost",
        "&quot;Tom &amp; Jerry&quot; &lt;1940&gt;",
        "does not hold",
        "not measured",
        "a &amp; b",
        "at most 40",
        "52.50 [52.00, 53.00] in 2 of 3 runs",
        "missed",
        "0123abcd",
        "4, 5, 6 (3 of 3 runs)",
        "heddle lab run calibrate --set 'a&lt;b'",
        "probes=9",
        "probes: congestion control reno",
        ">stock<",
    ] {
        assert!(html.contains(said), "{said}");
    }
}

#[test]
fn what_the_plan_is_about_comes_first_and_means_have_their_interval() {
    let mut stored = stored(&["stock"]);
    for run in 0..3 {
        stored.samples.add(run, "a_cost", &Labels::new(), "s", &[1.0]);
    }
    stored.summary.figures = stored.samples.figures();
    stored.summary.checks[0].ours = Some(52.5);
    let html = page(&[stored.results()]);
    let place = |text: &str| html.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(place("<h3>Delay of a datagram, one way <small>delay_ms") < place("<h3>a_cost</h3>"));
    // Means of the runs 0.01 apart: half an interval is 4.303 times 0.00577.
    assert!(html.contains("52.50 [52.48, 52.53]"), "{}", &html[place("Tom")..][..200]);
}

#[test]
fn a_report_follows_the_readers_scheme_and_loads_nothing() {
    let html = page(&[stored(&["stock"]).results()]);
    assert!(
        html.contains("color-scheme: light dark") && html.contains("@media (prefers-color-scheme: dark)")
    );
    assert!(html.contains("@media print"));
    // On a phone, a plot is moved about, not shrunk.
    assert!(html.contains("@media screen and (max-width: 50rem)") && html.contains("min-width: 44rem"));
    assert!(html.contains("figure { margin: 1rem 0; overflow-x: auto; }"));
    for loads in ["http:", "https:", "url(", "@import", "<script", "<link", "<img", "src="] {
        assert!(!html.contains(loads), "{loads}");
    }
    // Every colour is a variable that each scheme sets.
    let variables = html.split("var(--").skip(1).map(|after| after.split_once(')').unwrap().0);
    for variable in variables {
        assert!(html.matches(&format!("--{variable}: ")).count() >= 2, "{variable}");
    }
}

#[test]
fn several_runs_stand_side_by_side() {
    let (a, b) = (stored(&["stock"]), stored(&["stock"]));
    let html = page(&[a.results(), b.results()]);
    elements(&html);
    assert!(html.contains("Run A") && html.contains("stock, delay · Run B"));
    elements(&page(&[]));
    let text = text(&[a.results(), b.results()]);
    assert_eq!(text.matches("NOT VALID").count(), 2);
    assert!(text.contains("delay_ms (transport=stock, wire=delay)"));
}

#[test]
fn plot_data_is_json() {
    let html = page(&[stored(&["stock", "tls"]).results()]);
    let data = html.split("<pre>").skip(1).map(|after| after.split_once("</pre>").unwrap().0);
    let data: Vec<serde_json::Value> =
        data.map(|json| serde_json::from_str(&json.replace("&quot;", "\"")).unwrap()).collect();
    assert_eq!(data[0][0]["labels"]["transport"], "stock");
    assert_eq!((&data[1][1]["label"], &data[1][1]["n"]), (&"tls".into(), &1500.into()));
}

#[test]
fn names_show_what_differs() {
    let plan = plan("calibrate");
    let short = |all: &[Labels]| words::short_names(all.iter().map(|labels| (&plan, labels)));
    let all = [labels([("a", "x"), ("b_ms", "2")]), labels([("a", "x"), ("b_ms", "3")])];
    assert_eq!(short(&all), ["b ms 2", "b ms 3"]);
    assert_eq!(short(&all[..1]), ["x, b ms 2"]);
    assert_eq!(short(&[Labels::new()]), ["all"]);
    // Values alone would be the same.
    assert_eq!(short(&[labels([("a", "x")]), labels([("b", "x")])]), ["a=x", "b=x"]);
    let number = |value| words::number(value);
    assert_eq!(
        [number(0.0), number(9.5612), number(0.012_345), number(-123_456.7)],
        ["0", "9.561", "0.01235", "-123457"]
    );
}

#[test]
fn the_first_lines_say_what_came_out() {
    let mut stored = stored(&["stock"]);
    let missed = "Missed: Delay of a datagram, one way, stock: 52.5 ms (52 to 53), to be at most 40 ms.";
    let place = |html: &str, text: &str| html.find(text).unwrap_or_else(|| panic!("no {text}"));
    let html = page(&[stored.results()]);
    // What must not be trusted says so first.
    assert!(place(&html, "<strong>Not valid") < place(&html, missed));
    stored.summary.valid = true;
    let html = page(&[stored.results()]);
    assert!(
        place(&html, missed) < place(&html, "<strong>Valid.") && html.contains("<li class=\"missed\">Missed")
    );
    let text = text(&[stored.results()]);
    assert!(text.lines().nth(1).unwrap().ends_with(missed), "{text}");
    // Only a dozen are not folded up.
    stored.summary.targets = vec![stored.summary.targets[0].clone(); 15];
    let html = page(&[stored.results()]);
    elements(&html);
    assert!(html.contains("<details><summary>4 more</summary>"));
}

#[test]
fn figures_of_comparisons_have_titles_in_words() {
    let plan = plan("thesis-exp11");
    let title = |name: &str| words::title_of(&plan, name);
    assert_eq!(title("throughput_over_stock"), "Throughput of all streams together, over stock");
    assert_eq!(
        title("delay_excess_over_stock"),
        "One cell there and back (beside bulk), minus “One cell there and back (base)”, over stock"
    );
    assert_eq!(title("nonesuch"), "nonesuch");
    for shipped in crate::plan::shipped() {
        let plan = self::plan(shipped.name);
        let compared = plan.compare.iter().map(|compare| &compare.as_ref().name);
        for name in compared.chain(plan.plots.iter().map(|plot| &plot.as_ref().figure)) {
            let title = words::title_of(&plan, name);
            assert!(!title.contains('_') && !title.is_empty(), "{}: {title}", shipped.name);
            assert!(words::meaning_of(&plan, name).is_some(), "{}: {name}", shipped.name);
        }
    }
}

#[test]
fn an_arm_keeps_its_colour_where_another_one_is_missing() {
    let mut stored = stored(&[]);
    stored.plan = plan("mixed");
    for (figure, transports) in [("echo_ms", &["quic", "stock", "tls"][..]), ("open_ms", &["quic"])] {
        for (run, transport) in transports.iter().flat_map(|transport| [(0, transport), (1, transport)]) {
            let labels = labels([("transport", transport)]);
            stored.samples.add(run, figure, &labels, "ms", &[1.0, 2.0 + run as f64]);
        }
    }
    stored.summary.figures = stored.samples.figures();
    stored.plan.plots[0].get_mut().figure = "open_ms".to_owned();
    stored.plan.plots[0].get_mut().only.clear();
    let html = page(&[stored.results()]);
    let charts: Vec<Vec<&str>> = html
        .split("<svg")
        .map(|svg| svg.split("class=\"dot ").skip(1).map(|dot| &dot[..2]).collect::<Vec<_>>())
        .filter(|dots| !dots.is_empty())
        .collect();
    // In the plan stock is the first arm, then comes tls and then quic.
    assert_eq!(charts[..2], [vec!["f2"], vec!["f2", "f0", "f1"]]);
    assert!(charts[2].iter().all(|colour| *colour == "f2"), "{charts:?}");
    // Of two runs, the second has dashes in the same colour.
    let html = page(&[stored.results(), stored.results()]);
    assert!(html.contains("class=\"curve s2 d0\"") && html.contains("class=\"curve s2 d1\""));
    assert!(html.contains("class=\"interval s2 d0\"") && html.contains("class=\"interval s2 d1\""));
}

#[test]
fn hostile_names_are_text() {
    let mut stored = stored(&["<script>"]);
    stored.plan.arms[0].get_mut().name = "<script>".to_owned();
    stored.plan.arms[0].get_mut().labels = labels([("transport", "<script>")]);
    stored.summary.targets[0].labels = labels([("transport", "<script>")]);
    let html = page(&[stored.results()]);
    elements(&html);
    assert!(html.contains("&lt;script&gt;") && !html.contains("<script"));
}
