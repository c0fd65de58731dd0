use super::*;
use proptest::prelude::*;

fn load(wat: &str) -> Result<Observer, Refused> {
    Observer::load("mine", &wat::parse_str(wat).unwrap())
}

fn look(observer: &mut Observer, time_ns: u64, index: u64, fields: &[i64]) -> Result<Vec<i64>, Ended> {
    observer.observe(&Row { index, time_ns, fields }).map(<[i64]>::to_vec)
}

fn refusal(wat: &str) -> String {
    load(wat).unwrap_err().to_string()
}

/// Why an observer ends at its first look.
fn end(wat: &str) -> String {
    let mut observer = load(wat).unwrap();
    look(&mut observer, 0, 0, &[]).unwrap_err().to_string()
}

#[test]
fn the_examples_record_what_they_say() {
    let mut sizes = load(include_str!("../../observers/sizes.wat")).unwrap();
    assert_eq!(look(&mut sizes, 5, 7, &[3, 4]).unwrap(), [7, 3]);

    let mut template = load(include_str!("../../observers/template.wat")).unwrap();
    assert_eq!(look(&mut template, 5, 7, &[3, -4]).unwrap(), [5, 7, 3, -4]);
    assert_eq!(look(&mut template, 6, 8, &[]).unwrap(), [6, 8]);

    let mut changes = load(include_str!("../../observers/changes.wat")).unwrap();
    assert_eq!(look(&mut changes, 100, 7, &[3]).unwrap(), [], "nothing is known of it before");
    assert_eq!(look(&mut changes, 200, 7, &[3]).unwrap(), []);
    assert_eq!(look(&mut changes, 250, 9, &[1]).unwrap(), []);
    assert_eq!(look(&mut changes, 300, 7, &[5]).unwrap(), [7, 5, 2, 200]);
    assert_eq!(look(&mut changes, 450, 7, &[4]).unwrap(), [7, 4, -1, 150]);
    assert_eq!(look(&mut changes, 500, 7 + 1_024, &[4]).unwrap(), [], "another with the same bits");
}

#[test]
fn endless_work_and_endless_memory_are_stopped_and_named() {
    let endless = "(module (func (export \"observe\") (loop $again (br $again))))";
    assert_eq!(end(endless), "the observer \"mine\" was stopped: one look took it more than 200000 of fuel");
    let grows = "(module (memory 1) (func (export \"observe\") (loop $again
        (drop (memory.grow (i32.const 1))) (br $again))))";
    assert!(end(grows).starts_with("the observer \"mine\" was stopped: "), "{}", end(grows));
    let fills = "(module (memory 16) (func (export \"observe\") (loop $again
        (memory.fill (i32.const 0) (i32.const 1) (i32.const 1048576)) (br $again))))";
    assert!(end(fills).contains("fuel"), "{}", end(fills));
    let deep = "(module (func $down (export \"observe\") (call $down)))";
    assert!(end(deep).contains("stopped"), "{}", end(deep));
    // Each call sets its locals to zero, at no charge.
    let large = format!("(module (func (export \"observe\") (local{})))", " i64".repeat(2_000));
    assert!(end(&large).contains("stack"), "{}", end(&large));
    let talks = "(module (import \"spe\" \"record\" (func $record (param i64)))
        (func (export \"observe\") (loop $again (call $record (i64.const 1)) (br $again))))";
    assert!(end(talks).contains("more than 64 numbers"), "{}", end(talks));
    let wrong = "(module (func (export \"observe\") unreachable))";
    assert!(end(wrong).contains("stopped"), "{}", end(wrong));
}

#[test]
fn fields_that_are_not_there_are_zero() {
    let mut observer = load(
        "(module (import \"spe\" \"field\" (func $field (param i32) (result i64)))
        (import \"spe\" \"record\" (func $record (param i64)))
        (func (export \"observe\")
            (call $record (call $field (i32.const -1)))
            (call $record (call $field (i32.const 1)))
            (call $record (call $field (i32.const 2147483647)))))",
    )
    .unwrap();
    assert_eq!(look(&mut observer, 0, 0, &[9, 8, 7]).unwrap(), [0, 8, 0]);
    assert_eq!(look(&mut observer, 0, 0, &[9]).unwrap(), [0, 0, 0], "the last look's are gone");
}

#[test]
fn what_must_not_be_loaded_is_refused() {
    assert!(refusal("(module)").contains("exports no function `observe`"));
    assert!(refusal("(module (func (export \"observe\") (param i32)))").contains("exports no function"));
    let elsewhere = "(module (import \"env\" \"open\" (func)) (func (export \"observe\")))";
    assert!(refusal(elsewhere).contains("(env,open)"), "{}", refusal(elsewhere));
    let starts = "(module (func $start) (start $start) (func (export \"observe\")))";
    assert!(refusal(starts).contains("start"), "{}", refusal(starts));
    let large = "(module (memory 100) (func (export \"observe\")))";
    assert!(refusal(large).contains("cannot be loaded"), "{}", refusal(large));
    let wide = "(module (table 100000 funcref) (func (export \"observe\")))";
    assert!(refusal(wide).contains("cannot be loaded"), "{}", refusal(wide));
    let long = Observer::load("mine", &vec![0; MODULE_BYTES_MAX + 1]).unwrap_err();
    assert!(long.to_string().contains("65537 bytes"), "{long}");
    assert!(Observer::load("mine", b"").is_err());
}

#[test]
fn a_thousand_loads_leave_nothing() {
    let module = wat::parse_str("(module (memory 16) (func (export \"observe\")))").unwrap();
    let load_all = || {
        for _ in 0..1_000 {
            let mut observer = Observer::load("mine", &module).unwrap();
            look(&mut observer, 0, 0, &[1]).unwrap();
        }
    };
    load_all();
    let before = resident_kib();
    load_all();
    let grown = resident_kib().saturating_sub(before);
    // A thousand memories of a mebibyte would be a thousand times that.
    assert!(grown < 16 << 10, "{grown} KiB more after a thousand loads");
}

fn resident_kib() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "a test looks at itself")]
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

proptest! {
    #[test]
    fn bytes_of_anybody_are_loaded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Observer::load("mine", &bytes);
    }

    /// A good module with a few bytes changed gets further than noise does.
    #[test]
    fn changed_modules_end_or_record(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut module = wat::parse_str(include_str!("../../observers/changes.wat")).unwrap();
        for (place, byte) in changes {
            let place = place.index(module.len());
            module[place] = byte;
        }
        if let Ok(mut observer) = Observer::load("mine", &module) {
            for time in 0..3 {
                match look(&mut observer, time, 7, &[time as i64]) {
                    Ok(record) => prop_assert!(record.len() <= RECORD_MAX),
                    Err(_) => break,
                }
            }
        }
    }
}
