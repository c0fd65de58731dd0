//! The traffic programs over a small network of stock Tor, side by side as an experiment runs them.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use heddle_lab::control::{Attacher, CircuitId};
use heddle_lab::figures::{Figure, labels};
use heddle_lab::testnet::{Network, NetworkOptions, RelayOptions};
use heddle_lab::traffic::fetch::{self, FetchOptions, run_fetches};
use heddle_lab::traffic::markov::{MarkovModel, MarkovOptions, run_markov};
use heddle_lab::traffic::timing::{TimingOptions, run_timing};
use heddle_lab::traffic::{Ended, Failures, Identity, Report, Route, Server, Stop};

const TIMEOUT: Duration = Duration::from_secs(30);

/// A few packets each way on each of a few streams.
const MODEL: &str = r#"{
    "flow_model": {
        "transitions": { "start": { "a": 1 }, "a": { "a": 1 } },
        "emissions": { "a": { "+": { "w": 1, "distribution": "exponential", "param_rate": 0.00001 } } }
    },
    "stream_model": {
        "transitions": { "start": { "a": 1 }, "a": { "a": 1, "end": 1 } },
        "emissions": {
            "a": { "+": { "w": 1, "distribution": "normal", "param_location": 50000, "param_scale": 10000 } },
            "end": { "F": { "w": 1, "distribution": "uniform", "param_low": 0, "param_high": 0 } }
        }
    },
    "packet_model": {
        "transitions": { "start": { "a": 1 }, "a": { "a": 9, "end": 1 } },
        "emissions": {
            "a": {
                "+": { "w": 1, "distribution": "lognormal", "param_location": 8, "param_scale": 2 },
                "-": { "w": 4, "distribution": "lognormal", "param_location": 8, "param_scale": 2 }
            },
            "end": { "F": { "w": 1, "distribution": "uniform", "param_low": 0, "param_high": 0 } }
        }
    }
}"#;

fn identity(label: &str) -> Identity {
    Identity { label: label.into(), seed: 1, labels: labels([("transport", "stock")]) }
}

fn figure<'a>(report: &'a Report, name: &str) -> &'a Figure {
    let found = report.figures.iter().find(|figure| figure.name == name);
    found.unwrap_or_else(|| panic!("{name} is missing: {report:?}"))
}

#[test]
fn every_program_speaks_through_an_onion_proxy() {
    let relays =
        vec![RelayOptions::stock("guard"), RelayOptions::stock("middle"), RelayOptions::stock("exit").exit()];
    let options = NetworkOptions { relays, ..NetworkOptions::default() };
    let network = Network::start(&options, &mut |_| ()).unwrap();
    let server = Server::start().unwrap();
    let _attacher = Attacher::start(&network.control_socket(), TIMEOUT).unwrap();
    let circuit = || -> CircuitId {
        let path = network.path(&["guard", "middle", "exit"]).unwrap();
        network.control().unwrap().build_circuit(&path, TIMEOUT).unwrap()
    };
    // Each client has a circuit, as each client of the papers has an onion proxy. Tor may give up a
    // circuit that nobody has used, so each is used at once.
    let route = || {
        let begun = Instant::now();
        loop {
            let isolation = Some(circuit().isolation());
            let direct = Route { isolation, timeout: TIMEOUT, ..Route::direct(server.addr().into()) };
            let route = direct.through(network.socks());
            match route.open(&Stop::default()) {
                Ok(_) => return route,
                Err(error) => assert!(begun.elapsed() < TIMEOUT, "{error}"),
            }
        }
    };
    let stop = Stop::default();

    let timing = || {
        let options = TimingOptions {
            bulk_limit_b_s: 1_000_000,
            probe_pause: Some(Duration::from_millis(50)),
            duration: Duration::from_secs(3),
            warmup_max: Duration::from_secs(2),
            ..TimingOptions::new(route(), identity("timing"))
        };
        run_timing(&options, &stop, &mut |_| ())
    };
    let fetches = |program: &str, profile: fetch::Profile, count| {
        let options = FetchOptions {
            program: program.into(),
            route: route(),
            identity: identity(program),
            profile,
            count: Some(count),
            duration: None,
        };
        run_fetches(&options, &stop, &mut |_| ())
    };
    let markov = || {
        let model = MarkovModel::parse(MODEL).unwrap();
        let options = MarkovOptions::new(route(), identity("markov"), model);
        run_markov(&MarkovOptions { flows: Some(3), duration: None, ..options }, &stop, &mut |_| ())
    };
    let web_profile = fetch::Profile { pause_ms: [0, 50], ..fetch::WEB_PROFILES[0].clone() };
    let bulk_profile = fetch::profile(&fetch::BULK_PROFILES, "pctcp-large").unwrap();
    let [timing, web, bulk, markov] = thread::scope(|scope| {
        let runs = [
            scope.spawn(timing),
            scope.spawn(|| fetches("web", web_profile, 5)),
            scope.spawn(|| fetches("bulk", bulk_profile, 1)),
            scope.spawn(markov),
        ];
        runs.map(|run| run.join().unwrap().unwrap())
    });

    for report in [&timing, &web, &bulk, &markov] {
        assert_eq!((report.ended, &report.failures), (Ended::Complete, &Failures::new()), "{report:?}");
        assert!(report.figures.iter().all(|figure| figure.labels == labels([("transport", "stock")])));
    }
    let throughput = figure(&timing, "throughput_kb_s");
    assert!(throughput.n == 3 && (500.0..1500.0).contains(&throughput.mean), "{throughput:?}");
    let (latency, echo) = (figure(&timing, "latency_ms"), figure(&timing, "echo_ms"));
    assert!(latency.n >= 5 && latency.p50 > 0.0 && latency.p50 < echo.p50, "{latency:?} {echo:?}");
    assert_eq!((figure(&web, "first_byte_ms").n, figure(&bulk, "download_s").n), (5, 1));
    assert!(figure(&markov, "stream_s").n >= 3);

    failures_through_tor(route());
}

/// What a client says of a closed port, of a proxy that is not there, and of a proxy that is silent.
fn failures_through_tor(route: Route) {
    // Nobody's choice: a port that was free a moment ago may be somebody else's by now.
    let closed = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let timing = |route: Route| TimingOptions {
        bulk: false,
        probe_pause: Some(Duration::from_millis(100)),
        duration: Duration::from_secs(1),
        ..TimingOptions::new(route, identity("failures"))
    };
    let failures = |route: Route| {
        let report = run_timing(&timing(route), &Stop::default(), &mut |_| ()).unwrap();
        assert!(report.figures.is_empty());
        report.failures.into_keys().collect::<Vec<_>>()
    };
    let refused = failures(Route { server: closed.into(), ..route.clone() });
    // Tor asks for another circuit after the exit's refusal, and ours is the only one: reply 1 or 5.
    assert!(refused.len() == 1 && refused[0].starts_with("open: reply "), "{refused:?}");
    assert_eq!(failures(Route { proxy: Some(closed), ..route.clone() }), ["open: connection refused"]);

    // The end of the measurement does not wait for the proxy's time-out.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Some(silent.local_addr().unwrap());
    let begun = Instant::now();
    let unheard = failures(Route { proxy, timeout: Duration::from_secs(600), ..route });
    assert!(unheard.is_empty() && begun.elapsed() < TIMEOUT);
}
