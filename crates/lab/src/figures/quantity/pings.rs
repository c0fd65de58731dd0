//! What pings tell, of cases and of phases.

use super::Better::{Less, Neither};
use super::{Quantity, TIMES};
use crate::statistics::Scale;
use Scale::{Amount, Any, Percent};

pub(super) const PINGS: &[Quantity] = &[
    Quantity::new("ping_ms", "ms", Amount, Less, "Round trip of a datagram", "a ping that came back")
        .by("the pings'"),
    Quantity::new(
        "ping_min_ms",
        "ms",
        Amount,
        Less,
        "Round trip of a datagram, shortest",
        "the least `ping_ms` of a pair of hosts",
    )
    .by("the pings'"),
    Quantity::new(
        "ping_mean_ms",
        "ms",
        Amount,
        Less,
        "Round trip of a datagram, mean of a pair",
        "the mean `ping_ms` of a pair of hosts",
    )
    .by("the pings'"),
    Quantity::new(
        "ping_p50_ms",
        "ms",
        Amount,
        Less,
        "Round trip of a datagram, median of a pair",
        "the median `ping_ms` of a pair of hosts",
    )
    .by("the pings'"),
    Quantity::new(
        "ping_p90_ms",
        "ms",
        Amount,
        Less,
        "Round trip of a datagram, 90th percentile of a pair",
        "the 90th percentile of `ping_ms` of a pair of hosts",
    )
    .by("the pings'"),
    Quantity::new(
        "ping_max_ms",
        "ms",
        Amount,
        Less,
        "Round trip of a datagram, longest",
        "the greatest `ping_ms` of a pair of hosts",
    )
    .by("the pings'"),
    Quantity::new(
        "ping_deviation_ms",
        "ms",
        Amount,
        Less,
        "Round trip of a datagram, standard deviation",
        "that of `ping_ms` of a pair of hosts",
    )
    .by("the pings'"),
    Quantity::new(
        "ping_lost_pct",
        "%",
        Percent,
        Less,
        "Datagrams that did not come back",
        "how many of a pair's pings did not come back, in percent",
    )
    .by("the pings'"),
    Quantity::new(
        "ping_over_wires",
        TIMES,
        Scale::Ratio,
        Neither,
        "Round trip of a datagram over what its wire is said to take",
        "the mean of a pair of hosts over what both directions of its wire take by their delays and the means of their \
         jitter",
    )
    .by("the pings'"),
    Quantity::new(
        "ping_deviation_over_wires",
        TIMES,
        Scale::Ratio,
        Neither,
        "Standard deviation of round trips over what the wire's is said to be",
        "that of a pair of hosts over that of the jitter of both directions of its wire together",
    )
    .by("the pings'"),
    Quantity::new(
        "ping_lost_beyond_wires_pct",
        "%",
        Any,
        Neither,
        "Datagrams that did not come back, beyond what the wire is said to lose",
        "by how many points the part of a pair of hosts is above the probability that its wire loses one of the two \
         ways, where each packet is lost whatever becomes of others",
    )
    .by("the pings'"),
];
