//! The bodies of the fuzz targets: plain functions that take any bytes and must not panic.
//!
//! Each module has `run`, the body, and `seeds`, valid inputs to start from. README.md says how to
//! add one.

pub mod credit;
pub mod directory;
pub mod dns;
pub mod dtls;
pub mod esp;
pub mod extend;
pub mod forwarding;
pub mod framer;
pub mod handshake;
pub mod keys;
pub mod link;
pub mod measure;
pub mod metrics;
pub mod mutate;
pub mod neighbour;
pub mod observe;
pub mod observers;
pub mod offer;
pub mod offload;
pub mod onionskin;
pub mod origin;
pub mod quic;
pub mod quic_neighbour;
pub mod relay;
pub mod sctp;
pub mod sctp_dtls;
pub mod shards;
pub mod shared_tcp;
pub mod socks;
pub mod stream;
pub mod tcp_esp;
pub mod tls;
pub mod tls_open;
pub mod tls_responder;
pub mod torrc;
pub mod utcp;

/// A target: its name, which is also its binary's, its body and its seeds.
pub type Target = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// Every target there is.
pub const TARGETS: &[Target] = &[
    ("directory", directory::run, directory::seeds),
    ("dns", dns::run, dns::seeds),
    ("dtls", dtls::run, dtls::seeds),
    ("esp", esp::run, esp::seeds),
    ("extend", extend::run, extend::seeds),
    ("forwarding", forwarding::run, forwarding::seeds),
    ("framer", framer::run, framer::seeds),
    ("handshake", handshake::run, handshake::seeds),
    ("keys", keys::run, keys::seeds),
    ("link", link::run, link::seeds),
    ("credit", credit::run, credit::seeds),
    ("measure", measure::run, measure::seeds),
    ("metrics", metrics::run, metrics::seeds),
    ("neighbour", neighbour::run, neighbour::seeds),
    ("observe", observe::run, observe::seeds),
    ("observers", observers::run, observers::seeds),
    ("offer", offer::run, offer::seeds),
    ("offload", offload::run, offload::seeds),
    ("onionskin", onionskin::run, onionskin::seeds),
    ("origin", origin::run, origin::seeds),
    ("quic", quic::run, quic::seeds),
    ("quic_neighbour", quic_neighbour::run, quic_neighbour::seeds),
    ("relay", relay::run, relay::seeds),
    ("sctp", sctp::run, sctp::seeds),
    ("sctp_dtls", sctp_dtls::run, sctp_dtls::seeds),
    ("shards", shards::run, shards::seeds),
    ("shared_tcp", shared_tcp::run, shared_tcp::seeds),
    ("socks", socks::run, socks::seeds),
    ("stream", stream::run, stream::seeds),
    ("tcp_esp", tcp_esp::run, tcp_esp::seeds),
    ("tls", tls::run, tls::seeds),
    ("tls_open", tls_open::run, tls_open::seeds),
    ("tls_responder", tls_responder::run, tls_responder::seeds),
    ("torrc", torrc::run, torrc::seeds),
    ("utcp", utcp::run, utcp::seeds),
];

/// Runs the body of the target `name` on `data`.
///
/// # Panics
///
/// When there is no such target, or the body found a fault.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|(listed, ..)| *listed == name);
    let (_, body, _) = target.expect("every binary's name is in TARGETS");
    body(data);
}
