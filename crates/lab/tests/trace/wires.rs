//! What is told of wires.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use heddle_lab::trace::{Trace, TraceOptions, Traced};

use super::capture::{Capture, Packet};
use super::{a_circuit, everything, files};

const SENT: u32 = 2;
const ARRIVED: u32 = 1;
/// Longer than a packet is on its way.
const UNDER_WAY_NS: u64 = 100_000_000;

#[test]
fn a_trace_changes_nothing_and_is_the_same_again() {
    let dir = tempfile::tempdir().unwrap();
    let traced = |name: &str, headers_only| {
        let dir = dir.path().join(name);
        let trace = Trace::begin(TraceOptions { headers_only, ..everything(&dir) }).unwrap();
        let hash = a_circuit(Some(&trace));
        let Traced { files: count, bytes, full_at } = trace.end().unwrap();
        let files = files(&dir);
        assert_eq!((count, full_at), (files.len(), None));
        assert_eq!(bytes, files.values().map(|file| file.len() as u64).sum::<u64>());
        (hash, files)
    };
    let (one, again, whole) = (traced("one", true), traced("again", true), traced("whole", false));
    assert!(one == again, "two traces of one seed differ");
    assert_eq!((whole.0, a_circuit(None)), (one.0, one.0));
    assert_eq!(one.1["circuits.jsonl"], whole.1["circuits.jsonl"]);
    // But for what headers leave out, which differs by what libraries draw, both tell the same.
    for (name, file) in one.1.iter().filter(|(name, _)| name.ends_with(".pcapng")) {
        let (headers, all) = (Capture::read(file), Capture::read(&whole.1[name]));
        let told = |packet: &Packet| (packet.interface, packet.time_ns, packet.len, packet.comment.clone());
        assert!(headers.packets.iter().map(told).eq(all.packets.iter().map(told)), "{name}");
        assert!(headers.packets.iter().all(|packet| packet.bytes.len() <= 20 + 60), "{name}");
        assert!(all.packets.iter().all(Packet::is_good), "{name}");
    }
}

#[test]
fn what_is_sent_arrives_or_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let trace = Trace::begin(everything(dir.path())).unwrap();
    a_circuit(Some(&trace));
    trace.end().unwrap();
    let files = files(dir.path());
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "circuits.jsonl",
            "relay0-client.pcapng",
            "relay0-relay1.pcapng",
            "relay1-relay2.pcapng",
            "relay2-server.pcapng"
        ]
    );
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for name in &names[1..] {
        let capture = Capture::read(&files[*name]);
        let ends: Vec<&str> = name.trim_end_matches(".pcapng").split('-').collect();
        let called: Vec<&str> = capture.interfaces.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(called, [ends[0], ends[1], "dropped"]);
        let [about, ..] = &capture.interfaces[..] else { panic!("there are interfaces") };
        assert_eq!(about.1, format!("the wire of {} and {}, at {}", ends[0], ends[1], ends[0]));
        let mut under_way: BTreeMap<&[u8], Vec<(usize, u64)>> = BTreeMap::new();
        let mut last_ns = 0;
        for packet in &capture.packets {
            assert!(packet.time_ns >= last_ns, "{name}: time goes on");
            last_ns = packet.time_ns;
            if packet.flags == Some(SENT) {
                under_way.entry(&packet.bytes).or_default().push((packet.interface, packet.time_ns));
                continue;
            }
            let sent = under_way.get_mut(&packet.bytes[..]).expect("only what was sent arrives or is lost");
            let (interface, at_ns) = sent.remove(0);
            match &packet.comment {
                Some(reason) => {
                    assert_eq!((packet.interface, packet.flags), (2, None));
                    *reasons.entry(reason.clone()).or_default() += 1;
                }
                None => {
                    assert_eq!((packet.interface, packet.flags), (1 - interface, Some(ARRIVED)));
                    assert_eq!(packet.time_ns - at_ns, 10_000_000, "the wire's latency");
                }
            }
        }
        let late = under_way.values().flatten().find(|(_, at_ns)| at_ns + UNDER_WAY_NS < last_ns);
        assert_eq!(late, None, "{name}: what became of it is not told");
    }
    assert!(reasons["loss"] > 5 && reasons["blocked"] > 5 && reasons.len() == 2, "{reasons:?}");
}

#[test]
fn wires_are_chosen_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let of = |wires: &[&str], name: &str| TraceOptions {
        wires: wires.iter().map(|wire| (*wire).to_owned()).collect(),
        ..everything(&dir.path().join(name))
    };
    let trace = Trace::begin(of(&["relay1-relay0", "server-*"], "two")).unwrap();
    a_circuit(Some(&trace));
    trace.end().unwrap();
    let files = files(&dir.path().join("two"));
    let names: Vec<&String> = files.keys().collect();
    assert_eq!(names, ["circuits.jsonl", "relay0-relay1.pcapng", "relay2-server.pcapng"]);

    let trace = Trace::begin(of(&["relay7-*"], "none")).unwrap();
    let refused = catch_unwind(AssertUnwindSafe(|| a_circuit(Some(&trace)))).unwrap_err();
    let refused = refused.downcast_ref::<String>().unwrap();
    assert!(refused.contains("no wire is called") && refused.contains("relay0-relay1"), "{refused}");
    let again = Trace::begin(everything(&dir.path().join("two"))).unwrap_err().to_string();
    assert!(again.contains("has files already"), "{again}");
}

#[test]
fn a_bound_holds_and_leaves_whole_blocks() {
    const BYTES_MAX: u64 = 100_000;
    let dir = tempfile::tempdir().unwrap();
    let trace = Trace::begin(TraceOptions { bytes_max: BYTES_MAX, ..everything(dir.path()) }).unwrap();
    assert_eq!(a_circuit(Some(&trace)), a_circuit(None));
    let Traced { bytes, full_at, .. } = trace.end().unwrap();
    let files = files(dir.path());
    let taken: u64 = files.values().map(|file| file.len() as u64).sum();
    assert!(taken == bytes && (BYTES_MAX - 2000..=BYTES_MAX).contains(&bytes), "{bytes} {taken}");
    let captures = files.iter().filter(|(name, _)| name.ends_with(".pcapng"));
    let last = captures.flat_map(|(_, file)| Capture::read(file).packets).map(|packet| packet.time_ns).max();
    let full_ns = full_at.expect("it was reached").as_nanos();
    assert!(u128::from(last.unwrap()) <= full_ns);
}

/// Of a run that breaks off the trace is wanted most.
#[test]
fn a_run_that_breaks_off_leaves_its_trace() {
    let dir = tempfile::tempdir().unwrap();
    let trace = Trace::begin(everything(dir.path())).unwrap();
    let broken = catch_unwind(AssertUnwindSafe(|| {
        a_circuit(Some(&trace));
        panic!("as the test wants");
    }));
    assert!(broken.is_err());
    drop(trace);
    let files = files(dir.path());
    assert!(Capture::read(&files["relay0-relay1.pcapng"]).packets.len() > 100);
    assert_eq!(files["circuits.jsonl"].last(), Some(&b'\n'));
}
