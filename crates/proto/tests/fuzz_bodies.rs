//! The fuzz targets of this crate without a fuzzer: the same bodies, on seeded inputs. How to add
//! one is in `fuzz/README.md`.

#[path = "../../../fuzz/src/credit.rs"]
mod credit;
#[path = "../../../fuzz/src/extend.rs"]
mod extend;
#[path = "../../../fuzz/src/framer.rs"]
mod framer;
#[path = "../../../fuzz/src/link.rs"]
mod link;
#[path = "../../../fuzz/src/measure.rs"]
mod measure;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/src/offer.rs"]
mod offer;
#[path = "../../../fuzz/src/onionskin.rs"]
mod onionskin;
#[path = "../../../fuzz/src/relay.rs"]
mod relay;
#[path = "../../../fuzz/src/stream.rs"]
mod stream;

/// Inputs per target.
const ROUNDS: u64 = 20_000;
/// And of handshakes, which compute long.
const HANDSHAKE_ROUNDS: u64 = 2_000;

#[test]
fn credit_stands() {
    mutate::throw(credit::run, &credit::seeds(), ROUNDS);
}

#[test]
fn extend_stands() {
    mutate::throw(extend::run, &extend::seeds(), ROUNDS);
}

#[test]
fn framer_stands() {
    mutate::throw(framer::run, &framer::seeds(), ROUNDS);
}

#[test]
fn link_stands() {
    mutate::throw(link::run, &link::seeds(), ROUNDS);
}

#[test]
fn measure_stands() {
    mutate::throw(measure::run, &measure::seeds(), ROUNDS);
}

#[test]
fn offer_stands() {
    mutate::throw(offer::run, &offer::seeds(), ROUNDS);
}

#[test]
fn onionskin_stands() {
    mutate::throw(onionskin::run, &onionskin::seeds(), HANDSHAKE_ROUNDS);
}

#[test]
fn relay_stands() {
    mutate::throw(relay::run, &relay::seeds(), ROUNDS);
}

#[test]
fn stream_stands() {
    mutate::throw(stream::run, &stream::seeds(), ROUNDS);
}
