//! What computing costs relays in virtual time: a table as it stands in a file, and the processors that are charged by
//! it. `heddle bench --costs FILE` measures and writes one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use heddle_net::Options as LoopOptions;
use heddle_sim::{Costs, Processors};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::{Error, Result};
use crate::machine::conditions::{Conditions, Noise};

/// More would be a slip of the keyboard: a second, or a millisecond for a byte.
const COST_MAX: u64 = 1_000_000_000;
/// As many as a relay has shards.
const CORES_MAX: usize = 256;
/// How a table that is not right becomes right.
const MEND: &str = "`heddle bench --costs FILE` writes a table for this machine";

/// What each relay of a run has to compute with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// How many cores it has.
    pub cores: usize,
    /// What is charged.
    #[serde(flatten)]
    pub table: CostTable,
}

/// A table of costs, and where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostTable {
    /// The table.
    pub costs: TableCosts,
    /// Who measured it, where somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Made>,
}

/// The costs: those of `heddle_sim::Costs`, by the same names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableCosts {
    /// A turn of the event loop.
    #[serde(deserialize_with = "cost")]
    pub turn_ns: u64,
    /// A call for a stream.
    #[serde(deserialize_with = "cost")]
    pub stream_call_ns: u64,
    /// A byte of one.
    #[serde(deserialize_with = "cost")]
    pub stream_byte_ps: u64,
    /// A call for datagrams.
    #[serde(deserialize_with = "cost")]
    pub datagram_call_ns: u64,
    /// A datagram.
    #[serde(deserialize_with = "cost")]
    pub datagram_ns: u64,
    /// A byte of one.
    #[serde(deserialize_with = "cost")]
    pub datagram_byte_ps: u64,
    /// A job of a worker, by its kind.
    pub jobs_ns: JobCosts,
}

/// What jobs of workers cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobCosts {
    /// The answer to a circuit's handshake.
    #[serde(deserialize_with = "cost")]
    pub onionskin: u64,
    /// The signature of a channel's handshake, with what TLS does around it.
    #[serde(deserialize_with = "cost")]
    pub channel: u64,
}

/// How a table was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Made {
    /// The command as typed.
    pub command: String,
    /// The commit that was checked out.
    pub commit: String,
    /// On what machine.
    pub conditions: Conditions,
    /// How quiet that was.
    pub noise: Noise,
    /// Why the bench that made it is not to be trusted; empty if it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// Of how many loads of relays the costs were fitted to the processor time.
    pub observations: usize,
    /// By how much the processor time of a load differs from what the table charges for it, in percent of the former:
    /// half of them differ by less.
    pub error_pct_median: f64,
    /// The same for the one that differs most.
    pub error_pct_max: f64,
}

fn cost<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<u64, D::Error> {
    let cost = u64::deserialize(deserializer)?;
    match cost <= COST_MAX {
        true => Ok(cost),
        false => {
            Err(D::Error::custom(format!("{cost} is more than {COST_MAX}, the most that a cost may be")))
        }
    }
}

impl Cpu {
    /// So many cores for each relay, and the table of a file.
    ///
    /// # Errors
    ///
    /// One sentence about what is wrong, where, and what helps.
    pub fn read(path: &Path, cores: usize) -> Result<Cpu> {
        if !(1..=CORES_MAX).contains(&cores) {
            return Err(Error::Options(format!("--cores {cores}: a relay has 1 to {CORES_MAX} cores")));
        }
        Ok(Cpu { cores, table: CostTable::read(path)? })
    }

    /// What the simulator charges.
    pub(crate) fn processors(&self) -> Processors {
        let TableCosts {
            turn_ns,
            stream_call_ns,
            stream_byte_ps,
            datagram_call_ns,
            datagram_ns,
            datagram_byte_ps,
            jobs_ns: JobCosts { onionskin, channel },
        } = self.table.costs;
        let jobs_ns = BTreeMap::from([("onionskin".to_owned(), onionskin), ("channel".to_owned(), channel)]);
        Processors {
            cores: self.cores,
            costs: Costs {
                turn_ns,
                stream_call_ns,
                stream_byte_ps,
                datagram_call_ns,
                datagram_ns,
                datagram_byte_ps,
                jobs_ns,
            },
            turns_apart: LoopOptions::default().turns_apart,
        }
    }

