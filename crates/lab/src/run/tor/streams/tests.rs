//! Figures from logs that are written by hand.

use super::*;
use crate::figures::labels;
use crate::plan::{Client, Traffic};

const BULK: Traffic = Traffic::Bulk { limit_kb_s: 0, reads_for: Duration::ZERO };

fn client(name: &str, program: Traffic) -> Client {
    let labels = labels([("to", "here")]);
    let (name, path, place) = (name.into(), Vec::new(), None);
    let (up, down, count, share) = Default::default();
    Client { name, count, share, place, path, up, down, circuits: 1, program, labels }
}

fn members<'a>(clients: &[&'a Client], logs: &'a [Log]) -> Vec<Group<'a>> {
    let member = |(client, log): (&&'a Client, &'a Log)| {
        let Client { name, labels, program, .. } = client;
        Member { name, labels, program, log, round_trip_ms: 0.25 }
    };
    groups(clients.iter().zip(logs).map(member))
}

fn figures(clients: &[&Client], logs: &[Log], window: Window) -> (Vec<Sampled>, Vec<String>) {
    let groups = members(clients, logs);
    assert_eq!(groups.len(), 1);
    groups[0].figures(window)
}

fn second(throughput_kb_s: f64) -> Event {
    part(throughput_kb_s, 1.0)
}

fn part(throughput_kb_s: f64, length_s: f64) -> Event {
    let (t_s, measured, delay_ms, latency_ms) = (0.0, false, None, None);
    Event::Second { t_s, length_s, measured, throughput_kb_s, delay_ms, latency_ms }
}

fn values<'a>(samples: &'a [Sampled], name: &str) -> &'a [f64] {
    let found = samples.iter().find(|sampled| sampled.name == name);
    found.map_or(&[], |sampled| &sampled.values)
}

#[test]
fn streams_are_summed_second_by_second_inside_the_window() {
    let start = Duration::from_secs(100);
    let at = |s: f64| start + Duration::from_secs_f64(s);
    let window = Window { opens: at(10.0), closes: at(12.0) };
    let log = |offset: f64, rate: f64| -> Log {
        (1..20).map(|n| (at(f64::from(n) + offset), second(rate * f64::from(n)))).collect()
    };
    let (one, two) = (client("one", BULK), client("two", Traffic::Upload {}));
    let logs = [log(0.1, 1.0), log(-0.3, 100.0)];
    let (samples, faults) = figures(&[&one, &two], &logs, window);
    // Of the first stream the seconds that end at 11.1 and 12.1 count, of the other those at 10.7 and 11.7.
    assert_eq!(values(&samples, "throughput_kb_s"), [1111.0, 1212.0]);
    assert_eq!(values(&samples, "circuit_throughput_kb_s"), [11.5, 1150.0]);
    assert_eq!(values(&samples, "slowest_throughput_kb_s"), [11.5]);
    assert_eq!(values(&samples, "failures"), [0.0, 0.0]);
    assert!(values(&samples, "clients_without_downloads").is_empty());
    assert_eq!((faults.len(), &samples[0].labels), (0, &one.labels));
}

#[test]
fn the_last_part_of_a_second_counts_for_what_it_is() {
    let start = Duration::from_secs(100);
    let at = |s: f64| start + Duration::from_secs_f64(s);
    let window = Window { opens: at(10.0), closes: at(20.0) };
    let one = client("one", BULK);
    for rest_s in [0.25, 0.5, 0.75] {
        let log = (1..=20).map(|n| (at(f64::from(n) - rest_s), second(300.0)));
        let log: Log = log.chain([(at(20.0), part(300.0, rest_s))]).collect();
        let (samples, _) = figures(&[&one], &[log], window);
        assert!((values(&samples, "received_kb_s")[0] - 300.0).abs() < 1e-6, "{rest_s}: {samples:?}");
        let seconds = values(&samples, "throughput_kb_s");
        assert!(seconds.len() >= 10 && seconds.iter().all(|kb_s| *kb_s == 300.0), "{seconds:?}");
    }
}

