//! What a phase of a Tor network gives.

use super::Better::{Less, More, Neither};
use super::{Quantity, TIMES};
use crate::statistics::Scale;
use Scale::{Amount, Any, Percent, Share};

pub(super) const PHASES: &[Quantity] = &[
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
        "client_first_byte_ms",
        "ms",
        Amount,
        Less,
        "First byte of a download, median of a client",
        "the median of one client's `first_byte_ms` in the phase, where several have the same labels",
    )
    .by("client's"),
    Quantity::new(
        "client_download_s",
        "s",
        Amount,
        Less,
        "Whole download, median of a client",
        "the median of one client's `download_s` in the phase, where several have the same labels",
    )
    .by("client's"),
    Quantity::new(
        "clients_without_downloads",
        "1",
        Amount,
        Less,
        "Clients without a download that counts",
        "how many downloading clients with the same labels, of one with several circuits each of these, had no \
         download that began in the phase and came whole, be it that one lasted through all of it: they are in no \
         other figure of downloads",
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
        "a probe and its answer, one cell each; of an echo that never came back, how long it had been on the way when \
         it was no longer waited for, which is the least that it can have taken",
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
        "how many probes, echoes, downloads or streams of one client failed; of downloads also those that fail after \
         the end, where they hung",
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
        "what the streams of all clients with the same labels got, over what they would have got if all streams of \
         the phase had got the same",
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
        "the share of cells, from 0 to 1, that went over the transport that the arm names, at relays that are never \
         beside a client",
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
        "cell_wait_ms",
        "ms",
        Amount,
        Less,
        "A cell's wait in its circuit's queue",
        "how long cells waited in the queues of a Heddle relay, from the phase before on, in buckets of which each is \
         twice the one before; of more than 20,000 the same share of each bucket",
    )
    .by("`relay`, and relay's"),
    Quantity::new(
        "step_us",
        "µs",
        Amount,
        Less,
        "Steps of what a relay does",
        "what a step of a datagram's way through a Heddle relay, a cell, a wait or a turn of its event loop took, from \
         the phase before on, in buckets of a sixteenth; of more than 20,000 the same share of each bucket. Told with \
         `relay_torrc = [\"HeddleTimings 1\"]`",
    )
    .by("`relay`, and relay's, `step`"),
    Quantity::new(
        "loop_idle_pct",
        "%",
        Percent,
        Neither,
        "Time in which a relay's event loop waited",
        "the share of its time in which a Heddle relay's event loop waited for news, from the phase before on. Told \
         with `relay_torrc = [\"HeddleTimings 1\"]`",
    )
    .by("`relay`, and relay's"),
    Quantity::new(
        "hop_cells",
        "cells",
        Amount,
        Neither,
        "Cells of a circuit that left a relay",
        "how many of a circuit's cells left a relay, as it tells the circuit's client that asks (`hops` of the phase)",
    )
    .by("client's, `relay`, `direction`"),
    Quantity::new(
        "hop_wait_ms",
        "ms",
        Amount,
        Less,
        "A circuit's cells' wait in a relay, in the mean",
        "how long these cells waited in the relay's queue of the circuit, in the mean",
    )
    .by("client's, `relay`, `direction`"),
    Quantity::new(
        "hop_wait_max_ms",
        "ms",
        Amount,
        Less,
        "A circuit's cells' longest wait in a relay",
        "the longest of these waits",
    )
    .by("client's, `relay`, `direction`"),
    Quantity::new(
        "hop_queue_max_cells",
        "cells",
        Amount,
        Less,
        "A circuit's longest queue in a relay",
        "the most cells of the circuit that waited there at once",
    )
    .by("client's, `relay`, `direction`"),
    Quantity::new(
        "socket_window_kb",
        "KB",
        Amount,
        More,
        "Window that a relay's TCP advertises",
        "the receive window of a relay's connection to another, at each look (`sockets` of the phase). Linux tells \
         it from 6.2 on",
    )
    .by("`relay`, and relay's, `to`"),
    Quantity::new(
        "socket_window_closed_pct",
        "%",
        Percent,
        Less,
        "Looks at which that window was closed",
        "the share of looks at which it was zero",
    )
    .by("`relay`, and relay's, `to`"),
    Quantity::new(
        "socket_cwnd_packets",
        "packets",
        Amount,
        Neither,
        "Congestion window of a relay's TCP",
        "the congestion window of a relay's connection to another, at each look",
    )
    .by("`relay`, and relay's, `to`"),
    Quantity::new(
        "socket_unacked_packets",
        "packets",
        Amount,
        Neither,
        "Packets of a relay's TCP that are not acknowledged",
        "what such a connection had sent and the other end had not acknowledged, at each look",
    )
    .by("`relay`, and relay's, `to`"),
    Quantity::new(
        "socket_unsent_kb",
        "KB",
        Amount,
        Less,
        "Bytes that wait in a relay's socket",
        "what was written to such a connection and not sent yet, at each look",
    )
    .by("`relay`, and relay's, `to`"),
    Quantity::new(
        "socket_queued_kb",
        "KB",
        Amount,
        Less,
        "Output buffer of a relay's socket",
        "the kernel's memory of what was written and not acknowledged, at each look",
    )
    .by("`relay`, and relay's, `to`"),
    Quantity::new(
        "socket_unwritable_pct",
        "%",
        Percent,
        Less,
        "Looks at which a relay's socket was not writable",
        "the share of looks at which less than a third of the output buffer was free",
    )
    .by("`relay`, and relay's, `to`"),
    Quantity::new(
        "attacks",
        "1",
        Amount,
        Neither,
        "How often attackers on wires acted",
        "how often all attackers that do the same acted in the phase, where `attack_early` says so also before it \
         counts",
    )
    .by("`kind`"),
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
        "the share of a bottleneck's rate that was used: of a wire's by all of its bytes, of a relay's by the cells \
         that brought its clients their data, so that what wraps cells is not in it",
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
    Quantity::new(
        "queue_delay_ms",
        "ms",
        Amount,
        Less,
        "Wait in front of the bottleneck",
        "a packet's mean wait in front of the phase's bottleneck",
    )
    .by("the wires'"),
    Quantity::new(
        "loss_inflicted_pct",
        "%",
        Percent,
        Less,
        "Packets that the traffic had dropped",
        "the share of packets that a queue, CoDel or a policer dropped at the phase's bottleneck, of those that the \
         wire did not lose on purpose",
    )
    .by("the wires'"),
    Quantity::new(
        "marked_pct",
        "%",
        Percent,
        Neither,
        "Packets that CoDel marked",
        "the share of packets that CoDel marked at the phase's bottleneck (ECN), of the same",
    )
    .by("the wires'"),
    Quantity::new(
        "back_s",
        "s",
        Amount,
        Less,
        "Until streams were back after a change of wires",
        "how long after the last change streams together still had less than 80 % of what they had before, over any \
         second; on a wire that changes its rate, of what they would have with the same share of it. To the phase's \
         end where they are never back. What streams tell is told once a second",
    )
    .by("client's"),
];
