//! What is measured: the one table of names, units, titles and meanings, from which programs, reports and checks take
//! them.
//!
//! A name ends in its unit where it has one. `heddle lab figures` prints the table.

mod phases;
mod pings;
mod wire_view;

use crate::statistics::Scale;
use phases::PHASES;
use pings::PINGS;
use wire_view::WIRE_VIEW;

/// Something that is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity {
    /// Its name in plans and results.
    pub name: &'static str,
    /// The unit of its values.
    pub unit: &'static str,
    /// What stands above it in reports.
    pub title: &'static str,
    /// What a sample is.
    pub meaning: &'static str,
    /// Labels beside those of arm and phase; empty where there are none.
    pub labels: &'static str,
    /// What is better.
    pub better: Better,
    /// What values it can have.
    pub scale: Scale,
}

/// Which values of a quantity are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Small ones.
    Less,
    /// Great ones.
    More,
    /// It depends.
    Neither,
}

impl Better {
    /// Its name in lists.
    pub fn name(self) -> &'static str {
        match self {
            Better::Less => "less",
            Better::More => "more",
            Better::Neither => "neither",
        }
    }
}

/// The unit of a ratio.
pub(crate) const TIMES: &str = "×";

impl Quantity {
    const fn new(
        name: &'static str,
        unit: &'static str,
        scale: Scale,
        better: Better,
        title: &'static str,
        meaning: &'static str,
    ) -> Quantity {
        Quantity { name, unit, title, meaning, labels: "", better, scale }
    }

    const fn by(self, labels: &'static str) -> Quantity {
        Quantity { labels, ..self }
    }
}

/// The quantity of this name.
pub fn quantity(name: &str) -> Option<&'static Quantity> {
    all().find(|quantity| quantity.name == name)
}

/// Everything that is measured.
pub fn all() -> impl Iterator<Item = &'static Quantity> {
    [PHASES, WIRE_VIEW, PINGS, FLOWS, GRIDS, DEMO_AND_BENCH].into_iter().flatten()
}

/// What phases of a Tor network give.
pub(crate) fn of_phases() -> impl Iterator<Item = &'static Quantity> {
    [PHASES, WIRE_VIEW, PINGS].into_iter().flatten()
}

use Better::{Less, More, Neither};
use Scale::{Amount, Percent, Share};

const FLOWS: &[Quantity] = &[
    Quantity::new(
        "goodput_mbit_s",
        "Mbit/s",
        Amount,
        More,
        "Goodput of one TCP connection",
        "megabits of application data that arrived in a second",
    ),
    Quantity::new(
        "share_beside_linux",
        "1",
        Share,
        Neither,
        "Share of a wire beside a TCP connection of Linux",
        "what `utcp` got of all that two connections on one wire got; without `utcp`, the second of two of Linux",
    ),
    Quantity::new(
        "together_mbit_s",
        "Mbit/s",
        Amount,
        More,
        "Goodput of two TCP connections on one wire",
        "what both got together",
    ),
    Quantity::new("delay_ms", "ms", Amount, Less, "Delay of a datagram, one way", "a datagram that arrived"),
    Quantity::new(
        "loss_pct",
        "%",
        Percent,
        Less,
        "Datagrams that did not arrive",
        "how many of a thousand did not arrive, in percent",
    ),
    Quantity::new(
        "repeated_loss_differences",
        "probes",
        Amount,
        Less,
        "Datagrams whose fate changed when the seed was repeated",
        "how many datagrams only one of two runs under one seed lost",
    ),
    Quantity::new(
        "repeated_delay_difference_ms",
        "ms",
        Amount,
        Less,
        "Delay that changed when the seed was repeated",
        "by how much the delays of a datagram differ that arrived in both of two runs under one seed",
    ),
];

const GRIDS: &[Quantity] = &[
    Quantity::new(
        "grid_wires",
        "wires",
        Amount,
        Neither,
        "Wires of the grid",
        "how many wires were measured",
    ),
    Quantity::new(
        "grid_within_10pct",
        "%",
        Percent,
        More,
        "Wires on which utcp is within 10 % of Linux or better",
        "by the means of wires",
    ),
    Quantity::new(
        "grid_within_10pct_bound",
        "%",
        Percent,
        More,
        "Wires on which utcp is surely within 10 % of Linux or better",
        "by the lower bounds of the wires' intervals",
    ),
    Quantity::new(
        "grid_min",
        TIMES,
        Scale::Ratio,
        More,
        "Worst wire of the grid, utcp over Linux",
        "by the means of wires",
    ),
    Quantity::new(
        "grid_min_bound",
        TIMES,
        Scale::Ratio,
        More,
        "Worst wire of the grid, utcp over Linux, at least",
        "by the lower bounds of the wires' intervals",
    ),
    Quantity::new(
        "grid_interval_half_pct",
        "%",
        Amount,
        Less,
        "Half-widths of the wires' intervals",
        "half of a wire's interval, in percent of its mean",
    ),
    Quantity::new(
        "grid_mean",
        TIMES,
        Scale::Ratio,
        More,
        "All wires of the grid, utcp over Linux",
        "the geometric mean of all wires in a run",
    ),
];

