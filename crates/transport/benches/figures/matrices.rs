//! How circuits share a wire, in all scenarios.

use crate::loads::{Load, dtls, jain, quic, run};
use crate::matrix::{Outcome, Shared, mean_and_min, outcome, scenarios, wire_10mbit};

/// Connections of QUIC.
pub fn of_quic() {
    print_matrix(quic, <[Load]>::to_vec);
}

/// The same with a connection of TCP for each circuit: what kernels make of it among themselves.
pub fn of_tcp() {
    print_matrix(quic, as_tcp);
}

/// Connections of `tcp-dtls`.
pub fn of_dtls() {
    print_matrix(dtls, <[Load]>::to_vec);
}

/// Circuits of `tcp-dtls` beside circuits of QUIC.
pub fn beside_quic() {
    for (ours, theirs) in [(1, 1), (6, 6), (1, 6), (6, 1), (100, 1), (1, 100)] {
        for seed in 1..=3 {
            let loads = [dtls(ours), quic(theirs)];
            let shares = run(&wire_10mbit(), &loads, 60, seed);
            let rates = shares.iter().map(|share| (share.bits_per_s / 1e4).round() / 100.0);
            println!(
                "{ours} and {theirs} of QUIC: Jain {:.3}, {:?} Mbit/s",
                jain(&loads, &shares),
                rates.collect::<Vec<_>>()
            );
        }
    }
}

fn as_tcp(loads: &[Load]) -> Vec<Load> {
    let each = |load: &Load| vec![Load { circuits: 1, control: None, ..*load }; load.circuits as usize];
    loads.iter().flat_map(each).collect()
}

#[allow(clippy::disallowed_methods, reason = "a figure is told by its name alone")]
pub fn chosen(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Runs the scenarios whose names contain `ONLY` with `SEEDS` seeds of `SECONDS` each.
fn print_matrix(shared: Shared, loads_of: impl Fn(&[Load]) -> Vec<Load>) {
    let number = |name| chosen(name).and_then(|it| it.parse().ok());
    let (seeds, seconds) = (number("SEEDS").unwrap_or(10), number("SECONDS").unwrap_or(60));
    let only = chosen("ONLY").unwrap_or_default();
    println!(
        "{:<28} {:>12}  {:>12}  {:>13}  {:>6}  {:>7}",
        "", "Jain", "TCP of fair", "first of fair", "used", "RTT, ms"
    );
    for scenario in scenarios(shared).iter().filter(|scenario| scenario.name.contains(&only)) {
        let loads = loads_of(&scenario.loads);
        let outcomes: Vec<Outcome> =
            (1..=seeds).map(|seed| outcome(&scenario.wire, &loads, seconds, seed)).collect();
        let (jain, jain_min) = mean_and_min(outcomes.iter().map(|outcome| outcome.jain));
        let (used, _) = mean_and_min(outcomes.iter().map(|outcome| outcome.used));
        let (rtt_ms, _) = mean_and_min(outcomes.iter().map(|outcome| outcome.rtt_ms));
        let (tcp, tcp_min) = mean_and_min(outcomes.iter().filter_map(|outcome| outcome.tcp));
        let tcp = if tcp_min.is_finite() { format!("{tcp:>5.2} {tcp_min:>6.2}") } else { " ".repeat(12) };
        let (first, first_min) = mean_and_min(outcomes.iter().map(|outcome| outcome.first));
        println!(
            "{:<28} {jain:>5.3} {jain_min:>6.3}  {tcp}  {first:>6.2} {first_min:>6.2}  {used:>6.3}  {rtt_ms:>7.1}",
            scenario.name
        );
    }
}
