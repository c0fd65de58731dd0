//! `--trace`: what goes over the wires in virtual time, and what happens to circuits, in files.

use clap::Args;
use heddle_lab::error::Result;
use heddle_lab::trace::{Trace, TraceOptions, Traced};
use std::path::{Path, PathBuf};

/// The most that a trace takes unless somebody wants another bound.
const BYTES_MAX: u64 = 500_000_000;

#[derive(Clone, Debug, Args)]
pub(crate) struct TraceArgs {
    /// Writes what goes over each wire (pcapng) and what happens to each circuit (JSON) into this directory, which is
    /// made or is empty.
    #[arg(long, value_name = "DIR")]
    trace: Option<PathBuf>,
    /// Only this wire, named by its hosts as in A-B, of which * stands for anything; may be given several times.
    #[arg(long, value_name = "NAME", requires = "trace")]
    trace_wire: Vec<String>,
    /// Of each packet only the headers: two traces of one seed are the same to the byte then, which ciphertext is not.
    #[arg(long, requires = "trace")]
    trace_headers: bool,
    /// Only this circuit, by the number that it has in circuits.jsonl; may be given several times.
    #[arg(long, value_name = "N", requires = "trace")]
    trace_circuit: Vec<u64>,
    /// The most bytes of all files together. Default: 500000000.
    #[arg(long, value_name = "BYTES", requires = "trace")]
    trace_bytes_max: Option<u64>,
}

impl TraceArgs {
    /// The directory, if a trace is wanted.
    pub(crate) fn dir(&self) -> Option<&Path> {
        self.trace.as_deref()
    }

    /// Begins the trace that is wanted, if one is.
    pub(crate) fn begin(self) -> Result<Option<Trace>> {
        let TraceArgs { trace, trace_wire, trace_headers, trace_circuit, trace_bytes_max } = self;
        let Some(dir) = trace else { return Ok(None) };
        let options = TraceOptions {
            dir,
            wires: trace_wire,
            headers_only: trace_headers,
            circuits: trace_circuit,
            bytes_max: trace_bytes_max.unwrap_or(BYTES_MAX),
        };
        Trace::begin(options).map(Some)
    }
}

/// Ends a trace and says on standard error, because a program may read the rest, what was written.
pub(crate) fn end(trace: &Trace) -> Result<()> {
    eprintln!("{}", told(&trace.end()?));
    Ok(())
}

fn told(Traced { files, bytes, full_at }: &Traced) -> String {
    let written = format!("trace: {files} files of {bytes} bytes together");
    match full_at {
        Some(at) => format!(
            "{written}; the bound was reached after {:.3} s of virtual time, and what came later is not in it: choose \
             wires or circuits, or another --trace-bytes-max",
            at.as_secs_f64()
        ),
        None => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_trace_that_is_cut_off_says_so() {
        let whole = Traced { files: 3, bytes: 100, full_at: None };
        assert_eq!(told(&whole), "trace: 3 files of 100 bytes together");
        let cut = told(&Traced { full_at: Some(Duration::from_millis(1500)), ..whole });
        assert!(cut.contains("after 1.500 s of virtual time") && cut.contains("--trace-bytes-max"), "{cut}");
    }
}
