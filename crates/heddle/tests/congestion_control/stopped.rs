//! A relay that stands still for 20 s, as on a machine that hangs or swaps: its neighbours wait, and no circuit ends.
//!
//! All of it is begun with the network, so that the 20 s pass beside the other tests.

use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use heddle_lab::machine::process::Signal;
use heddle_lab::traffic::{self, Content};

use crate::quic::{metrics, wait_for_pairs};
use crate::support::{TIMEOUT, eventually};
use crate::{CHOICE, lab};

/// Relays for this alone, and what joins them to their neighbours.
const STOPPED: [(&str, &str); 2] = [("stoppedquic", "quic"), ("stoppeddtls", "tcp-dtls")];
const STANDS_STILL: Duration = Duration::from_secs(20);
/// More than is under way when it stops.
const CONTENT: Content = Content { seed: 5, len: 10_000_000 };

static BEGUN: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

/// Stops the relays as soon as the network is there. The test waits for what comes of it.
pub fn begin() {
    let stop_all = || {
        let _shared = CHOICE.read().unwrap();
        thread::scope(|scope| {
            let each =
                STOPPED.map(|(middle, transport)| scope.spawn(move || stop_and_go_on(middle, transport)));
            for stopped in each {
                stopped.join().unwrap_or_else(|why| resume_unwind(why));
            }
        });
    };
    *BEGUN.lock().unwrap() = Some(thread::spawn(stop_all));
}

fn stop_and_go_on(middle: &str, transport: &str) {
    let lab = lab();
    let path = ["heddleguard", middle, "heddleexit"];
    wait_for_pairs(lab, middle, transport);
    let before = metrics(middle);
    let [busy, idle] = [(); 2].map(|()| lab.first_circuit(&path));
    let is_flowing = AtomicBool::new(false);
    let relay = lab.network.relay(middle).unwrap();
    let carried = thread::scope(|scope| {
        let download = scope.spawn(|| {
            let stream = lab.stream(Some(busy), &lab.target()).unwrap();
            let mut on_bytes = |bytes| {
                if bytes > 1_000_000 && !is_flowing.load(Ordering::Relaxed) {
                    relay.signal(Signal::Stop).unwrap();
                    is_flowing.store(true, Ordering::Relaxed);
                }
            };
            traffic::download(stream, CONTENT, CONTENT.sha256(), Instant::now(), TIMEOUT, &mut on_bytes)
        });
        eventually("bytes to flow", || is_flowing.load(Ordering::Relaxed));
        thread::sleep(STANDS_STILL);
        assert!(!download.is_finished(), "{middle}: its neighbours did not wait");
        relay.signal(Signal::Cont).unwrap();
        download.join().unwrap()
    });
    let carried = carried.unwrap_or_else(|error| panic!("{middle}: {error}"));
    assert!(carried.sha256_ok && carried.seconds > STANDS_STILL.as_secs_f64(), "{middle}: {carried:?}");
    lab.both_ways(idle, Content { seed: 6, len: 100_000 });
    let share = metrics(middle).cell_share(&before, transport).unwrap();
    assert!(share >= 0.99, "{middle}: {share}");
    lab.close(busy);
    lab.close(idle);
}

#[test]
fn a_neighbour_that_stands_still_for_20_s_ends_no_circuit() {
    lab();
    let begun = BEGUN.lock().unwrap().take();
    // What it said went to the output of the test that began it.
    begun.expect("it is begun with the network").join().unwrap_or_else(|why| {
        let said = why.downcast_ref::<String>().map(String::as_str);
        panic!("{}", said.or(why.downcast_ref::<&str>().copied()).unwrap_or("no message"))
    });
}
