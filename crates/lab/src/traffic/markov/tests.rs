use super::*;
use crate::traffic::tests::nobody;
use crate::traffic::{Ended, Server};

const MODEL: &str = r#"{
    "stream_model": {
        "transitions": { "start": { "a": 1 }, "a": { "a": 1, "end": 1 } },
        "emissions": {
            "a": { "+": { "w": 1, "distribution": "exponential", "param_rate": 0.001 } },
            "end": { "F": { "w": 1, "distribution": "uniform", "param_low": 0, "param_high": 0 } }
        }
    },
    "packet_model": {
        "transitions": { "start": { "a": 1 }, "a": { "a": 19, "end": 1 } },
        "emissions": {
            "a": {
                "+": { "w": 1, "distribution": "lognormal", "param_location": 6, "param_scale": 2 },
                "-": { "w": 3, "distribution": "lognormal", "param_location": 6, "param_scale": 2 }
            },
            "end": { "F": { "w": 1, "distribution": "uniform", "param_low": 0, "param_high": 0 } }
        }
    }
}"#;

fn options(server: &Server) -> MarkovOptions {
    let identity = Identity { label: "m".into(), seed: 5, ..Identity::default() };
    let model = MarkovModel::parse(MODEL).unwrap();
    MarkovOptions {
        flow_interval: Some(Duration::from_millis(10)),
        flows: Some(8),
        duration: Some(Duration::from_secs(60)),
        ..MarkovOptions::new(Route::direct(server.addr().into()), identity, model)
    }
}

/// Flow, stream, bytes up and bytes down of each stream, in order, and the report.
fn run(options: &MarkovOptions) -> (Vec<(u64, u64, u64, u64)>, Report) {
    let mut streams = Vec::new();
    let report = run_markov(options, &Stop::default(), &mut |event| {
        if let Event::Stream { flow, stream, up_bytes, down_bytes, .. } = event {
            streams.push((*flow, *stream, *up_bytes, *down_bytes));
        }
    });
    streams.sort_unstable();
    (streams, report.unwrap())
}

#[test]
fn a_run_repeats_by_seed_and_label() {
    let server = Server::start().unwrap();
    let first = options(&server);
    let (streams, report) = run(&first);
    assert_eq!((report.ended, &report.failures), (Ended::Complete, &BTreeMap::new()));
    assert_eq!(streams.iter().map(|(flow, ..)| flow).max(), Some(&7));
    assert!(streams.iter().any(|(_, _, up, _)| *up > 0) && streams.iter().any(|(_, _, _, down)| *down > 0));
    let names: Vec<&str> = report.figures.iter().map(|figure| figure.name.as_str()).collect();
    assert_eq!(names, ["down_kb", "first_byte_ms", "open_ms", "stream_s", "up_kb"]);
    assert_eq!(run(&first).0, streams);
    let mut other = first;
    other.identity.label = "n".into();
    assert_ne!(run(&other).0, streams);
}

#[test]
fn a_duration_leaves_out_what_is_not_at_its_end() {
    let server = Server::start().unwrap();
    let slow = MODEL.replace(
        "\"lognormal\", \"param_location\": 6, \"param_scale\": 2",
        "\"uniform\", \"param_low\": 6e8, \"param_high\": 6e8",
    );
    let mut options = options(&server);
    options.model = MarkovModel::parse(&slow).unwrap();
    options.duration = Some(Duration::from_secs(3));
    options.streams_max = 2;
    let begun = Instant::now();
    let (_, report) = run(&options);
    assert_eq!(report.failures["left out: streams not at their end"], 2, "{report:?}");
    assert!(report.failures["left out: too many streams"] >= 1, "{report:?}");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_server_that_is_not_there_is_counted() {
    let server = Server::start().unwrap();
    let options = MarkovOptions { route: Route::direct(nobody()), ..options(&server) };
    let (streams, report) = run(&options);
    assert!(streams.is_empty() && report.failures["open: connection refused"] >= 8, "{report:?}");
}

#[test]
fn a_stream_whose_thread_panics_is_at_its_end_too() {
    let (notes, heard) = mpsc::channel();
    let panicked = thread::spawn(move || {
        let _ending = Ending { notes, note: None };
        panic!("a panic on purpose");
    });
    assert!(panicked.join().is_err());
    assert!(heard.recv().unwrap().is_none());
}

#[test]
fn what_cannot_be_is_refused() {
    let server = Server::start().unwrap();
    let good = options(&server);
    for (wrong, said) in [
        (MarkovOptions { flow_interval: None, ..good.clone() }, "flow_model"),
        (MarkovOptions { flows: None, duration: None, ..good.clone() }, "duration"),
        (MarkovOptions { packets_max: 20_001, ..good.clone() }, "20000"),
        (MarkovOptions { streams_max: 0, ..good.clone() }, "streams"),
    ] {
        let error = run_markov(&wrong, &Stop::default(), &mut |_| ()).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}
