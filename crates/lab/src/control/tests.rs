use super::*;

use std::os::unix::net::UnixListener;
use std::path::PathBuf;

/// A control port that answers each command with the next piece of the script.
fn scripted(script: Vec<&'static str>) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        for answer in script {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
        }
        // Keep the connection open until the client is done with it.
        let _ = reader.read_line(&mut String::new());
    });
    (dir, path)
}

fn connect(script: Vec<&'static str>) -> (tempfile::TempDir, Control) {
    let (dir, path) = scripted(script);
    let control = Control::connect(&path, Duration::from_secs(5), || Ok(())).unwrap();
    (dir, control)
}

#[test]
fn events_between_answers_are_kept() {
    let (_dir, mut control) = connect(vec![
        "250 OK\r\n",
        "650 CIRC 4 LAUNCHED\r\n250-version=0.4\r\n250 OK\r\n650 STREAM 1 NEW 0 x:1\r\n",
    ]);
    assert_eq!(control.get_info("version").unwrap(), "0.4");
    let event = control.next_event(Duration::from_secs(5)).unwrap().unwrap();
    assert_eq!((&*event.kind, &*event.text), ("CIRC", "4 LAUNCHED"));
    let event = control.next_event(Duration::from_secs(5)).unwrap().unwrap();
    assert_eq!(event.kind, "STREAM");
    assert_eq!(control.next_event(Duration::from_millis(10)).unwrap(), None);
}

#[test]
fn values_of_several_lines_come_without_their_dots() {
    let answer = "250+ns/all=\r\nr a\r\n..dotted\r\n.\r\n250 OK\r\n";
    let (_dir, mut control) = connect(vec!["250 OK\r\n", answer]);
    assert_eq!(control.get_info("ns/all").unwrap(), "r a\n.dotted");
}

#[test]
fn refusals_and_nonsense_are_errors() {
    let (_dir, mut control) = connect(vec!["250 OK\r\n", "552 Unknown\r\n", "?\r\n"]);
    assert!(matches!(control.command("X"), Err(Error::Refused { .. })));
    assert!(matches!(control.command("Y"), Err(Error::Malformed { .. })));
}

#[test]
fn a_circuit_that_fails_says_where_and_why() {
    let (_dir, mut control) = connect(vec![
        "250 OK\r\n",
        "250 OK\r\n",
        "250 EXTENDED 9\r\n650 CIRC 9 EXTENDED $0123456789012345678901234567890123456789~g\r\n\
         650 CIRC 9 FAILED $0123456789012345678901234567890123456789~g PURPOSE=GENERAL REASON=DESTROYED REMOTE_REASON=CONNECTFAILED\r\n",
    ]);
    let error = control.build_circuit(&["A", "B"], Duration::from_secs(5)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the network refused: circuit 9 after 1 hops: DESTROYED, remote CONNECTFAILED"
    );
}

#[test]
fn circuit_lines_are_read() {
    let a = "A".repeat(40);
    let b = "B".repeat(40);
    let line = format!("3 BUILT ${a}~x,${b}~y BUILD_FLAGS=NEED_CAPACITY PURPOSE=GENERAL TIME_CREATED=z");
    let circuit = Circuit::parse(&line).unwrap();
    assert_eq!(circuit.path, [a, b]);
    assert_eq!((&*circuit.status, &*circuit.purpose), ("BUILT", "GENERAL"));
    let bare = Circuit::parse("4 LAUNCHED PURPOSE=GENERAL").unwrap();
    assert_eq!((bare.id, bare.path.len()), (CircuitId(4), 0));
}
