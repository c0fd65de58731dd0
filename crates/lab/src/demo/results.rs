//! What a run of the demo leaves behind.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Serialize;
use toml::Spanned;

use super::network;
use super::report;
use super::rounds::Rounds;
use super::{Arm, DemoOptions, Wires};
use crate::error::{Error, Result};
use crate::figures::labels;
use crate::machine::conditions::Conditions;
use crate::machine::files::write_whole;
use crate::plan::Plan;
use crate::report as html;
use crate::results::{NOT_COMPLETED, Repetition, Results, RunSamples, Summary};
use crate::testnet::stock_version;

/// `summary.json`: what it has in common with that of an experiment, and what joined the processes.
#[derive(Debug, Serialize)]
struct Written<'a> {
    /// `emulated` or `loopback`.
    wires: &'a str,
    /// Why there were no emulated wires, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    wires_lacking: Option<&'a str>,
    #[serde(flatten)]
    summary: &'a Summary,
}

/// Removes the results of an earlier run, which could be taken for this one's.
pub(super) fn forget(dir: &Path) -> Result<()> {
    for name in ["summary.json", "samples.json", "report.html"] {
        match fs::remove_file(dir.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io(format!("removing {}", dir.join(name).display()))(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Prints and writes what was measured, and passes on why it ended early. Where nothing was measured, nothing is
/// written.
pub(super) fn finish(mut rounds: Rounds<'_>, result: Result<()>) -> Result<Summary> {
    let options = rounds.options;
    if let Err(error) = result {
        if rounds.samples.all().is_empty() {
            return Err(error);
        }
        rounds.report.reasons.push(format!("round {} was {NOT_COMPLETED}: {error}", rounds.done + 1));
        let (summary, _) = write(&mut rounds)?;
        let dir = options.out_dir.display();
        rounds.screen.say(&format!("What was measured in {} rounds is in {dir}.", summary.seeds.len()));
        return Err(error);
    }
    let (summary, samples) = write(&mut rounds)?;
    let names: Vec<String> = options.arms.iter().map(|arm| options.arm_name(*arm)).collect();
    print!("{}", report::text(&summary, &samples, rounds.wires, &names));
    let dir = options.out_dir.display();
    println!("\n{dir}/summary.json and {dir}/report.html written after {:.0} s", summary.seconds);
    match wrong_transfers(&samples) {
        0 => Ok(summary),
        _ => Err(Error::Malformed { by: "a relay", sent: "bytes with the wrong SHA-256".into() }),
    }
}

/// How many transfers did not bring what they should.
fn wrong_transfers(samples: &RunSamples) -> usize {
    let hashes = samples.all().iter().filter(|series| series.name == "sha256_ok");
    hashes.flat_map(|series| series.all()).filter(|ok| *ok < 1.0).count()
}

/// What to say of rounds in which pairs went back to TLS: that must not pass for a result.
fn fallbacks(options: &DemoOptions, samples: &RunSamples) -> Option<String> {
    let arm = options.arms.iter().find(|arm| options.is_all_heddle(**arm))?;
    let labels = labels([("relays", &options.arm_name(*arm))]);
    let Some(series) = samples.series("middle_udp_pct", &labels) else {
        return Some("what carried the circuits of Heddle relays was not measured".to_owned());
    };
    let least = series.all().into_iter().reduce(f64::min)?;
    (least < network::UDP_PCT_MIN).then(|| {
        format!(
            "in a round {least:.1} % of what the middle relay received came by UDP, {} % is valid",
            network::UDP_PCT_MIN
        )
    })
}

/// Writes `summary.json` and `report.html`.
fn write(rounds: &mut Rounds<'_>) -> Result<(Summary, RunSamples)> {
    let options = rounds.options;
    let plan = described(options, rounds.wires, rounds.lacking.as_deref());
    let mut samples = std::mem::take(&mut rounds.samples);
    for round in 0..rounds.done {
        samples.compare(&plan, round);
    }
    let summary = summarise(rounds, &plan, &samples);
    let dir = &options.out_dir;
    fs::create_dir_all(dir).map_err(Error::io(format!("making {}", dir.display())))?;
    let written =
        Written { wires: rounds.wires.name(), wires_lacking: rounds.lacking.as_deref(), summary: &summary };
    let json = serde_json::to_string_pretty(&written);
    let json = json.map_err(|error| Error::io("writing summary.json")(error.into()))?;
    write_whole(&dir.join("summary.json"), format!("{json}\n").as_bytes())?;
    samples.write(dir)?;
    let page = html::page(&[Results { plan: &plan, summary: &summary, samples: &samples }]);
    write_whole(&dir.join("report.html"), page.as_bytes())?;
    Ok((summary, samples))
}

/// The demo in the form of a plan, as reports have them.
fn described(options: &DemoOptions, wires: Wires, lacking: Option<&str>) -> Plan {
    let text = match wires {
        Wires::Emulated => include_str!("wires.toml"),
        Wires::Loopback => include_str!("loopback.toml"),
    };
    let mut plan: Plan = toml::from_str(text).expect("a test reads both files");
    // An arm with stock relays among its Heddle ones has a name of its own.
    let heddle = plan.arms.iter_mut().map(Spanned::get_mut).filter(|arm| arm.name == "heddle");
    for arm in heddle {
        arm.name = options.arm_name(Arm::Heddle);
        arm.labels = labels([("relays", &arm.name)]);
    }
    if wires == Wires::Emulated {
        plan.tor = network::described(options).ok().map(|tor| Spanned::new(0..0, tor));
    }
    if let Some(what) = lacking {
        plan.about = format!("There are no emulated wires here: {what}. {}", plan.about);
    }
    if let Some(path) = &options.network {
        plan.about = format!("{} Hosts and wires are those of {}.", plan.about, path.display());
    }
    plan
}

fn summarise(rounds: &Rounds<'_>, plan: &Plan, samples: &RunSamples) -> Summary {
    let by_all_arms = "all arms".to_owned();
    let report = &rounds.report;
    let mut reasons = report.reasons.clone();
    let wrong = wrong_transfers(samples);
    if wrong > 0 {
        reasons.push(format!("transfers with the wrong SHA-256, which are in no time and no rate: {wrong}"));
    }
    if rounds.wires == Wires::Emulated {
        reasons.extend(fallbacks(rounds.options, samples));
    }
    let noise = rounds.quiet.until_now();
    reasons.extend(noise.complaint());
    let backend = match rounds.wires {
        Wires::Emulated => "emu",
        Wires::Loopback => "loopback",
    };
    Summary {
        plan: plan.name.clone(),
        backend: backend.to_owned(),
        commit: rounds.commit.clone(),
        command: rounds.options.command.clone(),
        conditions: Conditions::now(),
        tor: stock_version(),
        // All rounds are made on the same wires, whose chance the one seed decides.
        seeds: vec![rounds.options.seed; rounds.done],
        intervals_over: Repetition::RoundsInOneNetwork,
        runs_wanted: rounds.options.rounds_max,
        seconds: rounds.begun.elapsed().as_secs_f64(),
        noise,
        backend_noise: BTreeMap::from([(by_all_arms.clone(), report.noise.clone())]),
        settings: BTreeMap::from([(by_all_arms, report.settings.clone())]),
        valid: reasons.is_empty(),
        reasons,
        figures: samples.figures(),
        ..Summary::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Position;
    use super::*;
    use crate::figures;

    #[test]
    fn both_descriptions_are_plans() {
        let options = DemoOptions { network: Some("mine.toml".into()), ..DemoOptions::default() };
        let plan = described(&options, Wires::Emulated, None);
        assert!(plan.about.ends_with("those of mine.toml."), "{}", plan.about);
        let plan = described(&DemoOptions::default(), Wires::Loopback, Some("no TUN"));
        assert!(plan.about.starts_with("There are no emulated wires here: no TUN."), "{}", plan.about);
    }

    #[test]
    fn wrong_bytes_make_a_result_invalid() {
        let dir = tempfile::tempdir().unwrap();
        let options = DemoOptions { out_dir: dir.path().join("demo"), ..DemoOptions::default() };
        let written = |ok: [f64; 2]| {
            let mut rounds = Rounds::new(&options);
            let labels = figures::labels([("relays", "heddle")]);
            rounds.samples.add(0, "sha256_ok", &labels, "1", &ok);
            rounds.samples.add(0, "middle_udp_pct", &labels, "%", &[100.0]);
            rounds.done = 1;
            let finished = finish(rounds, Ok(())).is_ok();
            let json = fs::read(options.out_dir.join("summary.json")).unwrap();
            let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
            (finished, json["valid"].clone(), json["reasons"].to_string().contains("wrong SHA-256"))
        };
        assert_eq!(written([1.0, 1.0]), (true, true.into(), false));
        assert_eq!(written([1.0, 0.0]), (false, false.into(), true));
    }

    #[test]
    fn a_round_over_tls_makes_a_result_invalid() {
        let is_told = |udp_pct: [f64; 2], positions: &[Position]| {
            let options = DemoOptions { heddle_positions: positions.to_vec(), ..DemoOptions::default() };
            let mut samples = RunSamples::default();
            let labels = figures::labels([("relays", &options.arm_name(Arm::Heddle))]);
            for (round, pct) in udp_pct.into_iter().enumerate() {
                samples.add(round, "middle_udp_pct", &labels, "%", &[pct]);
            }
            fallbacks(&options, &samples)
        };
        assert_eq!(is_told([99.9, 100.0], &Position::ALL), None);
        let told = is_told([0.3, 99.9], &Position::ALL).unwrap();
        assert!(told.contains("0.3 %") && told.contains("99 % is valid"), "{told}");
        assert_eq!(is_told([0.0, 0.0], &[Position::Middle]), None, "a Heddle relay alone has no pair");
    }

    #[test]
    fn what_was_measured_is_written_whatever_happened_then() {
        let dir = tempfile::tempdir().unwrap();
        let options = DemoOptions { out_dir: dir.path().join("demo"), ..DemoOptions::default() };
        let interrupted = || Err(Error::Interrupted);
        assert!(finish(Rounds::new(&options), interrupted()).is_err());
        assert!(!options.out_dir.exists(), "nothing was measured");

        let mut rounds = Rounds::new(&options);
        rounds.fall_back("no TUN".to_owned());
        for (round, relays, rate) in
            [(0, "heddle", 8.0), (0, "stock", 4.0), (1, "heddle", 9.0), (1, "stock", 3.0)]
        {
            let labels = figures::labels([("relays", relays)]);
            rounds.samples.add(round, "download_mb_s", &labels, "MB/s", &[rate]);
        }
        rounds.done = 2;
        assert!(matches!(finish(rounds, interrupted()), Err(Error::Interrupted)));
        let json = fs::read(options.out_dir.join("summary.json")).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!((&json["wires"], &json["wires_lacking"]), (&"loopback".into(), &"no TUN".into()));
        assert_eq!((&json["valid"], &json["seeds"][1]), (&false.into(), &1.into()));
        let over =
            json["figures"].as_array().unwrap().iter().find(|figure| figure["name"] == "download_over_stock");
        // The geometric mean of 2 and 3.
        assert!((over.unwrap()["mean"].as_f64().unwrap() - 6_f64.sqrt()).abs() < 1e-9);
        assert_eq!(json["intervals_over"], "rounds_in_one_network");
        let page = fs::read_to_string(options.out_dir.join("report.html")).unwrap();
        assert!(page.contains("round 3 was not completed"));

        forget(&options.out_dir).unwrap();
        assert_eq!(fs::read_dir(&options.out_dir).unwrap().count(), 0);
        forget(&options.out_dir).unwrap();
    }
}
