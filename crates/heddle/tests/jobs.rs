//! Runs of a plan as jobs, as a user has them made: by a shell, with a process that is killed in the midst, and by
//! HyperQueue, with a worker that is. What jobs gave is put together to what one run gives, byte for byte.

#[path = "../../net/tests/support/not_run.rs"]
mod not_run;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use not_run::not_run;
use serde_json::Value;

/// Six jobs over a Tor network.
const NETWORK: &str = include_str!("support/jobs.toml");

/// Four jobs that take a moment each.
const WIRES: &str = r#"
name = "wires"
title = "Wires without Tor"
about = "A plan for tests of jobs."
budget = "1 min"
runs = 2

[set]
probes = "1000"

[[arm]]
name = "reno"

[[arm.case]]
labels = { of = "reno" }
wire = { rate = "10 Mbit/s", delay = "20 ms" }
bulk = { congestion_control = "reno", duration = "1 s", warm_up = "0.5 s" }

[[arm]]
name = "probes"

[[arm.case]]
labels = { of = "probes" }
wire = { delay = "20 ms", loss = { bernoulli = { probability = "10 %" } } }
probe = { count = ${probes}, interval = "1 ms" }
"#;

/// What in `summary.json` tells of how runs came about, and so differs also between two runs of one command.
const HOW_IT_CAME: [&str; 4] = ["command", "history", "seconds", "noise"];

/// Rows of the report that tell the same.
const ROWS_OF_THAT: [&str; 3] = ["<tr><th>Command<", "<tr><th>Noise<", "<tr><th>Time<"];

fn lab(arguments: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.arg("lab").args(arguments).current_dir(dir).stdin(Stdio::null());
    command
}

