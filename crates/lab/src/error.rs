//! What can go wrong in a lab, and whose doing it was.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The result of anything the lab does.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the lab gave up. Every one of these ends the network or run it happened in.
#[derive(Debug)]
pub enum Error {
    /// Somebody pressed Ctrl-C (or sent SIGTERM).
    Interrupted,
    /// A program the lab needs is not installed.
    MissingProgram {
        /// The program's name, or the path that was asked for.
        name: String,
        /// How to get it.
        hint: &'static str,
    },
    /// The machine, or this user on it, cannot do what was asked for: what is missing, and how to get it.
    Lacking(String),
    /// The system refused something.
    Io {
        /// What was being done, to be read after "while".
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// Something did not happen in time.
    Deadline {
        /// What was waited for.
        waiting_for: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// A peer answered that it would not.
    Refused {
        /// Who refused.
        by: &'static str,
        /// Its own words.
        said: String,
    },
    /// A peer sent what its protocol does not allow.
    Malformed {
        /// Who sent it.
        by: &'static str,
        /// What it sent.
        sent: String,
    },
    /// A process of the network ended by itself.
    Exited {
        /// The process' name in the network.
        process: String,
        /// How it ended.
        status: String,
        /// The end of its log.
        log: String,
        /// The configuration it ran with.
        torrc: PathBuf,
    },
    /// The caller asked for something that cannot be.
    Options(String),
}

impl Error {
    /// Wraps a system error; `doing` is read after "while".
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let doing = doing.into();
        move |source| Error::Io { doing, source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Interrupted => write!(f, "interrupted"),
            Error::MissingProgram { name, hint } => write!(f, "{name} was not found: {hint}"),
            Error::Io { doing, source } => write!(f, "while {doing}: {source}"),
            Error::Deadline { waiting_for, after } => {
                write!(f, "{waiting_for} did not happen within {:.1} s", after.as_secs_f64())
            }
            Error::Refused { by, said } => write!(f, "{by} refused: {said}"),
            Error::Malformed { by, sent } => write!(f, "{by} sent what it should not: {sent:?}"),
            Error::Exited { process, status, log, torrc } => {
                write!(
                    f,
                    "{process} ended by itself ({status}); configured by {}; its log ends:\n{log}",
                    torrc.display()
                )
            }
            Error::Lacking(what) | Error::Options(what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
