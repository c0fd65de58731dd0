//! Makes the book's measurements: each by this program itself, in a process of its own, one after the other.
//!
//! What a measurement gave lies in a directory named for the commit and for it, and is never made twice: so a book that
//! was interrupted goes on where it was, and nobody chooses among several tries.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::draw::DOCS;
use super::record::{end_attempt, note_aims, note_attempt};
use super::{Book, Record, Wanted};
use crate::error::{Error, Result};
use crate::machine::conditions::{commit, wait_until_quiet};
use crate::machine::interrupt;
use crate::machine::process::{Process, Signal};
use crate::results::Summary;

/// How much longer than it should a measurement may take.
const PATIENCE: u32 = 4;
/// How long is waited for a quiet machine before each measurement that is not in virtual time. What it was like then is
/// told in any case.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(300);
/// How often one is begun at most: a plan begins no run that its budget has no room for, and goes on so. What has made
/// no run is not begun again.
const ATTEMPTS_MAX: usize = 3;
/// How long one may take to clean up after Ctrl-C.
const END_MAX: Duration = Duration::from_secs(60);

/// How measurements are made.
#[derive(Clone, Debug)]
pub struct MeasureOptions {
    /// This program.
    pub heddle: PathBuf,
    /// Below it each commit has a directory.
    pub out: PathBuf,
    /// Only these measurements. Default, when it is empty: all.
    pub only: Vec<String>,
    /// Whether files may differ from the commit. The figures are of no commit then, and say so.
    pub allow_dirty: bool,
}

/// What happens while a book is made.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// It was measured at this commit before.
    Known(&'a Wanted),
    /// The machine was used by others for all the time that was waited for it.
    Disturbed(&'a Wanted),
    /// It begins, and from here on all take about so long.
    Begins(&'a Wanted, Duration),
    /// It has ended, and its results can be read. Whether they may be trusted.
    Ended(&'a Wanted, bool),
    /// It has ended without results, and this file tells why.
    Failed(&'a Wanted, &'a Path),
}

/// Makes what has not been made at this commit. Returns where the results are, and how many measurements gave none.
///
/// # Errors
///
/// [`Error::Options`] where files differ from the commit or a name is unknown, [`Error::Interrupted`] after Ctrl-C.
pub fn measure(
    book: &Book,
    options: &MeasureOptions,
    on_step: &mut dyn FnMut(Step<'_>),
) -> Result<(PathBuf, usize)> {
    interrupt::install()?;
    let commit = commit();
    if !options.allow_dirty && (commit.contains('-') || commit == "unknown") {
        return Err(Error::Options(format!(
            "a book is of one commit, and the checkout here is {commit}: commit what was changed, or say --allow-dirty"
        )));
    }
    if let Some(unknown) = options.only.iter().find(|name| book.wanted(name).is_none()) {
        return Err(Error::Options(format!(
            "no measurement of the book is called {unknown:?}; see heddle lab book list"
        )));
    }
    let dir = options.out.join(&commit);
    let is_chosen = |wanted: &&Wanted| options.only.is_empty() || options.only.contains(&wanted.name);
    let chosen: Vec<&Wanted> = book.measurements.iter().filter(is_chosen).collect();
    let (known, to_make): (Vec<&Wanted>, Vec<&Wanted>) =
        chosen.into_iter().partition(|wanted| is_made(&dir.join(&wanted.name)));
    known.into_iter().for_each(|wanted| on_step(Step::Known(wanted)));
    let mut failed = 0;
    for (place, wanted) in to_make.iter().enumerate() {
        if !wanted.is_in_virtual_time() && !wait_until_quiet(QUIET_WAIT_MAX, &mut interrupt::check)? {
            on_step(Step::Disturbed(wanted));
        }
        on_step(Step::Begins(wanted, to_make[place..].iter().map(|wanted| wanted.time()).sum()));
        let of_it = dir.join(&wanted.name);
        match make_all(wanted, &options.heddle, &of_it) {
            // One that takes far too long is no reason to leave out those after it.
            Ok(_) | Err(Error::Deadline { .. }) => {}
            Err(error) => return Err(error),
        }
        match Summary::read(&of_it) {
            Ok(summary) if is_made(&of_it) => on_step(Step::Ended(wanted, summary.valid)),
            _ => {
                failed += 1;
                on_step(Step::Failed(wanted, &log_of(&of_it)));
            }
        }
    }
    Ok((dir, failed))
}

/// Whether it came to its end, whatever that was.
fn is_made(dir: &Path) -> bool {
    Summary::read(dir).is_ok_and(|summary| !summary.is_cut_short())
}

/// The file that has what the program said when it was called the last time.
fn log_of(dir: &Path) -> PathBuf {
    dir.with_extension("log")
}

/// Calls this program until all runs are made, where its time alone has no room for them. What an error has ended stays
/// as it is: to begin anew would be to choose among tries.
pub(super) fn make_all(wanted: &Wanted, heddle: &Path, dir: &Path) -> Result<()> {
    let runs = || Summary::read(dir).map_or(0, |summary| summary.seeds.len());
    let may_go_on = || Summary::read(dir).is_ok_and(|summary| summary.ran_out_of_time()) && can_resume(dir);
    for _ in 0..ATTEMPTS_MAX {
        let before = runs();
        make(wanted, heddle, dir)?;
        if runs() <= before || !may_go_on() {
            break;
        }
    }
    Ok(())
}

/// Whether there are results of a plan, to which runs can be added. The summary is written last.
fn can_resume(dir: &Path) -> bool {
    ["plan.toml", "summary.json"].iter().all(|name| dir.join(name).exists())
}

/// Calls this program.
fn make(wanted: &Wanted, heddle: &Path, dir: &Path) -> Result<()> {
    let above = dir.parent().unwrap_or(dir);
    fs::create_dir_all(above).map_err(Error::io(format!("making {}", above.display())))?;
    let mut command = Command::new(heddle);
    command.args(wanted.command.split_whitespace()).arg("--out").arg(dir);
    if can_resume(dir) {
        command.arg("--resume");
    }
    let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    note_aims(dir, &wanted.aims)?;
    let noted = note_attempt(dir, began)?;
    let mut process = Process::spawn(&wanted.name, command, &log_of(dir))
        .inspect_err(|error| drop(end_attempt(dir, noted, error.to_string())))?;
    let waited = process.wait_exit(PATIENCE * wanted.time());
    let ended = waited.as_ref().map_or_else(ToString::to_string, ToString::to_string);
    end_attempt(dir, noted, ended)?;
    match waited {
        Ok(_) => Ok(()),
        Err(error) => {
            // It takes its hosts and relays away by itself, if it is asked to.
            let _ = process.signal(Signal::Int);
            let _ = wait_after_interrupt(&mut process);
            Err(error)
        }
    }
}

/// Waits for the end of a process although Ctrl-C was pressed.
fn wait_after_interrupt(process: &mut Process) -> Result<()> {
    let begun = std::time::Instant::now();
    while process.exited()?.is_none() && begun.elapsed() < END_MAX {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Keeps what was measured below `dir` as records in the book's directory of a repository.
///
/// # Errors
///
/// When what was measured cannot be read, or a record cannot be written.
pub fn collect(book: &Book, dir: &Path, root: &Path) -> Result<usize> {
    let mut count = 0;
    for wanted in &book.measurements {
        let of_it = dir.join(&wanted.name);
        if of_it.join("summary.json").exists() {
            Record::of(wanted, &of_it)?.write(&root.join(DOCS))?;
            count += 1;
        }
    }
    Ok(count)
}
