//! Ctrl-C as a flag that every wait in the lab looks at.
//!
//! The first SIGINT or SIGTERM asks for an orderly end: waits return [`Error::Interrupted`], owners
//! are dropped, and with them processes and files. A second one ends the program at once; what
//! `process` and `scratch` promise for killed programs then does the cleaning.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::error::{Error, Result};

static REQUESTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Takes over SIGINT and SIGTERM for the rest of the program. Calling it again changes nothing.
pub fn install() -> Result<()> {
    let mut fresh = false;
    let requested = REQUESTED.get_or_init(|| {
        fresh = true;
        Arc::new(AtomicBool::new(false))
    });
    if !fresh {
        return Ok(());
    }
    for signal in [SIGINT, SIGTERM] {
        // The order matters: the second signal must find the flag already set by the first.
        flag::register_conditional_default(signal, Arc::clone(requested))
            .and_then(|_| flag::register(signal, Arc::clone(requested)))
            .map_err(Error::io("taking over Ctrl-C"))?;
    }
    Ok(())
}

/// Fails with [`Error::Interrupted`] once a signal came. Without [`install`] it never does.
pub fn check() -> Result<()> {
    let requested = REQUESTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed));
    if requested { Err(Error::Interrupted) } else { Ok(()) }
}
