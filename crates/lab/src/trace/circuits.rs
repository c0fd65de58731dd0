//! What happens to circuits, a line of JSON for each time.
//!
//! A circuit has one number at all relays, in the order in which clients asked for them. A relay that is asked with a
//! CREATE2 which another relay sent has the circuit of that one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use heddle_proto::cell::{Body, CircId, Command};
use heddle_proto::credit::CreditMessage;
use heddle_relay::{CircuitLog, EndedBy, Happened, Neighbour, What};
use heddle_seam::time::Instant;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::files::Files;
use super::locked;

/// A line.
#[derive(Serialize)]
struct Line<'a> {
    at_ns: u64,
    circuit: Option<u64>,
    relay: &'a str,
    shard: u16,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    direction: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    neighbour: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    over: Option<&'static str>,
    link: u64,
    circ_id: CircIdText,
    #[serde(skip_serializing_if = "Option::is_none")]
    queued_cells: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    granted_cells: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'static str>,
}

/// A circuit id as logs have it.
struct CircIdText(CircId);

impl Serialize for CircIdText {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// A shard of a relay.
type Shard = (String, u16);

/// What is known of the circuits of all relays.
pub(super) struct Circuits {
    /// Those that are wanted; all, if there are none.
    wanted: BTreeSet<u64>,
    by_addr: BTreeMap<IpAddr, String>,
    files: Arc<Mutex<Files>>,
    file: usize,
    /// The number of the next circuit.
    next: u64,
    /// Circuits that are asked for, by what they are asked with.
    asked: BTreeMap<[u8; 32], u64>,
    /// The circuits of shards, by what these call them.
    at_shards: BTreeMap<(Shard, u64), u64>,
    /// The circuits whose places on links have not been given up, and whether they go on there.
    on_links: BTreeMap<(Shard, u64, CircId), (u64, bool)>,
}

impl Circuits {
    pub(super) fn new(
        wanted: &[u64],
        by_addr: BTreeMap<IpAddr, String>,
        (files, file): (Arc<Mutex<Files>>, usize),
    ) -> Circuits {
        Circuits {
            wanted: wanted.iter().copied().collect(),
            by_addr,
            files,
            file,
            next: 0,
            asked: BTreeMap::new(),
            at_shards: BTreeMap::new(),
            on_links: BTreeMap::new(),
        }
    }

    fn write(&mut self, at: Instant, shard: &Shard, happened: &Happened<'_>) {
        let Happened { circuit: key, link, circ_id, what, .. } = *happened;
        let place = (shard.clone(), link, circ_id);
        let known = self.on_links.get(&place).copied();
        let at_shard = key.and_then(|key| self.at_shards.get(&(shard.clone(), key)).copied());
        let mut circuit = at_shard.or(known.map(|(circuit, _)| circuit));
        let mut line = self.line(at, shard, happened);
        match what {
            What::Opened { command, body } => {
                let number = self.number(body);
                circuit = Some(number);
                self.at_shards.extend(key.map(|key| ((shard.clone(), key), number)));
                self.on_links.insert(place, (number, false));
                (line.event, line.command) = ("opened", Some(command.to_string()));
                line.direction = Some("forward");
            }
            What::Refused { reason } => {
                circuit = None;
                (line.event, line.reason) = ("refused", Some(reason.to_string()));
            }
            What::CellIn { command, is_forward, queued_cells, reason } => {
                (line.command, line.direction) = (Some(command.to_string()), direction(is_forward));
                line.queued_cells = Some(queued_cells);
                line.reason = reason.map(|reason| reason.to_string());
                if command == Command::DESTROY {
                    self.on_links.remove(&place);
                }
            }
            What::CellOut { command, is_forward, queued_cells, body } => {
                line.event = "out";
                (line.command, line.direction) = (Some(command.to_string()), direction(is_forward));
                line.queued_cells = Some(queued_cells);
                if let Some(number) = circuit.filter(|_| command == Command::CREATE2) {
                    self.asked.insert(digest(body), number);
                    self.on_links.insert(place, (number, true));
                }
            }
            What::CreditIn { message, is_forward } | What::CreditOut { message, is_forward } => {
                line.event = if matches!(what, What::CreditIn { .. }) { "in" } else { "out" };
                let (name, granted_cells) = credit(message);
                (line.command, line.direction) = (Some(name.to_owned()), direction(is_forward));
                line.granted_cells = granted_cells;
            }
            What::DestroyOut { reason } => {
                (line.event, line.command) = ("out", Some(Command::DESTROY.to_string()));
                line.direction = known.and_then(|(_, goes_on)| direction(goes_on));
                line.reason = Some(reason.to_string());
                self.on_links.remove(&place);
            }
            What::Destroyed { reason, by } => {
                (line.event, line.reason) = ("destroyed", Some(reason.to_string()));
                line.by = Some(ended_by(by));
                key.and_then(|key| self.at_shards.remove(&(shard.clone(), key)));
            }
        }
        line.circuit = circuit;
        if self.wanted.is_empty() || circuit.is_some_and(|circuit| self.wanted.contains(&circuit)) {
            let mut text = serde_json::to_vec(&line).expect("a line has nothing that JSON has not");
            text.push(b'\n');
            locked(&self.files).append(at, self.file, &text);
        }
    }

