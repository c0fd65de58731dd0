//! What a cell costs a middle relay, in instructions, whatever else the machine does:
//! `cargo bench -p heddle-network --bench cells` has callgrind count them for each transport and each way, and again
//! with those who may look into the relay. With `-- --json` a program can read it; `-- quic` is that transport alone,
//! `-- quic-null` the same with links that do not encrypt, and `-- 8000` carries so many cells. They come together, as
//! to a relay that has much to do; with `-- --one-by-one` they come apart.
//!
//! A network in virtual time runs under callgrind, and carries cells twice: what is told is of the second time, when
//! handshakes are over and all buffers have their size. Only the middle is counted, without a kernel.

mod callgrind;
mod network;
#[path = "../../../heddle/src/relay/observe/times.rs"]
#[allow(unused_imports, reason = "its tests have imports of their own")]
mod times;

use callgrind::{Counted, count};
use heddle_seam::stopwatch::Step;
use heddle_transport::Ciphers;
use network::{Case, END_OF_PART, MIDDLES, Observer, Way, relay};
use std::process::ExitCode;

/// The program's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Cells of data, each time.
const CELLS: u64 = 3_000;
/// The option with which cells do not come together.
const ONE_BY_ONE: &str = "--one-by-one";
const LINKS: [&str; 2] = ["tls", "quic"];

/// The metrics' times, of which this program has none.
enum Timings {}

impl Timings {
    fn took(&self, _: Step, _: u64, _: u64) {
        match *self {}
    }
}

/// What a cell costs.
struct Cost {
    links: String,
    way: Way,
    observer: Observer,
    /// Cells that the middle sent meanwhile.
    cells: u64,
    instructions: f64,
    allocations: f64,
    copies: f64,
    by_library: Vec<(String, f64)>,
}

#[allow(clippy::disallowed_methods, reason = "a program takes arguments")]
fn main() -> ExitCode {
    // What cargo adds is not for this program.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["run", links, cells, wires] => run(links, cells, wires),
        _ => measure(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// The ways, and for each way who looks. Nobody does at the beginning and at the end, which tells how far counts differ
/// by themselves.
fn cases() -> impl Iterator<Item = (Way, Observer)> {
    let observers = || Observer::ALL.into_iter().chain([Observer::None]);
    [Way::Down, Way::Up].into_iter().flat_map(move |way| observers().map(move |observer| (way, observer)))
}

/// What is run under callgrind.
fn run(links: &str, cells: &str, wires: &str) -> Result<(), String> {
    let (over, ciphers) = match links.strip_suffix("-null") {
        Some(over) => (over, heddle_nullcrypto::ciphers()),
        None => (links, Ciphers::default()),
    };
    let known = heddle_transport::registry::named(over).map(|registered| registered.transport.name);
    let over =
        known.or((over == "tls").then_some("tls")).ok_or_else(|| format!("no transport is called {over}"))?;
    let cells = cells.parse().map_err(|_| "how many cells?")?;
    let rate_bytes_per_s = (wires == ONE_BY_ONE).then_some(12_500_000);
    for (way, observer) in cases() {
        let case = Case { over, ciphers, way, observer, rate_bytes_per_s };
        println!("{}", relay(case, cells).cells);
    }
    Ok(())
}

fn measure(args: &[&str]) -> Result<(), String> {
    let is_json = args.contains(&"--json");
    let cells = args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(CELLS);
    let is_name = |arg: &&str| arg.starts_with(|first: char| first.is_ascii_lowercase());
    let named: Vec<&str> = args.iter().copied().filter(is_name).collect();
    let mut all: Vec<Cost> = Vec::new();
    for links in if named.is_empty() { &LINKS[..] } else { &named } {
        let costs = costs(links, cells, if args.contains(&ONE_BY_ONE) { ONE_BY_ONE } else { "together" })?;
        if !is_json {
            print_table(&costs);
        }
        all.extend(costs);
    }
    if is_json {
        print_json(&all);
    }
    Ok(())
}

/// What cells cost over these links.
fn costs(links: &str, cells: u64, wires: &str) -> Result<Vec<Cost>, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let args = ["run", links, &cells.to_string(), wires];
    let (said, parts) = count(&program, &args, MIDDLES, END_OF_PART).map_err(|error| error.to_string())?;
    let cells: Result<Vec<u64>, _> = said.lines().map(str::parse).collect();
    let cells = cells.map_err(|_| format!("it did not say how many cells it relayed, but {said}"))?;
    // Of each case the first part is what comes before.
    let counted: Vec<&Counted> = parts.iter().skip(1).step_by(2).collect();
    if (counted.len(), cells.len()) != (cases().count(), cases().count()) {
        return Err(format!("{} parts were counted, and not two for each case", parts.len()));
    }
    let costs = cases().zip(cells).zip(counted).map(|(((way, observer), cells), counted)| {
        let per_cell = |count: u64| count as f64 / cells as f64;
        let by_library =
            counted.by_library.iter().map(|(library, count)| (library.clone(), per_cell(*count)));
        let mut by_library: Vec<(String, f64)> = by_library.collect();
        by_library.sort_by(|a, b| b.1.total_cmp(&a.1));
        Cost {
            links: links.to_owned(),
            way,
            observer,
            cells,
            instructions: per_cell(counted.instructions),
            allocations: per_cell(counted.allocations),
            copies: per_cell(counted.copies),
            by_library,
        }
    });
    Ok(costs.collect())
}

/// A value's name in small letters.
fn name(value: &dyn core::fmt::Debug) -> String {
    format!("{value:?}").to_lowercase()
}

/// How much more than what nobody looks at.
fn more(costs: &[Cost], cost: &Cost) -> f64 {
    let plain =
        |other: &&Cost| (&other.links, other.way, other.observer) == (&cost.links, cost.way, Observer::None);
    let plain = costs.iter().find(plain).map_or(cost.instructions, |plain| plain.instructions);
    100.0 * (cost.instructions / plain - 1.0)
}

fn print_table(costs: &[Cost]) {
    println!(
        "links      way   observer      cells  instructions  more, %  allocations  copies  for each cell"
    );
    for cost in costs {
        println!(
            "{:<10} {:<5} {:<9} {:>9} {:>13.1} {:>8.2} {:>12.3} {:>7.2}",
            cost.links,
            name(&cost.way),
            name(&cost.observer),
            cost.cells,
            cost.instructions,
            more(costs, cost),
            cost.allocations,
            cost.copies,
        );
    }
    for way in [Way::Down, Way::Up] {
        let Some(cost) = costs.iter().find(|cost| cost.way == way) else { continue };
        let parts = cost.by_library.iter().filter(|(_, instructions)| *instructions >= 1.0);
        let parts: Vec<String> =
            parts.map(|(library, instructions)| format!("{library} {instructions:.0}")).collect();
        println!("{} {}: {}", cost.links, name(&way), parts.join(", "));
    }
}

fn print_json(costs: &[Cost]) {
    let row = |cost: &Cost| {
        let by_library: serde_json::Map<String, serde_json::Value> =
            cost.by_library.iter().map(|(library, count)| (library.clone(), (*count).into())).collect();
        serde_json::json!({
            "links": cost.links,
            "way": name(&cost.way),
            "observer": name(&cost.observer),
            "cells": cost.cells,
            "instructions": cost.instructions,
            "more_percent": more(costs, cost),
            "allocations": cost.allocations,
            "copies": cost.copies,
            "by_library": by_library,
        })
    };
    println!("{:#}", costs.iter().map(row).collect::<serde_json::Value>());
}
