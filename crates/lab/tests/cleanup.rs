//! A program that is killed leaves no process and no file of its lab behind.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use heddle_lab::machine::process::Process;
use heddle_lab::machine::scratch::Scratch;

/// Set in the environment of the program that is going to be killed.
const VICTIM: &str = "HEDDLE_LAB_TEST_VICTIM";

/// Not a test by itself: what [`killing_the_program_cleans_up`] runs in a second program.
#[test]
fn victim() {
    if env::var_os(VICTIM).is_none() {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let mut command = Command::new("sleep");
    command.arg("600");
    let process = Process::spawn("sleeper", command, &scratch.path().join("log")).unwrap();
    println!("victim {} {}", process.pid(), scratch.path().display());
    loop {
        thread::park();
    }
}

#[test]
fn killing_the_program_cleans_up() {
    let mut victim = Command::new(env::current_exe().unwrap())
        .args(["--exact", "victim", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let said = lines.map(Result::unwrap).find(|line| line.contains("victim ")).unwrap();
    let words: Vec<&str> = said.rsplit("victim ").next().unwrap().split(' ').collect();
    let (process, scratch) = (format!("/proc/{}", words[0]), words[1].to_owned());
    assert!(Path::new(&process).exists() && Path::new(&scratch).exists());
    victim.kill().unwrap();
    victim.wait().unwrap();
    let start = Instant::now();
    while Path::new(&process).exists() || Path::new(&scratch).exists() {
        assert!(start.elapsed() < Duration::from_secs(20), "{process} or {scratch} is left");
        thread::sleep(Duration::from_millis(5));
    }
}
