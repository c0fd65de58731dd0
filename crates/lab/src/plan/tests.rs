//! Plans with bad input, and parts of plans.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::*;
use crate::error::{Error, Result};

/// The smallest plan with everything in it; the wires do nothing, because the loopback has none.
pub(crate) const SMALL: &str = r#"
name = "small"
title = "Small & <quick>"
about = "A plan for tests."
budget = "1 min"
runs = 2
seed = 7

[set]
probes = "2000"

[[arm]]
name = "bulk"
labels = { transport = "plain" }

[[arm.case]]
labels = { cc = "reno" }
copies = 2
wire = {}
bulk = { congestion_control = "reno", duration = "0.4 s", warm_up = "0.1 s" }

[[arm]]
name = "probe"
repeat = true

[[arm.case]]
labels = { transport = "plain" }
wire = {}
probe = { count = ${probes}, interval = "100 us" }

[[known]]
figure = "delay_ms"
labels = { transport = "plain" }
value = 0.0
within = 1000.0
source = "a loopback is quick"

[[plot]]
title = "Delay"
figure = "delay_ms"
"#;

pub(crate) fn small(changes: &[(&str, &str)]) -> Result<Loaded> {
    let text = changes.iter().fold(SMALL.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    });
    parse("small.toml", &text, &BTreeMap::new())
}