fn output(arguments: &[&str], dir: &Path) -> Output {
    lab(arguments, dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a command printed that ended well.
fn said(arguments: &[&str], dir: &Path) -> String {
    let output = output(arguments, dir);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The lines by which a command refused.
fn refused(arguments: &[&str], dir: &Path) -> Vec<String> {
    let output = output(arguments, dir);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output.stdout));
    text(&output.stderr).lines().map(str::to_owned).collect()
}

/// The text of `summary.json` but for these of its fields.
fn without(summary: &str, fields: &[&str]) -> String {
    let mut is_kept = true;
    let mut kept = String::new();
    for line in summary.split_inclusive('\n') {
        if let Some(field) = line.strip_prefix("  \"").and_then(|field| field.split('"').next()) {
            is_kept = !fields.contains(&field);
        }
        kept += if is_kept { line } else { "" };
    }
    kept
}

/// Compares the results in two directories, byte for byte.
fn assert_same(one: &Path, other: &Path) {
    let read = |dir: &Path, name: &str| fs::read_to_string(dir.join(name)).unwrap();
    for name in ["samples.json", "plan.toml"] {
        assert!(read(one, name) == read(other, name), "{name} differs");
    }
    let summaries = [one, other].map(|dir| read(dir, "summary.json"));
    for summary in &summaries {
        let summary: Value = serde_json::from_str(summary).unwrap();
        assert!(HOW_IT_CAME.iter().all(|field| summary.get(field).is_some()), "{summary}");
        assert!(!summary["figures"].as_array().unwrap().is_empty(), "{summary}");
        assert!(summary["traces"].as_object().unwrap().len() == 2, "{summary}");
    }
    let [a, b] = summaries.map(|summary| without(&summary, &HOW_IT_CAME));
    assert_eq!(a, b);
    let [a, b] = [one, other].map(|dir| read(dir, "report.html"));
    assert_eq!(a.lines().count(), b.lines().count());
    let differ = a.lines().zip(b.lines()).filter(|(a, b)| a != b);
    let others: Vec<_> = differ.filter(|(a, _)| !ROWS_OF_THAT.iter().any(|row| a.starts_with(row))).collect();
    assert!(others.is_empty(), "{others:?}");
}

fn names_in(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(90), "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a job of a directory of jobs; its standard error goes to this file.
fn start_job(jobs: &str, number: &str, dir: &Path, log: &str) -> Child {
    let log = fs::File::create(dir.join(log)).unwrap();
    lab(&["job", jobs, number], dir).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

/// A job that is killed in the midst has made nothing. It would take hours, because one that takes a moment may be over
/// before it is killed.
fn a_killed_job_leaves_nothing(dir: &Path) {
    let long = NETWORK.replace("duration = \"3 s\"", "duration = \"36000 s\"");
    assert_ne!(long, NETWORK);
    fs::write(dir.join("long.toml"), long).unwrap();
    said(&["jobs", "long.toml", "--out", "long"], dir);
    let mut killed = start_job("long", "2", dir, "log");
    wait_for("a job", || fs::read_to_string(dir.join("log")).unwrap().contains("] run 1 of 3: quic"));
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(names_in(&dir.join("long/results")).is_empty());
    let missing = refused(&["collect", "long", "--out", "merged"], dir);
    assert_eq!(missing.len(), 7, "{missing:?}");
    let second = "heddle: job 2 (run 1 of 3, arm quic, seed 11) is missing: there is no long/results/2.json; \
                  `heddle lab job long 2` makes it";
    assert_eq!(missing[1], second);
    assert!(missing[6].contains("6 of 6 jobs in long") && !dir.join("merged").exists(), "{missing:?}");
}

#[test]
fn jobs_of_a_shell_give_what_one_run_gives() {
    let above = tempfile::tempdir().unwrap();
    // Scripts have to quote it.
    let dir = above.path().join("it's \"a\" $HOME of jobs");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("network.toml"), NETWORK).unwrap();
    let set = ["--set", "delay=12"];
    said(&[&["run", "network.toml", "--backend", "sim", "--out", "run"][..], &set].concat(), &dir);
    let told = said(&[&["jobs", "network.toml", "--out", "jobs"][..], &set].concat(), &dir);
    assert!(told.starts_with("6 jobs are in jobs") && told.contains("sh jobs/plain.sh"), "{told}");

    a_killed_job_leaves_nothing(&dir);

    // Who is at it at the same time writes the same, and who comes later leaves it alone.
    let results = dir.join("jobs/results");
    let both = ["one", "other"].map(|log| start_job("jobs", "3", &dir, log));
    for mut child in both {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(names_in(&results), ["3.json"]);
    let third = fs::read(results.join("3.json")).unwrap();
    let told = said(&["job", "jobs", "3"], &dir);
    assert!(
        told.contains("job 3 (run 2 of 3, arm tls, seed 12)") && told.contains("was there before"),
        "{told}"
    );
    let shell = Command::new("sh").arg(dir.join("jobs/plain.sh")).arg("2").output().unwrap();
    assert!(shell.status.success(), "{}", text(&shell.stderr));
    assert_eq!(text(&shell.stdout).matches(" written\n").count(), 5, "{}", text(&shell.stdout));
    assert_eq!(fs::read(results.join("3.json")).unwrap(), third);

    let told = said(&["collect", "jobs", "--out", "merged"], &dir);
    assert!(told.contains("first_byte_over_tls") && told.contains("merged/report.html written"), "{told}");
    assert_same(&dir.join("run"), &dir.join("merged"));
    let again = refused(&["collect", "jobs", "--out", "merged"], &dir);
    assert!(again.len() == 1 && again[0].contains("choose another directory"), "{again:?}");
}

/// A directory with the four jobs of wires, made.
fn jobs_of_wires() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("wires.toml"), WIRES).unwrap();
    said(&["jobs", "wires.toml", "--out", "jobs"], dir.path());
    for number in ["1", "2", "3", "4"] {
        said(&["job", "jobs", number], dir.path());
    }
    dir
}

/// The same text with the value of a member changed, wherever that stands.
fn with_member(text: &str, member: &str, value: &str) -> String {
    let start = text.find(&format!("\"{member}\":")).unwrap() + member.len() + 3;
    let end = start + text[start..].find([',', '\n', '}']).unwrap();
    format!("{}{value}{}", &text[..start], &text[end..])
}

#[test]
fn a_file_that_is_not_what_its_job_gave_is_told_and_not_taken() {
    let dir = jobs_of_wires();
    let dir = dir.path();
    said(&["jobs", "wires.toml", "--set", "probes=2000", "--out", "others"], dir);
    said(&["job", "others", "4"], dir);
    let result = |number: usize| dir.join(format!("jobs/results/{number}.json"));
    let [first, second, third] = [1, 2, 3].map(|number| fs::read_to_string(result(number)).unwrap());
    fs::write(result(1), &second).unwrap();
    fs::write(result(2), &second[..second.len() / 2]).unwrap();
    fs::write(result(3), with_member(&third, "sha256", "\"00\"")).unwrap();
    fs::copy(dir.join("others/results/4.json"), result(4)).unwrap();
    // What a process left that was killed while it wrote is nothing.
    fs::write(dir.join("jobs/results/5.json.0123.part"), &first[..100]).unwrap();
    let told = refused(&["collect", "jobs", "--out", "merged"], dir);
    let expected = [
        "job 1 (run 1 of 2, arm reno, seed 1) cannot be taken: jobs/results/1.json is of job 2; \
         `heddle lab job jobs 1` makes it anew",
        "jobs/results/2.json is no whole result: ",
        "jobs/results/3.json was made by another build of the program",
        "jobs/results/4.json is of another plan or of other values",
        "4 of 4 jobs in jobs have given nothing that can be taken",
    ];
    assert_eq!(told.len(), expected.len(), "{told:?}");
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.contains(expected), "{told}");
    }
    assert!(!dir.join("merged").exists());
    for number in ["1", "2", "3", "4"] {
        assert!(said(&["job", "jobs", number], dir).ends_with(" written\n"));
    }
    said(&["collect", "jobs", "--out", "merged"], dir);
    said(&["run", "wires.toml", "--backend", "sim", "--out", "run"], dir);
    assert_same(&dir.join("run"), &dir.join("merged"));
}

