//! Log lines as stock Tor writes them, where the torrc's `Log` lines send them.

use crate::torrc::{Log, LogTarget, Severity};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use time::OffsetDateTime;
use time::macros::format_description;

static LOGGER: OnceLock<Logger> = OnceLock::new();

struct Logger {
    sinks: Mutex<Vec<Sink>>,
}

struct Sink {
    min: Severity,
    max: Severity,
    output: Sunk,
}

enum Sunk {
    Stdout,
    Stderr,
    File(PathBuf, File),
}

/// Sends the program's log where `lines` say; without any, notices go to standard output, as with
/// stock Tor. Fails when a log file cannot be opened. To be called once.
pub fn start(lines: &[Log]) -> Result<(), String> {
    let default = [Log { min: Severity::Notice, max: Severity::Err, target: LogTarget::Stdout }];
    let lines = if lines.is_empty() { &default[..] } else { lines };
    let sinks = lines.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let logger = LOGGER.get_or_init(|| Logger { sinks: Mutex::new(sinks) });
    if log::set_logger(logger).is_ok() {
        log::set_max_level(log::LevelFilter::Debug);
    }
    Ok(())
}

/// Opens the log files anew, after somebody moved them away, and says which it could not: there what was open goes on.
pub(crate) fn reopen() -> Vec<String> {
    let mut failures = Vec::new();
    let Some(logger) = LOGGER.get() else { return failures };
    for sink in logger.sinks.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
        if let Sunk::File(path, file) = &mut sink.output {
            match append(path) {
                Ok(new) => *file = new,
                Err(error) => failures.push(cannot_be_opened(path, &error)),
            }
        }
    }
    failures
}

/// Logs why the program ends, which its `main` says on standard error besides: not there again, and on no terminal,
/// which shows both.
pub(crate) fn say_last(error: &impl fmt::Display) {
    let Some(logger) = LOGGER.get() else { return };
    let (severity, name) = severity(log::Level::Error);
    logger.write(severity, name, format_args!("{error}"), |output| match output {
        Sunk::Stdout => !io::stdout().is_terminal(),
        Sunk::Stderr => false,
        Sunk::File(..) => true,
    });
}

fn cannot_be_opened(path: &Path, error: &io::Error) -> String {
    format!("the log file {} cannot be opened: {error}; check the Log line", path.display())
}

fn open(line: &Log) -> Result<Sink, String> {
    let output = match &line.target {
        LogTarget::Stdout => Sunk::Stdout,
        // Under systemd, standard error is the system's log.
        LogTarget::Stderr | LogTarget::Syslog => Sunk::Stderr,
        LogTarget::File(path) => {
            let file = append(path).map_err(|error| cannot_be_opened(path, &error))?;
            Sunk::File(path.clone(), file)
        }
    };
    Ok(Sink { min: line.min, max: line.max, output })
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o640).open(path)
}

/// The severity of stock Tor that a level of the `log` crate stands for.
fn severity(level: log::Level) -> (Severity, &'static str) {
    match level {
        log::Level::Error => (Severity::Err, "err"),
        log::Level::Warn => (Severity::Warn, "warn"),
        log::Level::Info => (Severity::Notice, "notice"),
        log::Level::Debug => (Severity::Info, "info"),
        log::Level::Trace => (Severity::Debug, "debug"),
    }
}

impl Logger {
    /// Writes a line where messages of its severity go, as far as `takes` has it.
    fn write(
        &self,
        severity: Severity,
        name: &str,
        message: fmt::Arguments<'_>,
        takes: impl Fn(&Sunk) -> bool,
    ) {
        let form =
            format_description!("[month repr:short] [day] [hour]:[minute]:[second].[subsecond digits:3]");
        let now = OffsetDateTime::now_utc().format(form).unwrap_or_default();
        let line = format!("{now} [{name}] {message}\n");
        let mut sinks = self.sinks.lock().unwrap_or_else(PoisonError::into_inner);
        let in_range = sinks.iter_mut().filter(|sink| sink.min <= severity && severity <= sink.max);
        for sink in in_range.filter(|sink| takes(&sink.output)) {
            // A full disk or a closed terminal is no reason to stop a relay.
            let _ = match &mut sink.output {
                Sunk::Stdout => io::stdout().write_all(line.as_bytes()),
                Sunk::Stderr => io::stderr().write_all(line.as_bytes()),
                Sunk::File(_, file) => file.write_all(line.as_bytes()),
            };
        }
    }
}

impl log::Log for Logger {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        // Libraries chatter; the relay's own words are what an operator asked for.
        metadata.target().starts_with("heddle")
    }

    fn log(&self, record: &log::Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let (severity, name) = severity(record.level());
        self.write(severity, name, *record.args(), |_| true);
    }

    fn flush(&self) {}
}