#[test]
fn what_began_outside_the_window_does_not_count() {
    let start = Duration::from_secs(100);
    let at = |s: f64| start + Duration::from_secs_f64(s);
    let window = Window { opens: at(10.0), closes: at(12.0) };
    let fetch = |first_byte_ms: f64| Event::Fetch {
        t_s: 0.0,
        bytes: 2_000_000,
        open_ms: 1.0,
        first_byte_ms,
        download_s: 2.0,
    };
    let probe = Event::Probe { t_s: 0.0, measured: true, open_ms: 500.0, latency_ms: 1.0, echo_ms: 500.0 };
    let failure = Event::Failure { t_s: 0.0, kind: "open: closed".into(), error: String::new() };
    let web = client("web", Traffic::Fetch { size: [1, 1], pause: [Duration::ZERO; 2] });
    let log = vec![
        (at(11.9), fetch(1.0)),
        (at(12.1), fetch(2.0)),
        (at(13.9), fetch(3.0)),
        (at(14.1), fetch(4.0)),
        (at(10.9), probe.clone()),
        (at(11.1), probe),
        (at(11.0), failure.clone()),
        (at(13.0), failure),
    ];
    let logs = [log];
    let (samples, faults) = figures(&[&web], &logs, window);
    assert_eq!(values(&samples, "first_byte_ms"), [2.0, 3.0]);
    // The median of 2 and 3 ms, over twice 0.25 ms.
    assert_eq!(values(&samples, "first_byte_over_floor"), [5.0]);
    assert_eq!(values(&samples, "overhead_ms"), [1.5, 2.5, 499.75]);
    assert_eq!(values(&samples, "overhead_pct")[0], 75.0);
    assert_eq!(values(&samples, "download_kb_s"), [1000.0, 1000.0]);
    assert_eq!((values(&samples, "echo_ms").len(), values(&samples, "failures")), (1, &[2.0][..]));
    assert!(faults.is_empty());
    let (samples, faults) = figures(&[&web], &[Log::new()], window);
    assert_eq!((values(&samples, "first_byte_ms").len(), faults), (0, vec!["web got nothing".to_owned()]));
}

#[test]
fn each_client_of_a_group_has_medians_of_its_own() {
    let start = Duration::from_secs(100);
    let at = |s: f64| start + Duration::from_secs_f64(s);
    let window = Window { opens: at(10.0), closes: at(20.0) };
    let fetch = |first_byte_ms: f64, download_s: f64| Event::Fetch {
        t_s: 0.0,
        bytes: 1000,
        open_ms: 1.0,
        first_byte_ms,
        download_s,
    };
    let web = client("web", Traffic::Fetch { size: [1, 1], pause: [Duration::ZERO; 2] });
    let busy = vec![
        (at(9.0), fetch(1.0, 0.5)),
        (at(12.0), fetch(100.0, 1.0)),
        (at(14.0), fetch(300.0, 2.0)),
        (at(19.0), fetch(200.0, 3.0)),
    ];
    let logs = [busy, vec![(at(25.0), fetch(5000.0, 9.0))], Log::new()];
    let (samples, _) = figures(&[&web, &web, &web], &logs, window);
    assert_eq!(values(&samples, "client_first_byte_ms"), [200.0, 5000.0]);
    assert_eq!(values(&samples, "client_download_s"), [2.0, 9.0]);
    // One of them got nothing that began inside the window.
    assert_eq!(values(&samples, "clients_without_downloads"), [1.0]);
    assert_eq!(values(&samples, "first_byte_ms").len(), 4);
    let (alone, _) = figures(&[&web], &logs[..1], window);
    assert!(values(&alone, "client_download_s").is_empty());
    assert_eq!(values(&alone, "clients_without_downloads"), [0.0]);
}

#[test]
fn a_download_that_hangs_has_failed() {
    let start = Duration::from_secs(100);
    let at = |s: u64| start + Duration::from_secs(s);
    let window = Window { opens: at(10), closes: at(12) };
    let failure = Event::Failure { t_s: 0.0, kind: "transfer: timeout".into(), error: String::new() };
    let failures = |program: Traffic| {
        let log: Log = vec![(at(12 + 300), failure.clone())];
        let (samples, _) = figures(&[&client("one", program)], &[log], window);
        values(&samples, "failures").to_vec()
    };
    assert_eq!(failures(Traffic::Fetch { size: [1, 1], pause: [Duration::ZERO; 2] }), [1.0]);
    // What happens to a stream while downloads are waited for is not the phase's.
    assert_eq!(failures(BULK), [0.0]);
}

#[test]
fn echoes_become_percentiles_and_seconds() {
    let start = Duration::from_secs(100);
    let at = |ms: u64| start + Duration::from_millis(ms);
    let window = Window { opens: at(10_000), closes: at(12_000) };
    let echo = |echo_ms: f64| Event::Echo { t_s: 0.0, echo_ms };
    let echoing = client("echo", Traffic::Echo { every: Duration::from_millis(20) });
    let mut log: Log = (0..10).map(|n| (at(10_200 + n), echo(100.0 + n as f64))).collect();
    log.extend([(at(11_500), echo(200.0)), (at(10_050), echo(100.0))]);
    let logs = [log];
    let (samples, faults) = figures(&[&echoing], &logs, window);
    assert_eq!((values(&samples, "echoes"), faults.len()), (&[11.0][..], 0));
    assert_eq!(values(&samples, "echo_p90_ms"), [109.0]);
    assert_eq!(values(&samples, "echo_excess_p90_ms"), [108.75]);
    assert_eq!(values(&samples, "echo_second_ms"), [104.5, 200.0]);
    assert_eq!(values(&samples, "failures"), [0.0]);
}