#[test]
fn what_was_made_on_several_kinds_of_machines_says_so_and_has_the_same_figures() {
    let dir = jobs_of_wires();
    let dir = dir.path();
    said(&["run", "wires.toml", "--backend", "sim", "--out", "run"], dir);
    let other = dir.join("jobs/results/2.json");
    let text = with_member(&fs::read_to_string(&other).unwrap(), "processor", "\"A <fast> one\"");
    fs::write(&other, text).unwrap();
    said(&["collect", "jobs", "--out", "merged"], dir);
    let read = |name: &str, file: &str| fs::read_to_string(dir.join(name).join(file)).unwrap();
    let summary: Value = serde_json::from_str(&read("merged", "summary.json")).unwrap();
    let machines = summary["machines"].as_array().unwrap();
    assert_eq!((machines.len(), &machines[0]), (2, &summary["conditions"]));
    assert_eq!(machines[1]["processor"], "A <fast> one");
    assert!(read("merged", "report.html").contains("; A &lt;fast&gt; one, "));
    let but = [&HOW_IT_CAME[..], &["machines"]].concat();
    let [one, many] = ["run", "merged"].map(|name| without(&read(name, "summary.json"), &but));
    assert_eq!(one, many);
    assert!(read("run", "samples.json") == read("merged", "samples.json"));
}