fn set(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

#[test]
fn every_shipped_plan_is_a_plan_and_keeps_its_budget() {
    for shipped in shipped() {
        let loaded = Plan::load(shipped.name, &BTreeMap::new()).unwrap();
        let plan = &loaded.plan.with_arms(&[]).unwrap();
        assert_eq!(plan.name, shipped.name);
        assert!(estimate(plan) * plan.runs as u32 <= plan.budget, "{}", plan.name);
        assert!(plan.budget <= Duration::from_secs(20 * 60), "{}", plan.name);
        // What is stored with the results is a plan again, and the same.
        let again = parse("again.toml", &loaded.text, &BTreeMap::new()).unwrap();
        assert_eq!(again.text, loaded.text);
    }
}

#[test]
fn bad_plans_are_refused_with_one_sentence_and_the_line() {
    for (change, line, what) in [
        (("name = \"small\"", "nam = \"small\""), 2, "nam"),
        (("name = \"small\"", "name = \"a b\""), 1, "letters, digits and hyphens"),
        (("runs = 2", "runs = 0"), 1, "0 runs"),
        (("runs = 2", "runs = \"two\""), 6, "expected usize"),
        (("\"1 min\"", "\"60\""), 5, "no unit"),
        (("cc = \"reno\" }", "cc = \"reno\""), 18, "missing comma"),
        (("wire = {}", "wire = { rate = \"10\" }"), 19, "no unit"),
        (("wire = {}", "wire = { rat = \"10 Mbit/s\" }"), 19, "rat"),
        (("wire = {}", "wire = { loss = { bernoulli = { probability = \"101 %\" } } }"), 16, "1.01"),
        (("\"0.4 s\"", "\"0.1 s\""), 16, "warm-up leaves nothing"),
        (("congestion_control = \"reno\"", "congestion_control = \"../x\""), 16, "no congestion control"),
        (("bulk = {", "probe = { count = 5, interval = \"1 ms\" }\nbulk = {"), 16, "either"),
        (("\"100 us\"", "\"99 us\""), 26, "at least 100 µs"),
        (("${probes}", "0"), 26, "0 probes"),
        (("${probes}", "${prob}"), 29, "no value \"prob\""),
        (("${probes}", "${probes"), 29, "`}`"),
        (("interval = \"100 us\"", "interval = \"100 us\", bytes = 43"), 26, "43 bytes"),
        (("name = \"probe\"", "name = \"bulk\""), 22, "there twice"),
        (("labels = { cc = \"reno\" }", "labels = {}"), 26, "same labels"),
        (("within = 1000.0", "within = -1.0"), 31, "finite"),
        (("[[plot]]", "[[target]]\nfigure = \"x\"\nsource = \"y\"\n[[plot]]"), 38, "at_most"),
        (("[[plot]]", "[[compare]]\nfigure = \"x\"\nname = \"y\"\nkind = \"ratio\"\n[[plot]]"), 38, "either"),
    ] {
        let error = small(&[change]).unwrap_err().to_string();
        let place = format!("small.toml:{line}: ");
        assert!(error.starts_with(&place) && error.contains(what), "{change:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn values_are_set_by_name_only() {
    let loaded = parse("small.toml", SMALL, &set("probes", "3000")).unwrap();
    assert_eq!(loaded.plan.arms[1].as_ref().cases[0].as_ref().probe.as_ref().unwrap().count, 3000);
    let refused = |key, value| parse("small.toml", SMALL, &set(key, value)).unwrap_err().to_string();
    assert!(refused("probe", "1").contains("it lets you set probes"));
    assert!(refused("probes", "1 }\n[[arm]]").contains("--set probes"));
    assert!(refused("probes", "\"").contains("--set probes"));
    assert!(refused("probes", "many").starts_with("small.toml:29: "));
    let missing = Plan::load("nonesuch", &BTreeMap::new()).unwrap_err().to_string();
    assert!(missing.contains("calibrate") && missing.contains(".toml"), "{missing}");
    let missing = Plan::load("nonesuch.toml", &BTreeMap::new()).unwrap_err();
    assert!(matches!(missing, Error::Io { .. }));
}

#[test]
fn arms_are_chosen_by_name() {
    let loaded = small(&[]).unwrap();
    let chosen = loaded.plan.with_arms(&["bulk".to_owned()]).unwrap();
    assert_eq!((chosen.arms.len(), chosen.known.len(), loaded.plan.known.len()), (1, 0, 1));
    assert_eq!(loaded.plan.with_arms(&["probe".to_owned()]).unwrap().known.len(), 1);
    assert_eq!(loaded.plan.with_arms(&[]).unwrap().arms.len(), 2);
    let by_choice = small(&[("name = \"probe\"", "name = \"probe\"\nby_choice = true")]).unwrap();
    let usual = by_choice.plan.with_arms(&[]).unwrap();
    assert_eq!((usual.arms.len(), &*usual.arms[0].as_ref().name), (1, "bulk"));
    assert_eq!(by_choice.plan.with_arms(&["probe".to_owned()]).unwrap().arms.len(), 1);
    let unknown = loaded.plan.with_arms(&["bulky".to_owned()]).unwrap_err().to_string();
    assert!(unknown.contains("no arm \"bulky\"; the plan has bulk, probe"), "{unknown}");
}

#[test]
fn targets_stay_with_the_arms_that_they_are_about() {
    let figures = |plan: &Plan| -> Vec<String> {
        plan.targets.iter().map(|target| target.as_ref().figure.clone()).collect()
    };
    for shipped in shipped() {
        let plan = Plan::load(shipped.name, &BTreeMap::new()).unwrap().plan;
        let all: Vec<String> = plan.arms.iter().map(|arm| arm.as_ref().name.clone()).collect();
        assert_eq!(figures(&plan.with_arms(&all).unwrap()), figures(&plan), "{}", plan.name);
    }
    let fidelity = Plan::load("utcp-fidelity", &BTreeMap::new()).unwrap().plan;
    let both = ["goodput_over_linux", "share_beside_linux"];
    assert_eq!(figures(&fidelity.with_arms(&[]).unwrap()), both);
    assert_eq!(figures(&fidelity.with_arms(&["share".to_owned()]).unwrap()), both);
    assert_eq!(figures(&fidelity.with_arms(&["linux-cubic-slow".to_owned()]).unwrap()), both[..1]);
}

#[test]
fn what_no_arm_gives_is_kept_to_be_told() {
    let strange = "[[known]]\nfigure = \"x\"\nlabels = { a = \"1\" }\nvalue = 1.0\nsource = \"us\"\n";
    let loaded = parse("small.toml", &format!("{SMALL}{strange}"), &BTreeMap::new()).unwrap();
    assert_eq!(loaded.plan.with_arms(&["bulk".to_owned()]).unwrap().known.len(), 1);
}

#[test]
fn what_must_never_happen_is_judged_by_every_sample() {
    for shipped in shipped() {
        let plan = Plan::load(shipped.name, &BTreeMap::new()).unwrap().plan;
        for target in plan.targets.iter().map(|target| target.as_ref()) {
            let never = match &*target.figure {
                "failures" => target.at_most == Some(0.0),
                "circuits_left_pct" => target.at_least == Some(100.0),
                _ => false,
            };
            assert!(target.always || !never, "{}: {}", plan.name, target.figure);
        }
    }
}

#[test]
fn phases_are_chosen_by_name() {
    let loaded = Plan::load("isolation", &BTreeMap::new()).unwrap();
    let choose = |names: &[&str]| {
        loaded.plan.with_phases(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    };
    let phases = |plan: &Plan| -> Vec<String> {
        plan.tor.as_ref().unwrap().as_ref().phases.iter().map(|phase| phase.as_ref().name.clone()).collect()
    };
    let cases = |plan: &Plan| -> BTreeSet<Option<String>> {
        plan.targets.iter().map(|target| target.as_ref().labels.get("case").cloned()).collect()
    };
    let chosen = choose(&["stall", "beside"]).unwrap();
    assert_eq!(phases(&chosen), ["beside", "stall"]);
    assert_eq!(cases(&chosen), BTreeSet::from([Some("stall".to_owned())]));
    assert!(estimate(&chosen) < estimate(&loaded.plan) / 2);
    assert_eq!((phases(&choose(&[]).unwrap()).len(), cases(&choose(&[]).unwrap()).len()), (6, 3));
    let unknown = choose(&["stalls"]).unwrap_err().to_string();
    assert!(unknown.contains("no phase \"stalls\"; the plan has alone; beside"), "{unknown}");
    let none = Plan::load("calibrate", &BTreeMap::new()).unwrap().plan;
    assert!(none.with_phases(&["x".to_owned()]).unwrap_err().to_string().contains("has no phases"));
}
