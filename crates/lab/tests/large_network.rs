//! The plans of the papers' large networks in virtual time, made small: clients that choose paths over relays of drawn
//! rates, and wires of drawn delays.

mod support;

use heddle_lab::error::Error;
use heddle_lab::plan::shipped;
use heddle_lab::run::BackendKind;

use support::{Wanted, figure, measured};

/// A shipped plan with changes.
fn changed(name: &str, changes: &[(&str, &str)]) -> String {
    let shipped = shipped().iter().find(|shipped| shipped.name == name).unwrap();
    changes.iter().fold(shipped.text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    })
}

/// DefenestraTor's with downloads of a few cells and short pauses.
fn small() -> String {
    let web = "[\"100 KiB\", \"500 KiB\"], pause = [\"0 s\", \"30 s\"]";
    let bulk = ("[\"1 MiB\", \"5 MiB\"]", "[\"50 KiB\", \"250 KiB\"]");
    changed("defenestrator-network", &[(web, "[\"5 KiB\", \"25 KiB\"], pause = [\"0 s\", \"1 s\"]"), bulk])
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

/// PCTCP's and QUUX', with pages of a few cells.
#[test]
fn the_other_papers_networks_carry_all_their_arms_pages() {
    let dir = tempfile::tempdir().unwrap();
    let pages = |pause: &'static str| {
        [
            ("[\"320 KiB\", \"320 KiB\"]", "[\"20 KiB\", \"20 KiB\"]"),
            (pause, "[\"1 s\", \"1 s\"]"),
            ("[\"5 MiB\", \"5 MiB\"]", "[\"200 KiB\", \"200 KiB\"]"),
        ]
    };
    let clients = [("web_clients", "8"), ("bulk_clients", "2"), ("seconds", "5"), ("warm_up_s", "2")];
    let pctcp = ["tls", "tcp-esp", "torchestra-dtls", "imux-dtls", "sctp-dtls"];
    let networks: [(&str, &str, &[&str]); 2] = [
        ("pctcp-network", "[\"1 s\", \"30 s\"]", &pctcp),
        ("quux-network", "[\"1 s\", \"60 s\"]", &["quic"]),
    ];
    for (name, pause, arms) in networks {
        let mut set = clients.to_vec();
        set.extend((name == "pctcp-network").then_some(("relays", "5")));
        let wanted = Wanted { set: &set, arms, seed: 3, backend: BackendKind::Sim };
        let summary = measured(dir.path(), &changed(name, &pages(pause)), &wanted, name).unwrap();
        assert!(summary.valid, "{name}: {:?}", summary.reasons);
        for transport in arms {
            let of = |figure_name: &str, client: &str| {
                figure(&summary, figure_name, &[("transport", transport), ("client", client)])
            };
            let (pages, failures) = (of("download_s", "web"), of("failures", "web"));
            assert!(pages.n >= 8 && failures.mean == 0.0, "{name}, {transport}: {pages:?} {failures:?}");
            if *transport != "tls" {
                let share = figure(&summary, "transport_cells_share", &[("transport", transport)]);
                assert!(share.mean > 0.99, "{name}, {transport}: {share:?}");
            }
        }
    }
}

/// All arms have the same network and clients, of which some go over upgraded relays alone from some part on.
#[test]
fn a_network_upgrades_in_part() {
    let dir = tempfile::tempdir().unwrap();
    let changes = [
        (
            "[\"320 KiB\", \"320 KiB\"], pause = [\"1 s\", \"30 s\"]",
            "[\"20 KiB\", \"20 KiB\"], pause = [\"1 s\", \"1 s\"]",
        ),
        ("[\"5 MiB\", \"5 MiB\"]", "[\"200 KiB\", \"200 KiB\"]"),
    ];
    let set = [
        ("relays", "10"),
        ("web_clients", "30"),
        ("bulk_clients", "2"),
        ("seconds", "6"),
        ("warm_up_s", "2"),
        ("rates_kib_s", "1000, 2000"),
    ];
    let wanted = Wanted { set: &set, arms: &["none", "most", "all"], seed: 3, backend: BackendKind::Sim };
    let summary = measured(dir.path(), &changed("deployment", &changes), &wanted, "out").unwrap();
    assert!(summary.valid, "{:?}", summary.reasons);
    let clients = |upgraded: &str, from: &str| {
        let wanted = [("upgraded", upgraded), ("upgraded_from", from), ("client", "web")];
        let has = |labels: &heddle_lab::figures::Labels| {
            wanted.iter().all(|(name, value)| labels.get(*name).is_some_and(|has| has == value))
        };
        let of =
            summary.figures.iter().find(|figure| figure.name == "client_download_s" && has(&figure.labels));
        of.map_or(0, |figure| figure.n)
    };
    let steps = ["10 %", "30 %", "60 %", "100 %"];
    let [none, most, all] = ["none", "60 %", "all"].map(|upgraded| steps.map(|from| clients(upgraded, from)));
    assert_eq!((none, all), (most, most));
    assert!(
        most.iter().sum::<usize>() == 30 && most[3] > 0 && most[..3].iter().sum::<usize>() > 0,
        "{most:?}"
    );
    let share = figure(&summary, "transport_cells_share", &[("upgraded", "all")]);
    assert!(share.mean > 0.99, "{share:?}");
}
