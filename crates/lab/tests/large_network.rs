//! The plan of DefenestraTor's large network in virtual time, made small: clients that choose paths over relays of
//! drawn rates, and wires of drawn delays.

mod support;

use heddle_lab::error::Error;
use heddle_lab::plan::shipped;
use heddle_lab::run::BackendKind;

use support::{Wanted, figure, measured};

/// The shipped plan with downloads of a few cells and short pauses.
fn small() -> String {
    let shipped = shipped().iter().find(|shipped| shipped.name == "defenestrator-network").unwrap();
    let changes = [
        (
            "[\"100 KiB\", \"500 KiB\"], pause = [\"0 s\", \"30 s\"]",
            "[\"5 KiB\", \"25 KiB\"], pause = [\"0 s\", \"1 s\"]",
        ),
        ("[\"1 MiB\", \"5 MiB\"]", "[\"50 KiB\", \"250 KiB\"]"),
    ];
    changes.into_iter().fold(shipped.text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    })
}

const SMALL: &[(&str, &str)] = &[("relays", "6"), ("clients", "12"), ("seconds", "4"), ("warm_up_s", "1")];

#[test]
fn one_seed_gives_one_network_and_one_run() {
    let dir = tempfile::tempdir().unwrap();
    let run = |seed: u64, out: &str| {
        let wanted = Wanted { set: SMALL, arms: &["quic", "tls-n23"], seed, backend: BackendKind::Sim };
        measured(dir.path(), &small(), &wanted, out).unwrap()
    };
    let (one, again, other) = (run(1, "one"), run(1, "again"), run(2, "other"));
    assert!(one.valid, "{:?}", one.reasons);
    assert_eq!((one.traces.len(), &one.traces), (2, &again.traces));
    let bytes = |out: &str| std::fs::read(dir.path().join(out).join("samples.json")).unwrap();
    assert_eq!(bytes("one"), bytes("again"));
    assert!(one.traces != other.traces && bytes("one") != bytes("other"));
    for transport in ["quic", "tls-n23"] {
        let of =
            |name: &str, client: &str| figure(&one, name, &[("transport", transport), ("client", client)]);
        // Two round trips over four wires, each of which has 14 ms at least.
        let first = of("first_byte_ms", "web");
        assert!(first.n > 20 && first.p50 > 2.0 * 4.0 * 28.0, "{transport}: {first:?}");
        assert!(of("download_s", "bulk").n > 0, "{transport}");
        assert_eq!(of("client_first_byte_ms", "web").n, 11, "{transport}");
        assert_eq!(of("failures", "web").mean, 0.0, "{transport}");
        let left = figure(&one, "circuits_left_pct", &[("transport", transport)]);
        assert_eq!(left.mean, 100.0, "{transport}");
    }
    let share = figure(&one, "transport_cells_share", &[("transport", "quic")]);
    assert!(share.mean > 0.99, "{share:?}");
}

/// Two relays and an exit, so that all clients have the same three relays in two orders, which have 75 KiB/s each.
#[test]
fn relays_keep_the_rates_that_were_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let set =
        [("relays", "3"), ("clients", "20"), ("seconds", "10"), ("warm_up_s", "3"), ("rates_kib_s", "75")];
    let wanted = Wanted { set: &set, arms: &["tls"], seed: 1, backend: BackendKind::Sim };
    let summary = measured(dir.path(), &small(), &wanted, "out").unwrap();
    let got: f64 = ["web", "bulk"]
        .map(|client| figure(&summary, "received_kb_s", &[("client", client)]).mean)
        .iter()
        .sum();
    let most = 75.0 * 1.024 * 498.0 / 514.0;
    assert!((0.8 * most..most).contains(&got), "{got} of {most}");
}

#[test]
fn what_is_too_large_for_processes_is_refused_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let wanted = Wanted { set: &[], arms: &["tls"], seed: 1, backend: BackendKind::Emu };
    let error = measured(dir.path(), &small(), &wanted, "out").unwrap_err();
    let said = error.to_string();
    assert!(matches!(error, Error::Lacking(_)) && said.contains("222 hosts"), "{said}");
    assert!(said.contains("--backend sim") && said.lines().count() == 1, "{said}");
    assert!(!dir.path().join("out").exists());
}