#[test]
fn mistakes_are_one_sentence() {
    let dir = jobs_of_wires();
    let dir = dir.path();
    let read = |name: &str| fs::read_to_string(dir.join("jobs").join(name)).unwrap();
    let (list, plan) = (read("jobs.json"), read("plan.toml"));
    let tamper = |name: &str, file: &str, text: &str| {
        let to = dir.join(name);
        fs::create_dir_all(&to).unwrap();
        fs::write(to.join("jobs.json"), &list).unwrap();
        fs::write(to.join("plan.toml"), &plan).unwrap();
        fs::write(to.join(file), text).unwrap();
    };
    tamper("broken", "jobs.json", &list[..list.len() / 2]);
    tamper("longer", "jobs.json", &with_member(&list, "runs", " 3"));
    tamper("endless", "jobs.json", &with_member(&list, "runs", " 1000000000000"));
    tamper("foreign", "jobs.json", &with_member(&list, "sha256", " \"00\""));
    tamper("changed", "plan.toml", &plan.replace("20 ms", "30 ms"));
    tamper("senseless", "plan.toml", &plan.replace("\"10 Mbit/s\"", "\"10 Mbit\""));
    let emu = "jobs are of --backend sim alone: emulated wires are one machine's own";
    for (arguments, said) in [
        (&["jobs", "wires.toml", "--backend", "emu", "--out", "new"][..], emu),
        (&["jobs", "thesis-exp13", "--arms", "tls", "--out", "new"], "arm tls has attackers"),
        (&["jobs", "wires.toml", "--program", "heddle", "--out", "new"], "path from the root on"),
        (&["jobs", "wires.toml", "--out", "new\nline"], "without control characters"),
        (&["jobs", "wires.toml", "--runs", "0", "--out", "new"], "0 runs"),
        (&["jobs", "wires.toml", "--out", "jobs"], "jobs holds jobs already"),
        (&["job", "jobs", "5"], "there is no job 5 in jobs; there are 1 to 4"),
        (&["job", "nowhere", "1"], "while reading nowhere/jobs.json: No such file"),
        (&["job", "broken", "1"], "broken/jobs.json: EOF while parsing"),
        (&["job", "longer", "1"], "longer/jobs.json: its jobs are not those of its arms and runs"),
        (&["job", "endless", "1"], "endless/jobs.json: 1000000000000 runs"),
        (&["job", "foreign", "1"], "foreign/jobs.json: its jobs are for heddle"),
        (&["collect", "changed", "--out", "new"], "changed/plan.toml is another plan than its jobs are of"),
        (&["job", "senseless", "1"], "senseless/plan.toml:16: \"10 Mbit\" has the unknown unit"),
    ] {
        let told = refused(arguments, dir);
        assert!(told.len() == 1 && told[0].contains(said), "{arguments:?}: {told:?}");
    }
    let listed: Value =
        serde_json::from_str(&said(&["jobs", "wires.toml", "--out", "b", "--json"], dir)).unwrap();
    let expected = serde_json::json!({ "number": 4, "run": 1, "arm": "probes", "seed": 2 });
    assert_eq!((&listed["dir"], &listed["jobs"][3]), (&"b".into(), &expected));
}

/// The start of a command that has a network of its own, and ends all that it started when it ends.
const ALONE: [&str; 8] =
    ["--user", "--map-root-user", "--net", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// A server and two workers of HyperQueue, in processes of their own.
#[test]
fn jobs_of_hyperqueue_give_what_one_run_gives_though_a_worker_is_killed() {
    const PYTHON: &str = "/usr/bin/python3";
    let packages: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("hyperqueue");
    let succeeds = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).env("PYTHONPATH", &packages).output().is_ok_and(|end| end.status.success())
    };
    if !succeeds(PYTHON, &["-c", "import hyperqueue, tomllib"]) {
        return not_run(
            "jobs of HyperQueue, for want of its Python package, which `scripts/hyperqueue` installs",
        );
    }
    if !succeeds("unshare", &[&ALONE[..], &["true"]].concat()) {
        return not_run("jobs of HyperQueue, for want of user namespaces to have its servers in");
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("network.toml"), NETWORK).unwrap();
    said(&["run", "network.toml", "--backend", "sim", "--out", "run"], dir);
    said(&["jobs", "network.toml", "--out", "jobs"], dir);
    fs::create_dir(dir.join("state")).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/hyperqueue_peer.py");
    let mut command = Command::new("unshare");
    command.args(ALONE).args([PYTHON, script, "jobs", "state"]).env("PYTHONPATH", &packages);
    // Workers of HyperQueue leave directories of their sockets behind when they are ended.
    command.env("TMPDIR", dir);
    let made = command.current_dir(dir).stdin(Stdio::null()).output().unwrap();
    let told = text(&made.stdout);
    assert!(made.status.success(), "{told}{}", text(&made.stderr));
    assert!(told.contains("killed the worker of job ") && told.contains("6 tasks are over"), "{told}");
    assert_eq!(
        names_in(&dir.join("jobs/results")),
        [1, 2, 3, 4, 5, 6].map(|number| format!("{number}.json"))
    );
    said(&["collect", "jobs", "--out", "merged"], dir);
    assert_same(&dir.join("run"), &dir.join("merged"));
}
