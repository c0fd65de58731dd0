use super::*;
use crate::figures::Figure;
use crate::traffic::tests::nobody;
use crate::traffic::{Ended, Server};
use std::thread;
use std::time::Instant;

fn options(server: &Server) -> TimingOptions {
    let identity = Identity { label: "t".into(), seed: 1, ..Identity::default() };
    TimingOptions {
        duration: Duration::from_secs(2),
        warmup_max: Duration::from_secs(1),
        probe_pause: Some(Duration::from_millis(20)),
        ..TimingOptions::new(Route::direct(server.addr().into()), identity)
    }
}

fn figure<'a>(report: &'a Report, name: &str) -> &'a Figure {
    let found = report.figures.iter().find(|figure| figure.name == name);
    found.unwrap_or_else(|| panic!("{name} is not among {:?}", report.figures))
}

#[test]
fn throughput_and_latency_beside_each_other() {
    let server = Server::start().unwrap();
    let mut events = Vec::new();
    let options = TimingOptions { bulk_limit_b_s: 400_000, ..options(&server) };
    let report = run_timing(&options, &Stop::default(), &mut |event| events.push(event.clone())).unwrap();
    assert_eq!((report.ended, report.failures.len()), (Ended::Complete, 0));
    // The server holds its rate, up to one burst in a second and a tick that is late.
    let throughput = figure(&report, "throughput_kb_s");
    assert_eq!(throughput.n, 2);
    assert!((150.0..650.0).contains(&throughput.mean), "{throughput:?}");
    assert!(figure(&report, "delay_ms").p50 < 100.0);
    let latency = figure(&report, "latency_ms");
    assert!(latency.n > 10 && latency.p50 <= figure(&report, "echo_ms").p50, "{latency:?}");
    let seconds = events.iter().filter(|event| matches!(event, Event::Second { measured: true, .. }));
    assert_eq!(seconds.count(), 2);
    let begun = events.iter().position(|event| matches!(event, Event::Measuring { .. })).unwrap();
    let early = events[..begun].iter().all(|event| match event {
        Event::Second { measured, .. } | Event::Probe { measured, .. } => !measured,
        _ => true,
    });
    assert!(early);
}

#[test]
fn probes_alone_begin_at_once() {
    let server = Server::start().unwrap();
    let options = TimingOptions { bulk: false, duration: Duration::from_secs(1), ..options(&server) };
    let report = run_timing(&options, &Stop::default(), &mut |_| ()).unwrap();
    let names: Vec<&str> = report.figures.iter().map(|figure| figure.name.as_str()).collect();
    assert_eq!(names, ["echo_ms", "latency_ms", "open_ms"]);
    assert!(figure(&report, "echo_ms").n > 5);
}

#[test]
fn an_unlimited_stream_is_fast_and_a_stop_ends_it() {
    let server = Server::start().unwrap();
    let options = TimingOptions { probe_pause: None, duration: Duration::from_secs(600), ..options(&server) };
    let stop = Stop::default();
    let report = run_timing(&options, &stop, &mut |event| {
        if matches!(event, Event::Second { measured: true, .. }) {
            stop.ask();
        }
    });
    let report = report.unwrap();
    assert_eq!((report.ended, figure(&report, "throughput_kb_s").n), (Ended::Interrupted, 1));
    assert!(figure(&report, "throughput_kb_s").mean > 1_000.0, "{report:?}");
}

#[test]
fn what_is_left_of_a_second_at_the_stop_is_told_with_its_length() {
    let server = Server::start().unwrap();
    let options = TimingOptions { probe_pause: None, duration: Duration::from_secs(600), ..options(&server) };
    let (stop, mut seconds, mut kb) = (&Stop::default(), Vec::new(), 0.0);
    let report = thread::scope(|scope| {
        run_timing(&options, stop, &mut |event| {
            if let Event::Second { length_s, throughput_kb_s, measured, .. } = event {
                kb += throughput_kb_s * length_s;
                seconds.push((*length_s, *measured));
                if seconds.len() == 1 {
                    // On a slow machine more seconds may end before the stop.
                    let then = Instant::now() + Duration::from_millis(500);
                    scope.spawn(move || stop.sleep_until(then).then(|| stop.ask()));
                }
            }
        })
    });
    let (lengths_s, measured): (Vec<f64>, Vec<bool>) = seconds.into_iter().unzip();
    // The first one is the warm-up, and the last one is not whole.
    let whole = 1..measured.len() - 1;
    assert!(measured.iter().enumerate().all(|(n, measured)| *measured == whole.contains(&n)), "{measured:?}");
    assert!(lengths_s[0] >= 1.0 && lengths_s[1..].iter().sum::<f64>() >= 0.5, "{lengths_s:?}");
    assert!(lengths_s.iter().sum::<f64>() <= report.unwrap().seconds, "{lengths_s:?}");
    assert!(kb > 1000.0, "{kb} kB");
}

#[test]
fn a_measurement_that_begins_late_in_a_second_is_not_longer_for_it() {
    let server = Server::start().unwrap();
    let options = TimingOptions { probe_pause: None, ..options(&server) };
    let mut seconds = Vec::new();
    let report = run_timing(&options, &Stop::default(), &mut |event| {
        if let Event::Second { measured, .. } = event {
            if seconds.is_empty() {
                // The measurement begins after this one.
                thread::sleep(Duration::from_millis(700));
            }
            seconds.push(*measured);
        }
    });
    assert_eq!((seconds, figure(&report.unwrap(), "throughput_kb_s").n), (vec![false, true, true], 2));
}

#[test]
fn a_server_that_is_not_there_is_counted_and_its_seconds_are_zero() {
    let server = Server::start().unwrap();
    let options = TimingOptions { route: Route::direct(nobody()), ..options(&server) };
    let report = run_timing(&options, &Stop::default(), &mut |_| ()).unwrap();
    assert!(report.failures["open: connection refused"] > 3, "{report:?}");
    assert_eq!(figure(&report, "throughput_kb_s").mean, 0.0);
}

#[test]
fn what_cannot_be_is_refused() {
    let server = Server::start().unwrap();
    for wrong in [
        TimingOptions { bulk: false, probe_pause: None, ..options(&server) },
        TimingOptions { duration: Duration::from_millis(999), ..options(&server) },
    ] {
        assert!(run_timing(&wrong, &Stop::default(), &mut |_| ()).is_err());
    }
}

#[test]
fn who_stops_reading_gets_nothing_more_and_nothing_breaks() {
    let server = Server::start().unwrap();
    let options = TimingOptions { probe_pause: None, ..options(&server) };
    let stalls = BulkStream { limit_b_s: 0, reads_for: Some(Duration::from_millis(100)) };
    let work = TimingWork { bulk: Some(stalls), ..options.work() };
    let mut seconds = Vec::new();
    let report = run_work(&work, &options, &Stop::default(), &mut |event| {
        if let Event::Second { throughput_kb_s, .. } = event {
            seconds.push(*throughput_kb_s);
        }
    })
    .unwrap();
    assert!(seconds[0] > 0.0 && seconds[1..].iter().all(|kb_s| *kb_s == 0.0), "{seconds:?}");
    assert_eq!((seconds.len(), report.failures.len()), (3, 0));
}
