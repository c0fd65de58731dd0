//! Experiment 1 of the thesis in virtual time, made small: hosts that are drawn from a topology are as far from each
//! other as it says, and lose what it says.

mod support;

use heddle_lab::figures::Figure;
use heddle_lab::results::Summary;
use heddle_lab::run::BackendKind;

use support::{Wanted, figure, measured};

const PLAN: &str = include_str!("../plans/thesis-exp01.toml");
const SMALL: &[(&str, &str)] = &[
    ("relays", "6"),
    ("clients", "3"),
    ("flood_s", "20"),
    ("each_s", "20"),
    ("each_ms", "20"),
    ("circuit_s", "10"),
];

/// The plan's own numbers between Canada and these, once more: delay and standard deviation, one
/// way and in milliseconds, and what both places lose, in percent.
const FROM_CANADA: [(&str, f64, f64, [f64; 2]); 4] = [
    ("uk", 73.5, 2.0, [1.6, 1.8]),
    ("de1", 83.0, 4.5, [1.6, 4.1]),
    ("nl", 68.5, 2.5, [1.6, 1.9]),
    ("ca", 28.0, 1.5, [1.6, 1.6]),
];

fn of<'a>(summary: &'a Summary, name: &str, relay: &str) -> &'a Figure {
    figure(summary, name, &[("pings", "flood"), ("relay", relay)])
}

#[test]
fn hosts_are_as_far_from_each_other_as_their_topology_says_and_a_seed_draws_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let arms = &["pings", "latency-proxy", "tls"];
    let run = |seed: u64, out: &str| {
        let plan = PLAN.replacen("runs = 2", "runs = 1", 1);
        let wanted = Wanted { set: SMALL, arms, seed, backend: BackendKind::Sim };
        measured(dir.path(), &plan, &wanted, out).unwrap()
    };
    let (one, again, other) = (run(5, "one"), run(5, "again"), run(6, "other"));
    assert!(one.valid, "{:?}", one.reasons);
    assert_eq!((one.traces.len(), &one.traces), (3, &again.traces));
    let bytes = |out: &str| std::fs::read(dir.path().join(out).join("samples.json")).unwrap();
    assert_eq!(bytes("one"), bytes("again"));
    assert_ne!(bytes("one"), bytes("other"));

    for (relay, delay_ms, deviation_ms, lost_pct) in FROM_CANADA {
        let pings = of(&one, "ping_ms", relay);
        let kept = lost_pct.iter().map(|lost| 1.0 - lost / 100.0).product::<f64>().powi(2);
        // 2000 pings: four standard deviations of their means and of their number.
        let off_ms = 4.0 * deviation_ms * 2_f64.sqrt() / 2000_f64.sqrt();
        assert!((pings.mean - 2.0 * delay_ms).abs() < off_ms, "{relay}: {pings:?}");
        let off = 4.0 * (2000.0 * kept * (1.0 - kept)).sqrt();
        assert!((pings.n as f64 - 2000.0 * kept).abs() < off, "{relay}: {} of {kept}", pings.n);
        let lost = of(&one, "ping_lost_pct", relay).mean;
        assert!((lost - (2000 - pings.n) as f64 / 20.0).abs() < 1e-9, "{relay}: {lost} {}", pings.n);
        let deviation = of(&one, "ping_deviation_over_wires", relay).mean;
        assert!((0.9..1.1).contains(&deviation), "{relay}: {deviation}");
        let [least, most] = ["ping_min_ms", "ping_max_ms"].map(|name| of(&one, name, relay).mean);
        assert!(least < pings.p50 && pings.p90 < most, "{relay}: {least} {most}");
    }
    // Each two of six, once: what is drawn is what the plan's own bounds want of it, too, and another seed's is not it.
    let each_two = |summary: &Summary| figure(summary, "ping_mean_ms", &[("pings", "each-two")]).clone();
    assert_eq!((each_two(&one).n, each_two(&other).n), (15, 15));
    assert_ne!(each_two(&one), each_two(&other));
    let held = one.checks.iter().filter(|check| check.figure.contains("_wires"));
    assert_eq!(held.map(|check| check.holds).collect::<Vec<_>>(), [Some(true); 4]);
    let proxy = figure(&one, "ping_mean_ms", &[("over", "latency_proxy")]).mean;
    assert!((109.0..111.0).contains(&proxy), "{proxy}");
    let circuits = [("transport", "tls")];
    let [echo, overhead] = ["echo_ms", "overhead_ms"].map(|name| figure(&one, name, &circuits));
    assert!(echo.n > 10 && overhead.p50 < 0.5 * echo.p50, "{echo:?} {overhead:?}");
}
