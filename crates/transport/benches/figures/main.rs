//! Figures that documents tell, in virtual time and by seeds: `cargo bench -p heddle-transport --bench figures --
//! weight` prints those of that name, and without a name the names. They take minutes each.

// What the tests share has what they need, and their own modules have the tests' imports.
#![allow(dead_code, unused_imports, reason = "of use to the tests alone")]

#[path = "../../tests/support/circuits.rs"]
mod circuits;
#[path = "../../tests/support/estimate.rs"]
mod estimate;
#[path = "../../tests/support/loads.rs"]
mod loads;
#[path = "../../tests/support/matrix.rs"]
mod matrix;
#[path = "../../tests/support/source.rs"]
mod source;
#[path = "../../tests/support/tcp.rs"]
mod tcp;
#[path = "../../tests/support/bench.rs"]
mod wires;

#[path = "../../tests/quic/congestion.rs"]
mod congestion;
#[path = "../../tests/quic/evaluation.rs"]
mod evaluation;
#[path = "../../tests/dtls/paths.rs"]
mod paths;
#[path = "../../tests/quic/steps.rs"]
mod steps;
#[path = "../../tests/quic/weight.rs"]
mod weight;

mod cells;
mod controllers;
mod matrices;
mod numbers;
mod over_dtls;

/// As the tests of `tcp-dtls` have it; those of QUIC whose parts are here ask for no options.
mod bench {
    pub use crate::wires::*;
    use heddle_transport::tcp_dtls::DtlsOptions;

    pub fn options() -> DtlsOptions {
        DtlsOptions::new(anchor())
    }
}

/// The figures by their names.
const FIGURES: [(&str, fn()); 11] = [
    ("beside-quic", matrices::beside_quic),
    ("congestion", controllers::congestion),
    ("dtls", over_dtls::figures),
    ("evaluation", cells::table),
    ("late-and-marked", controllers::late_and_marked),
    ("matrix-dtls", matrices::of_dtls),
    ("matrix-quic", matrices::of_quic),
    ("matrix-tcp", matrices::of_tcp),
    ("steps", controllers::steps),
    ("weight", numbers::table),
    ("weight-wide", numbers::table_of_a_wide_wire),
];

#[allow(clippy::disallowed_methods, reason = "a program takes arguments")]
fn main() {
    // What cargo adds begins with a dash.
    let names: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    if names.is_empty() {
        FIGURES.iter().for_each(|(name, _)| println!("{name}"));
    }
    for name in names {
        let figure = FIGURES.iter().find(|(known, _)| *known == name);
        figure.unwrap_or_else(|| panic!("no figure is called {name}")).1();
    }
}