    /// What any line of this has.
    fn line<'a>(&self, at: Instant, shard: &'a Shard, happened: &Happened<'_>) -> Line<'a> {
        let (neighbour, over) = self.describe(happened.neighbour);
        Line {
            at_ns: at.as_nanos(),
            circuit: None,
            relay: &shard.0,
            shard: shard.1,
            event: "in",
            command: None,
            direction: None,
            neighbour,
            over,
            link: happened.link,
            circ_id: CircIdText(happened.circ_id),
            queued_cells: None,
            granted_cells: None,
            reason: None,
            by: None,
        }
    }

    /// The number of a circuit that is asked for with this cell.
    fn number(&mut self, body: &Body) -> u64 {
        self.asked.remove(&digest(body)).unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// The name of a neighbour, and over what it is one.
    fn describe(&self, neighbour: Neighbour) -> (Option<String>, Option<&'static str>) {
        match neighbour {
            Neighbour::At { addr, transport } => {
                let name = self.by_addr.get(&addr.ip()).cloned();
                (Some(name.unwrap_or_else(|| addr.to_string())), Some(transport))
            }
            Neighbour::Shard(shard) => (Some(format!("shard {}", shard.0)), None),
            Neighbour::Nobody => (None, None),
        }
    }
}

fn direction(is_forward: bool) -> Option<&'static str> {
    Some(if is_forward { "forward" } else { "backward" })
}

/// What a word of credit is called beside the commands of cells, and up to which cell it grants.
fn credit(message: CreditMessage) -> (&'static str, Option<u64>) {
    match message {
        CreditMessage::Granted { cells } => ("credit", Some(cells)),
        CreditMessage::Asked => ("credit asked", None),
    }
}

fn ended_by(by: EndedBy) -> &'static str {
    match by {
        EndedBy::Behind => "behind",
        EndedBy::Ahead => "ahead",
        EndedBy::Us => "us",
    }
}

fn digest(body: &Body) -> [u8; 32] {
    Sha256::digest(body).into()
}

/// Who hears what happens at one shard.
struct ShardLog {
    circuits: Arc<Mutex<Circuits>>,
    shard: Shard,
}

impl CircuitLog for ShardLog {
    fn on_circuit(&mut self, at: Instant, happened: &Happened<'_>) {
        locked(&self.circuits).write(at, &self.shard, happened);
    }
}

/// Somebody who hears what happens at a shard whose process begins.
pub(super) fn log(circuits: &Arc<Mutex<Circuits>>, relay: &str, shard: u16) -> Box<dyn CircuitLog> {
    let shard = (relay.to_owned(), shard);
    let mut known = locked(circuits);
    // What an earlier process called so is another's.
    known.at_shards.retain(|(of, _), _| *of != shard);
    known.on_links.retain(|(of, ..), _| *of != shard);
    drop(known);
    Box::new(ShardLog { circuits: Arc::clone(circuits), shard })
}
