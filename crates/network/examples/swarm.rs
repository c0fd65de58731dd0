//! Seeds of the swarm, one after the other: `cargo run -p heddle-network --example swarm -- SECONDS SEED...` says what
//! happened in each, and panics at the first in which something breaks. `heddle sim swarm` does the same on all cores
//! and with more words; this program is built without the rest of the house, which tests with planted bugs need.

use heddle_network::swarm::run;
use heddle_seam::time::Duration;

#[allow(clippy::disallowed_methods, reason = "a program takes arguments")]
fn main() {
    let numbers = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().expect("SECONDS and seeds are numbers");
    let (seconds, seeds) = numbers.split_first().expect("SECONDS come first");
    for seed in seeds {
        println!("{:?}", run(*seed, Duration::from_secs(*seconds)));
    }
}
