//! What goes over the wires of a network in virtual time, and what happens to its circuits, in files of one directory:
//!
//! - `A-B.pcapng` for each wire over which something goes, as [`heddle_netem::pcapng`] has it. Times count from the
//!   beginning of virtual time.
//! - `circuits.jsonl`, a line for whatever happens to a circuit at a relay.
//!
//! Nothing that happens depends on it. One seed gives one trace, to the byte but for ciphertext: libraries draw keys
//! of their own.

mod circuits;
mod files;
mod wires;

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use heddle_network::whole::CircuitLogs;
use heddle_seam::language::Language;
use heddle_sim::{HostId, Simulation};

use crate::error::{Error, Result};
use circuits::Circuits;
use files::Files;
use wires::Wires;

/// The file of what happens to circuits.
const CIRCUITS: &str = "circuits.jsonl";

/// What is written, and where.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// A directory that is made, or is empty.
    pub dir: PathBuf,
    /// Only these wires, each by its hosts, as in `guard-middle`, of which `*` stands for anything. None: all.
    pub wires: Vec<String>,
    /// Of each packet only the headers, so that there is no ciphertext.
    pub headers_only: bool,
    /// Only these circuits, by their numbers. None: all.
    pub circuits: Vec<u64>,
    /// The most bytes of all files together.
    pub bytes_max: u64,
}

/// A trace under way, of one network: the first that it is attached to.
#[derive(Clone, Debug)]
pub struct Trace {
    options: TraceOptions,
    files: Arc<Mutex<Files>>,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    pub files: usize,
    pub bytes: u64,
    /// When the bound was reached, in virtual time, and nothing was written any more.
    pub full_at: Option<Duration>,
}

impl Trace {
    /// Makes the directory.
    ///
    /// # Errors
    ///
    /// When it cannot be made, or has files already.
    pub fn begin(options: TraceOptions) -> Result<Trace> {
        let dir = &options.dir;
        let doing = || format!("making {} for a trace", dir.display());
        fs::create_dir_all(dir).map_err(Error::io(doing()))?;
        if fs::read_dir(dir).map_err(Error::io(doing()))?.next().is_some() {
            let what = format!("{} has files already; a trace needs a directory of its own", dir.display());
            return Err(Error::Options(what));
        }
        let files = Arc::new(Mutex::new(Files::new(dir, options.bytes_max)));
        Ok(Trace { options, files })
    }

    /// Looks at all wires of a network from now on, whose hosts are called so. Returns what is to be lent to its
    /// relays; `None` where another network is being traced already.
    ///
    /// # Errors
    ///
    /// When no wire is called as one that was asked for.
    pub fn attach<L: Language>(
        &self,
        sim: &mut Simulation<L>,
        names: &[String],
    ) -> Result<Option<CircuitLogs>> {
        let wires = Wires::new(&self.options, names, Arc::clone(&self.files))?;
        let Some(file) = locked(&self.files).first(CIRCUITS) else { return Ok(None) };
        sim.watch_wires(Box::new(wires));
        let mut by_addr: BTreeMap<IpAddr, String> = BTreeMap::new();
        for (number, name) in names.iter().enumerate() {
            by_addr.extend(sim.addrs(HostId(number)).iter().map(|addr| (*addr, name.clone())));
        }
        let circuits = Circuits::new(&self.options.circuits, by_addr, (Arc::clone(&self.files), file));
        let (circuits, names) = (Arc::new(Mutex::new(circuits)), names.to_vec());
        Ok(Some(Box::new(move |host: HostId, shard| circuits::log(&circuits, &names[host.0], shard))))
    }

    /// Writes what waits.
    ///
    /// # Errors
    ///
    /// When something could not be written, now or before.
    pub fn end(&self) -> Result<Traced> {
        let doing = format!("writing a trace to {}", self.options.dir.display());
        locked(&self.files).end().map_err(Error::io(doing))
    }
}

/// What is written goes on also where a run broke off.
fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