const DEMO_AND_BENCH: &[Quantity] = &[
    Quantity::new(
        "page_s",
        "s",
        Amount,
        Less,
        "Whole web page",
        "from the request for a stream to the last byte of a page",
    ),
    Quantity::new(
        "download_mb_s",
        "MB/s",
        Amount,
        More,
        "Rate of downloads",
        "10⁶ bytes per second: of the demo one download, its first round trips included; of the bench all of a round together",
    ),
    Quantity::new(
        "relay_cpu_s_per_gb",
        "CPU-s/GB",
        Amount,
        Less,
        "Processor's time of a relay for a gigabyte",
        "the processor's time of a relay's whole process, user and system, over the bytes that clients got meanwhile",
    )
    .by("`position`, or `relay`"),
    Quantity::new(
        "middle_cpu_over",
        TIMES,
        Scale::Ratio,
        Less,
        "Processor's time of a busy middle relay, over that of the first kind",
        "both in one round, or in all rounds of one network, over the bytes that clients got meanwhile",
    )
    .by("`over`"),
    Quantity::new(
        "circuits_per_s",
        "1/s",
        Amount,
        More,
        "Circuits that two relays open in a second",
        "by a crowd of clients that builds them all at once",
    ),
    Quantity::new(
        "transport_lanes_share",
        "1",
        Share,
        More,
        "Share of circuits that are on the transport that was asked for",
        "of those that were opened while it was measured",
    ),
    Quantity::new(
        "idle_memory_mb",
        "MB",
        Amount,
        Less,
        "Memory of a relay before its circuits",
        "resident memory of the whole process",
    )
    .by("`relay`"),
    Quantity::new(
        "memory_above_idle_mb",
        "MB",
        Amount,
        Less,
        "Memory that circuits add",
        "resident memory of the whole process with all circuits, less that before them",
    )
    .by("`relay`"),
    Quantity::new(
        "circuit_memory_bytes",
        "B",
        Amount,
        Less,
        "Memory of a circuit",
        "what circuits add, over their number",
    )
    .by("`relay`"),
    Quantity::new(
        "circuit_kernel_memory_bytes",
        "B",
        Amount,
        Less,
        "Kernel's memory of a circuit between two relays",
        "what the machine's sockets take in the kernel with all circuits, less that before them, over the number of \
         circuits: both relays together",
    ),
    Quantity::new(
        "opened_circuit_cpu_ms",
        "ms",
        Amount,
        Less,
        "Processor's time of a circuit that is opened",
        "of the whole process, user and system",
    )
    .by("`relay`"),
    Quantity::new(
        "sockets_more",
        "1",
        Amount,
        Less,
        "Sockets that circuits add",
        "open sockets of the process with all circuits, less those before them",
    )
    .by("`relay`"),
    Quantity::new("udp_sockets", "1", Amount, Less, "UDP sockets of a relay", "with all circuits").by("`relay`"),
    Quantity::new(
        "middle_udp_pct",
        "%",
        Percent,
        Neither,
        "Datagrams among the packets of the middle relay",
        "the share of UDP in the packets that the middle relay received: it tells which transport carried the circuits",
    ),
    Quantity::new(
        "sha256_ok",
        "1",
        Share,
        More,
        "Transfers that were what they should be",
        "whether a transfer had the right SHA-256, 1 or 0",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_is_there_once_and_ends_in_its_unit() {
        let mut names = BTreeSet::new();
        for quantity in all() {
            let Quantity { name, unit, title, meaning, .. } = *quantity;
            assert!(names.insert(name), "{name} is there twice");
            assert!(!title.contains('_') && !meaning.is_empty(), "{name}: {title}");
            let suffix = match unit {
                "ms" | "s" | "MB" => Some(format!("_{}", unit.to_lowercase())),
                "%" if !name.contains("10pct") => Some("_pct".to_owned()),
                "µs" => Some("_us".to_owned()),
                _ => None,
            };
            assert!(suffix.is_none_or(|suffix| name.ends_with(&suffix)), "{name} in {unit}");
        }
        assert_eq!(quantity("echo_ms").unwrap().unit, "ms");
        assert!(quantity("nonesuch").is_none());
    }
}