#[test]
fn echoes_that_never_came_back_have_been_long_on_the_way() {
    let start = Duration::from_secs(100);
    let at = |ms: u64| start + Duration::from_millis(ms);
    let window = Window { opens: at(10_000), closes: at(12_000) };
    let lost = |left: u64, told: u64| (at(told), Event::EchoLost { t_s: 0.0, age_ms: (told - left) as f64 });
    let came =
        |left: u64, echo_ms: u64| (at(left + echo_ms), Event::Echo { t_s: 0.0, echo_ms: echo_ms as f64 });
    let echoing = client("echo", Traffic::Echo { every: Duration::from_millis(20) });
    let mut log: Log = (0..10).map(|n| came(10_000 + 20 * n, 100)).collect();
    log.extend((10..100).map(|n| lost(10_000 + 20 * n, 17_000)));
    let (samples, faults) = figures(&[&echoing], &[log], window);
    // The oldest had been on the way for 6.8 s.
    assert!(values(&samples, "echo_p90_ms")[0] > 6000.0, "{samples:?}");
    assert!(values(&samples, "echo_excess_p90_ms")[0] > 6000.0);
    assert_eq!((values(&samples, "echoes"), values(&samples, "failures")), (&[10.0][..], &[90.0][..]));
    assert_eq!(faults, ["echoes of echo never came back: 90"]);

    // Where echoes take six seconds, the last are under way still. A stream that breaks brings nothing more.
    let slow = vec![came(10_900, 6100), lost(11_000, 17_000)];
    assert_eq!(figures(&[&echoing], &[slow], window).1, Vec::<String>::new());
    let broken = vec![came(10_000, 500), lost(11_400, 11_500), lost(9000, 11_500)];
    assert_eq!(figures(&[&echoing], &[broken], window).1, ["echoes of echo never came back: 1"]);
}

#[test]
fn a_group_is_back_after_its_last_slow_second() {
    let start = Duration::from_secs(100);
    let at = |s: f64| start + Duration::from_secs_f64(s);
    let window = Window { opens: at(0.0), closes: at(15.0) };
    // A second each: fast before the change at 7 s and for a second after it, then slow for two, and fast again.
    let rate = |second: u32| if (8..10).contains(&second) { 10.0 } else { 100.0 };
    let log: Log = (0..15).map(|second| (at(f64::from(second + 1)), self::second(rate(second)))).collect();
    let one = client("one", BULK);
    let back = |log: Log, changed, times| {
        let logs = [log];
        let groups = members(&[&one], &logs);
        let back = groups[0].back(Duration::from_secs(changed), times, window);
        back.map(|sampled| sampled.values[0])
    };
    // The last slow second begins when more than 22 % of it are slow: 2.7 s after the change.
    let after = back(log.clone(), 7, 1.0).unwrap();
    assert!((after - 3.7).abs() < 0.05, "{after}");
    // On a wire that became five times as fast it never is, and on one that became a tenth as fast it always was.
    let never = back(log.clone(), 7, 5.0).unwrap();
    assert!((never - 8.0).abs() < 0.05, "{never}");
    assert_eq!(back(log, 7, 0.1), Some(0.0));
    assert_eq!(back(Log::new(), 7, 1.0), None);
}

#[test]
fn fairness_is_over_streams_and_by_group() {
    let start = Duration::from_secs(100);
    let at = |s: f64| start + Duration::from_secs_f64(s);
    let window = Window { opens: at(10.0), closes: at(12.0) };
    let log = |rate: f64| -> Log { (1..15).map(|n| (at(f64::from(n)), second(rate))).collect() };
    let (mut one, other) = (client("one", BULK), client("other", BULK));
    one.labels = labels([("to", "there")]);
    let logs = [log(300.0), log(100.0), log(100.0), log(100.0)];
    let clients = [&one, &other, &other, &other];
    let groups = members(&clients, &logs);
    let samples = fairness(&groups, window);
    let told: Vec<(&str, f64)> = samples.iter().map(|one| (&*one.name, one.values[0])).collect();
    // Six hundred over four: 360 000 by 4 times 120 000.
    assert_eq!(told, [("fair_share", 100.0 / 150.0), ("fair_share", 2.0), ("jain", 0.75)]);
    assert_eq!(fairness(&members(&[&one], &[Log::new()]), window), []);
    // Half of a download lies inside.
    let fetch = Event::Fetch { t_s: 0.0, bytes: 4000, open_ms: 0.0, first_byte_ms: 1000.0, download_s: 3.0 };
    assert_eq!(received_kb(&vec![(at(13.0), fetch)], window), 2.0);
}
