//! Dynamic performance analysis of a running program, after libspe (J. Reardon, "Improving Tor using a TCP-over-DTLS
//! tunnel", master's thesis, 2008, section 4.2): what is looked at is decided while the program runs, without starting
//! it anew.
//!
//! - *Static collection* ([`Collector`]): times and counts at places of the program, into histograms.
//! - *Observees*: structures of a [`Family`], each with the same fields. The program says what there is at a moment
//!   ([`Snapshot`]). Who wants to look, and when, is kept in [`Watches`].
//! - *Observers* ([`Observer`]): small WebAssembly modules that are loaded at run time and make records of what they
//!   are shown. They can do nothing else, and not for long.
//! - *Requests* ([`Request`]): what somebody who looks may ask, a line each.
//!
//! Nothing here has sockets, files, threads or a clock.

mod collector;
mod family;
#[cfg(feature = "observers")]
mod observer;
mod request;
mod watch;

pub use collector::{
    Clock, Collected, Collector, INDICES_MAX, Index, SERIES_MAX, Series, SeriesId, Timer, VALUE_MAX,
};
pub use family::{FIELDS_MAX, Family, Field, ROWS_MAX, Row, Snapshot};
#[cfg(feature = "observers")]
pub use observer::{Ended, FUEL_MAX, Observer, RECORD_MAX, Refused};
pub use request::{LINE_BYTES_MAX, MODULE_BYTES_MAX, Request, Unclear, Which};
pub use watch::{PERIOD_MIN, Watch, WatchId, Watches, When};
