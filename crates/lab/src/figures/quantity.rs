//! What is measured: the one table of names, units, titles and meanings, from which programs, reports and checks take them.
//!
//! A name ends in its unit where it has one. `heddle lab figures` prints the table.

use crate::statistics::Scale;

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
pub const TIMES: &str = "×";

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
    [PHASES, FLOWS, GRIDS, DEMO_AND_BENCH].into_iter().flatten()
}

/// What phases of a Tor network give.
pub fn of_phases() -> &'static [Quantity] {
    PHASES
}

use Better::{Less, More, Neither};
use Scale::{Amount, Any, Percent, Share};

const PHASES: &[Quantity] = &[
    Quantity::new(
        "throughput_kb_s",
        "KB/s",
        Amount,
        More,
        "Throughput of all streams together",
        "what all streaming clients with the same labels got together in a second, in 1000 bytes",
    )
    .by("client's"),
    Quantity::new(
        "circuit_throughput_kb_s",
        "KB/s",
        Amount,
        More,
        "Throughput of one circuit",
        "the mean of one streaming client over the phase",
    )
    .by("client's"),
    Quantity::new(
        "slowest_throughput_kb_s",
        "KB/s",
        Amount,
        More,
        "Throughput of the slowest circuit",
        "the least of the means of streaming clients with the same labels",
    )
    .by("client's"),
    Quantity::new(
        "received_kb_s",
        "KB/s",
        Amount,
        More,
        "What all clients together received",
        "what all clients with the same labels got together of streams and downloads, in 1000 bytes per second",
    )
    .by("client's"),
    Quantity::new(
        "first_byte_ms",
        "ms",
        Amount,
        Less,
        "First byte of a download",
        "a download's first byte, from the request for a stream on: two round trips at least",
    )
    .by("client's"),
    Quantity::new(
        "first_byte_p50_ms",
        "ms",
        Amount,
        Less,
        "First byte of a download, median of a phase",
        "the median of `first_byte_ms` in the phase",
    )
    .by("client's"),
    Quantity::new(
        "first_byte_excess_ms",
        "ms",
        Any,
        Less,
        "First byte of a download beyond what the wires take",
        "`first_byte_p50_ms` without two round trips over the path's wires",
    )
    .by("client's"),
    Quantity::new(
        "first_byte_over_floor",
        TIMES,
        Scale::Ratio,
        Less,
        "First byte of a download over what the wires take",
        "the median in the phase of `first_byte_ms` over two round trips over the path's wires",
    )
    .by("client's"),
    Quantity::new(
        "download_s",
        "s",
        Amount,
        Less,
        "Whole download",
        "a download, from the request for a stream to the last byte",
    )
    .by("client's"),
    Quantity::new(
        "download_kb_s",
        "KB/s",
        Amount,
        More,
        "Rate of a download",
        "a download's bytes over its whole time, in 1000 bytes per second",
    )
    .by("client's"),
    Quantity::new(
        "open_ms",
        "ms",
        Amount,
        Less,
        "Opening of a stream",
        "the opening of a stream, for a probe or a download",
    )
    .by("client's"),
    Quantity::new(
        "latency_ms",
        "ms",
        Amount,
        Less,
        "Latency of one cell, one way",
        "a probe's answer, one way from the server to the client",
    )
    .by("client's"),
    Quantity::new(
        "echo_ms",
        "ms",
        Amount,
        Less,
        "One cell there and back",
        "a probe and its answer, one cell each; of an echo that never came back, how long it had been on the way when it was \
         no longer waited for, which is the least that it can have taken",
    )
    .by("client's"),
    Quantity::new(
        "echo_second_ms",
        "ms",
        Amount,
        Less,
        "One cell there and back, mean of a second",
        "the mean `echo_ms` of what began in one second",
    )
    .by("client's"),
    Quantity::new(
        "echo_p90_ms",
        "ms",
        Amount,
        Less,
        "One cell there and back, 90th percentile",
        "the 90th percentile of `echo_ms` in the phase",
    )
    .by("client's"),
    Quantity::new(
        "echo_excess_p90_ms",
        "ms",
        Any,
        Less,
        "One cell there and back beyond what the wires take, 90th percentile",
        "`echo_p90_ms` without the delay of the path's wires",
    )
    .by("client's"),
    Quantity::new("echoes", "1", Amount, Neither, "Echoes that came back", "how many probes and echoes came back")
        .by("client's"),
    Quantity::new(
        "overhead_ms",
        "ms",
        Any,
        Less,
        "Time beyond what the wires take",
        "a probe beyond the delay of its path's wires there and back, a download's first byte beyond twice that",
    )
    .by("client's"),
    Quantity::new(
        "overhead_pct",
        "%",
        Any,
        Less,
        "Share of the time that the wires do not take",
        "`overhead_ms` over the whole time",
    )
    .by("client's"),
    Quantity::new(
        "failures",
        "1",
        Amount,
        Less,
        "Failures of a client",
        "how many probes, echoes, downloads or streams of one client failed; of downloads also those that fail after the end, \
         where they hung",
    )
    .by("client's"),
    Quantity::new(
        "jain",
        "1",
        Share,
        More,
        "Evenness of what streams got (Jain's index)",
        "Jain's index of the means of all streams of the phase: 1 if all got the same, 1/n if one of n got all",
    ),
    Quantity::new(
        "fair_share",
        "1",
        Amount,
        Neither,
        "What streams got, over an even share",
        "what the streams of all clients with the same labels got, over what they would have got if all streams of the phase \
         had got the same",
    )
    .by("client's"),
    Quantity::new(
        "circuit_ms",
        "ms",
        Amount,
        Less,
        "Building of a circuit",
        "the building of a circuit, through the client's control port",
    )
    .by("client's"),
    Quantity::new(
        "circuits_left_pct",
        "%",
        Percent,
        More,
        "Circuits that were left at the end",
        "the share of circuits that were still open at the end",
    ),
    Quantity::new(
        "pairs_s",
        "s",
        Amount,
        Less,
        "Until relays had found each other",
        "how long the phase waited until relays had reached their neighbours over the arm's transport",
    ),
    Quantity::new(
        "fallbacks",
        "1",
        Amount,
        Less,
        "Returns to TLS",
        "how often circuits or pairs of Heddle relays went back to TLS, from the phase before on",
    )
    .by("`reason`"),
    Quantity::new(
        "transport_cells_share",
        "1",
        Share,
        More,
        "Cells that the transport of the arm carried",
        "the share of cells, from 0 to 1, that went over the transport that the arm names, at relays that are never beside a \
         client",
    ),
    Quantity::new(
        "queue_cells_max",
        "cells",
        Amount,
        Less,
        "Longest queue of a circuit in a relay",
        "the most cells in one queue of a circuit of a Heddle relay so far",
    )
    .by("`relay`, and relay's"),
    Quantity::new(
        "held_queue_cells_max",
        "cells",
        Amount,
        Less,
        "Longest queue of a circuit that is held back at its source",
        "the same of queues whose supply is held back",
    )
    .by("`relay`, and relay's"),
    Quantity::new(
        "step_us",
        "µs",
        Amount,
        Less,
        "Steps of a datagram's way through a relay",
        "what a step of a datagram's way through a Heddle relay took, from the phase before on, in buckets of a sixteenth; of \
         more than 20,000 the same share of each bucket. Told with `relay_torrc = [\"HeddleTimings 1\"]`",
    )
    .by("`relay`, and relay's, `step`"),
    Quantity::new(
        "relay_cpu_s",
        "s",
        Amount,
        Less,
        "Processor's time of a relay",
        "the processor's time that a relay took while the phase was measured",
    )
    .by("`relay`"),
    Quantity::new(
        "relay_memory_mb",
        "MB",
        Amount,
        Less,
        "Memory of a relay",
        "a relay's resident memory at the end",
    )
    .by("`relay`"),
    Quantity::new(
        "bottleneck_used",
        "1",
        Amount,
        More,
        "Share of the bottleneck that was used",
        "the share of a bottleneck's rate that was used; beside a relay's rate the headers of packets take it a little above 1",
    )
    .by("bottleneck's"),
    Quantity::new(
        "wire_mb",
        "MB",
        Amount,
        Neither,
        "What wires carried",
        "what arrived over a group's wires, in 10⁶ bytes of whole packets",
    )
    .by("`group`, `direction`"),
    Quantity::new(
        "wire_lost_pct",
        "%",
        Percent,
        Neither,
        "Packets that wires lost on purpose",
        "the share of packets that a group's wires lost on purpose",
    )
    .by("`group`, `direction`"),
    Quantity::new(
        "wire_use_pct",
        "%",
        Amount,
        Neither,
        "Use of the busiest wire",
        "the share of its rate that the busiest wire of a group carried: where it is near 100, it is the bottleneck",
    )
    .by("`group`, `direction`"),
    Quantity::new(
        "wire_wait_ms",
        "ms",
        Amount,
        Less,
        "Wait in front of a wire",
        "a packet's mean wait in front of the rate",
    )
    .by("`group`, `direction`"),
    Quantity::new(
        "lost_pct",
        "%",
        Percent,
        Neither,
        "Packets that all wires lost on purpose",
        "the share of packets lost on purpose on all wires that are in groups",
    ),
];

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
        "grid_cells",
        "cells",
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
    .by("`position`"),
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
