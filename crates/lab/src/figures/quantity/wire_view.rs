//! What somebody sees on a wire between two relays who has no keys (`view` of a phase).

use super::Better::{Less, Neither};
use super::Quantity;
use crate::statistics::Scale;
use Scale::{Amount, Percent, Share};

pub(super) const WIRE_VIEW: &[Quantity] = &[
    Quantity::new(
        "circuits_told_apart",
        "1",
        Amount,
        Less,
        "Circuits that something in clear tells apart",
        "how many circuits a field in clear tells apart, of the field that tells the most: of its values those that \
         are there second by second, each time in a fiftieth of the packets of a direction at least; 1 is none told \
         from another",
    ),
    Quantity::new(
        "wire_flows",
        "1",
        Amount,
        Neither,
        "Connections that a wire shows",
        "how many pairs of addresses and ports packets had, whichever way they went",
    )
    .by("`protocol`"),
    Quantity::new(
        "wire_names",
        "1",
        Amount,
        Neither,
        "Values of what could name something on a wire",
        "how many values a field in clear had: addresses and ports, the bits for treatment (dscp), how many routers a \
         packet may pass (hops), the transport's id (of a connection of QUIC, a session in front of DTLS, an SPI) and \
         what bits are in clear beside it (flags)",
    )
    .by("`direction`, `field`"),
    Quantity::new(
        "unexplained_bytes",
        "bytes",
        Amount,
        Less,
        "Bytes of a payload that should look encrypted and do not",
        "at how many places of payloads the values have less than 6 bits of entropy though the published format leaves \
         nothing there in clear, of places that 512 payloads have",
    )
    .by("`direction`"),
    Quantity::new(
        "clear_pct",
        "%",
        Percent,
        Neither,
        "Bytes in clear on a wire",
        "the share of bytes that are in clear by what is published, headers of IP, UDP and TCP included",
    )
    .by("`direction`"),
    Quantity::new(
        "unread_pct",
        "%",
        Percent,
        Neither,
        "Packets on a wire that were not understood",
        "the share of packets of whose payload it is not known what is in clear: handshakes, repeated segments of \
         TLS, and those before it is known where a record begins",
    )
    .by("`direction`"),
    Quantity::new(
        "wire_packets",
        "packets",
        Amount,
        Neither,
        "Packets on a wire by their length",
        "how many packets of these lengths, in bytes, passed",
    )
    .by("`bytes`, `direction`"),
    Quantity::new(
        "wire_lengths",
        "1",
        Amount,
        Neither,
        "Lengths of packets on a wire",
        "how many different lengths packets had",
    )
    .by("`direction`"),
    Quantity::new(
        "wire_gap_ms",
        "ms",
        Amount,
        Neither,
        "Time from packet to packet on a wire",
        "from one packet to the next one of the same direction; of more than 5,000 every second or third or further one",
    )
    .by("`direction`"),
    Quantity::new(
        "beginnings_shown",
        "1",
        Share,
        Less,
        "Beginnings of circuits told from other moments",
        "the part of moments that are taken for what they are, where a circuit begins or none does, by how many \
         packets of one length or of all pass: 0.5 is chance and 1 is certainty. The rule is learnt from one half of \
         the moments and tried on the other",
    ),
    Quantity::new(
        "ends_shown",
        "1",
        Share,
        Less,
        "Ends of circuits told from other moments",
        "the same of ends",
    ),
    Quantity::new(
        "beginning_packets",
        "packets",
        Amount,
        Neither,
        "Packets where a circuit begins",
        "how many packets passed in the quarter of the time from one beginning to the next that begins with it",
    )
    .by("`direction`"),
    Quantity::new(
        "end_packets",
        "packets",
        Amount,
        Neither,
        "Packets where a circuit ends",
        "the same of ends",
    )
    .by("`direction`"),
];
