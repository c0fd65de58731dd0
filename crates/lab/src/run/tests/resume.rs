//! Runs that are added to results.

use super::*;
use crate::machine::conditions::Conditions;
use crate::machine::files::write_json;
use crate::results::{Invocation, Outcome};

#[test]
fn runs_are_added_to_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut backend = MadeUp { fails_after: Some(5), ..MadeUp::default() };
    let three = RunOptions { runs: Some(3), ..options(small(&[]).unwrap(), dir.path()) };
    run_with(&three, &mut backend).unwrap_err();
    let mut backend = MadeUp::default();
    let more = RunOptions { resume: true, ..three };
    let summary = run_with(&more, &mut backend).unwrap();
    assert!(summary.valid, "{:?}", summary.reasons);
    assert_eq!((&*summary.seeds, summary.runs_wanted), (&[7, 8, 9][..], 3));
    assert_eq!(backend.started.iter().map(|(_, seed)| *seed).collect::<Vec<_>>(), [8, 8, 8, 9, 9, 9]);
    assert_eq!(sent_probes(&summary), 6000);
    // How they came about stays: the first command was interrupted, and the second one made the rest.
    let runs = |one: &Invocation| (one.runs_before, one.runs_after, one.runs_wanted);
    assert_eq!(summary.history.iter().map(runs).collect::<Vec<_>>(), [(0, 1, 3), (1, 3, 3)]);
    assert!(!summary.was_extended());
    let longer = RunOptions { runs: Some(4), ..more.clone() };
    let other = tempfile::tempdir().unwrap();
    for name in ["summary.json", "samples.json", "plan.toml"] {
        std::fs::copy(dir.path().join(name), other.path().join(name)).unwrap();
    }
    let longer =
        run_with(&RunOptions { out: other.path().to_owned(), ..longer }, &mut MadeUp::default()).unwrap();
    assert!(longer.was_extended() && longer.valid);
    let stored = Stored::read(other.path()).unwrap();
    for report in [crate::report::page(&[stored.results()]), crate::report::text(&[stored.results()])] {
        assert!(report.contains("3 to 4 runs of 4") && report.contains("chosen anew"), "{report}");
    }
    // As many as wanted are there already, and other values make another experiment.
    let again = run_with(&more, &mut backend).unwrap();
    assert_eq!((backend.started.len(), again.figures), (6, summary.figures));
    let other = RunOptions { loaded: small(&[("\"2000\"", "\"1000\"")]).unwrap(), ..more };
    let refused = run_with(&other, &mut backend).unwrap_err().to_string();
    assert!(refused.contains("the plan or its values"), "{refused}");
}

/// The program may end between the files that it writes.
#[test]
fn samples_that_the_summary_knows_nothing_of_are_measured_once() {
    let dir = tempfile::tempdir().unwrap();
    let two = options(small(&[]).unwrap(), dir.path());
    run_with(&two, &mut MadeUp::default()).unwrap();
    let old = std::fs::read(dir.path().join("summary.json")).unwrap();
    let four = RunOptions { resume: true, runs: Some(4), ..two };
    let whole = run_with(&four, &mut MadeUp::default()).unwrap();
    std::fs::write(dir.path().join("summary.json"), old).unwrap();
    let again = run_with(&four, &mut MadeUp::default()).unwrap();
    assert_eq!((sent_probes(&again), &again.figures), (sent_probes(&whole), &whole.figures));
}

/// Who wants a hundred runs, ends them when the results please and then says that so many were wanted has no bound met.
#[test]
fn runs_that_were_ended_after_a_look_meet_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut backend = MadeUp { fails_after: Some(8), ..MadeUp::default() };
    let many = RunOptions { runs: Some(100), ..options(small(&[]).unwrap(), dir.path()) };
    run_with(&many, &mut backend).unwrap_err();
    let few = RunOptions { resume: true, runs: Some(2), ..many };
    let summary = run_with(&few, &mut MadeUp::default()).unwrap();
    assert!(summary.valid && summary.was_extended(), "{:?}", summary.history);
    assert_eq!(summary.seeds.len(), 2);
    assert!(summary.targets.iter().all(|target| target.outcome != Outcome::Met), "{:?}", summary.targets);
}

#[test]
fn what_was_said_about_a_run_that_was_thrown_away_goes_with_it() {
    // Runs are interrupted in their last arm: the second one, and then the first one.
    for (late, fails_after, kept) in [([3, 4], 6, 1), ([0, 1], 3, 0)] {
        let dir = tempfile::tempdir().unwrap();
        let mut backend = MadeUp { fails_after: Some(fails_after), late: late.into(), ..MadeUp::default() };
        run_with(&options(small(&[]).unwrap(), dir.path()), &mut backend).unwrap_err();
        let summary = Summary::read(dir.path()).unwrap();
        assert_eq!(summary.seeds.len(), kept);
        // Of the first run half is reported, and what is said about it.
        assert_eq!((summary.reasons.len(), summary.repeated.len()), (2 - kept, 1 - kept), "{summary:?}");
        let more = RunOptions { resume: true, ..options(small(&[]).unwrap(), dir.path()) };
        let summary = run_with(&more, &mut MadeUp::default()).unwrap();
        assert_eq!((summary.valid, summary.repeated.len(), &*summary.seeds), (true, 0, &[7, 8][..]));
    }
}

#[test]
fn only_results_of_the_same_program_and_machine_are_added_to() {
    let dir = tempfile::tempdir().unwrap();
    let first = options(small(&[("runs = 2", "runs = 1")]).unwrap(), dir.path());
    let more = RunOptions { resume: true, ..first.clone() };
    let mut backend = MadeUp::default();
    let mut resumed = |commit: &str| {
        experiment::run_with(&more, &mut backend, commit, &mut |_| Ok(())).map_err(|error| error.to_string())
    };
    run_with(&first, &mut MadeUp::default()).unwrap();
    let mut null = MadeUp { null_crypto: true, ..MadeUp::default() };
    let refused = run_with(&more, &mut null).unwrap_err().to_string();
    assert!(refused.contains("the cryptography of links"), "{refused}");
    assert!(resumed("4567cdef").unwrap_err().contains("the commit of the results"));
    assert!(resumed("0123abcd").is_ok());

    let file = dir.path().join("summary.json");
    let summary = Summary::read(dir.path()).unwrap();
    let Conditions { kernel, .. } = summary.conditions.clone();
    let conditions = Conditions { kernel: format!("{kernel}-other"), ..summary.conditions.clone() };
    write_json(&file, &Summary { conditions, ..summary.clone() }, true).unwrap();
    assert!(resumed("0123abcd").unwrap_err().contains("the machine, its kernel"));
    // The same mark may stand for other changes.
    let commit = "0123abcd-dirty";
    write_json(&file, &Summary { commit: commit.to_owned(), ..summary }, true).unwrap();
    let refused = resumed(commit).unwrap_err();
    assert!(refused.contains("not committed") && refused.lines().count() == 1, "{refused}");
}