    /// What a result says of it.
    pub(crate) fn told(&self) -> String {
        let Cpu { cores, table: CostTable { costs, made } } = self;
        let TableCosts { turn_ns, stream_call_ns, stream_byte_ps, .. } = costs;
        let TableCosts { datagram_call_ns, datagram_ns, datagram_byte_ps, jobs_ns, .. } = costs;
        let unit = if *cores == 1 { "core" } else { "cores" };
        let by = made.as_ref().map_or("a table that nobody measured".to_owned(), |made| {
            let Made { conditions: Conditions { processor, .. }, error_pct_median, error_pct_max, .. } = made;
            let doubts = match made.reasons.is_empty() {
                true => String::new(),
                false => format!(" and whose bench was NOT VALID ({})", made.reasons.join("; ")),
            };
            format!(
                "a table made on {processor} at load {}, whose error is {error_pct_median:.1} % in half of the loads \
                 that it was fitted to and {error_pct_max:.1} % in the worst{doubts}",
                made.noise.load_before
            )
        });
        format!(
            "each relay has {cores} {unit} and is charged by {by}: {turn_ns} ns a turn, {stream_call_ns} ns a call \
             and {stream_byte_ps} ps a byte of streams, {datagram_call_ns} ns a call, {datagram_ns} ns a datagram and \
             {datagram_byte_ps} ps a byte of datagrams, {} ns an onionskin and {} ns a channel's signature; nobody \
             else is charged, and there are no figures of memory",
            jobs_ns.onionskin, jobs_ns.channel
        )
    }
}

impl CostTable {
    /// Reads a table.
    ///
    /// # Errors
    ///
    /// One sentence with the file, the line and what helps.
    pub(crate) fn read(path: &Path) -> Result<CostTable> {
        let file = path.display();
        let refused = |what: String| Error::Options(format!("{file}{what}; {MEND}"));
        let text = fs::read_to_string(path).map_err(|error| refused(format!(" cannot be read: {error}")))?;
        serde_json::from_str(&text).map_err(|error| {
            let what = error.to_string();
            let what = what.split(" at line ").next().unwrap_or(&what);
            refused(format!(":{}: {what}", error.line()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = r#"{
  "costs": {
    "turn_ns": 1,
    "stream_call_ns": 2,
    "stream_byte_ps": 3,
    "datagram_call_ns": 4,
    "datagram_ns": 5,
    "datagram_byte_ps": 6,
    "jobs_ns": { "onionskin": 7, "channel": 8 }
  }
}
"#;

    fn read(text: &str, cores: usize) -> Result<Cpu> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("costs.json");
        fs::write(&file, text).unwrap();
        Cpu::read(&file, cores)
    }

    #[test]
    fn a_table_is_what_the_simulator_charges() {
        let Processors { cores, costs, turns_apart } = read(TABLE, 2).unwrap().processors();
        assert_eq!((cores, turns_apart.as_millis()), (2, 1));
        let Costs { turn_ns, stream_call_ns, stream_byte_ps, .. } = costs;
        assert_eq!([turn_ns, stream_call_ns, stream_byte_ps], [1, 2, 3]);
        assert_eq!([costs.datagram_call_ns, costs.datagram_ns, costs.datagram_byte_ps], [4, 5, 6]);
        assert_eq!((costs.jobs_ns["onionskin"], costs.jobs_ns["channel"], costs.jobs_ns.len()), (7, 8, 2));
    }

    #[test]
    fn a_table_that_is_not_right_is_refused_with_its_line() {
        let refused = |from: &str, to: &str| {
            let error = read(&TABLE.replace(from, to), 1).unwrap_err().to_string();
            assert!(error.ends_with(MEND), "{error}");
            error.rsplit_once("costs.json").unwrap().1.to_owned()
        };
        assert!(refused("\"turn_ns\": 1", "\"turn_ns\": -1").starts_with(":3: invalid value: integer `-1`"));
        assert!(refused("\"turn_ns\": 1,", "").starts_with(":10: missing field `turn_ns`"));
        assert!(refused("datagram_ns", "datagrams_ns").starts_with(":7: unknown field `datagrams_ns`"));
        assert!(
            refused("\"channel\": 8", "\"channel\": 8000000000").starts_with(":9: 8000000000 is more than")
        );
        assert!(refused(TABLE, "").starts_with(":1: EOF while parsing"));
        let error = Cpu::read(Path::new("/nowhere/costs.json"), 1).unwrap_err().to_string();
        assert!(
            error.starts_with("/nowhere/costs.json cannot be read: ") && error.ends_with(MEND),
            "{error}"
        );
        assert!(read(TABLE, 0).unwrap_err().to_string().starts_with("--cores 0: "));
    }
}
