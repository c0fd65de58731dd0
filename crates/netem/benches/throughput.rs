//! Packets per second through one wire on one core: `cargo bench -p heddle-netem`.

use heddle_netem::{
    DirectionOptions, HostOptions, Instant, Jitter, Loss, Packet, QueueOptions, Rate, Seed, Topology,
    TopologyOptions, WireOptions,
};

const PACKETS: u64 = 4_000_000;

/// A packet of 1250 bytes that has no contents.
#[derive(Clone)]
struct Blank;

impl Packet for Blank {
    fn len_bytes(&self) -> usize {
        1250
    }

    fn flip_bit(&mut self, _bit: usize) {}
}

fn main() {
    let rated = DirectionOptions {
        rate: Rate::BitsPerS(1_000_000_000),
        delay_ns: 50_000_000,
        loss: Loss::Bernoulli { probability: 0.01 },
        ..DirectionOptions::default()
    };
    let codel =
        QueueOptions { codel: Some(heddle_netem::CodelOptions::default()), ..QueueOptions::default() };
    measure("rate, delay, loss", &rated);
    measure("the same with CoDel", &DirectionOptions { queue: codel, ..rated.clone() });
    let jitter = Jitter::Exponential { mean_ns: 5_000_000 };
    measure("the same with reordering jitter", &DirectionOptions { jitter, jitter_reorders: true, ..rated });
}

/// Sends a packet every 10 µs, a little more than the wire takes.
fn measure(name: &str, direction: &DirectionOptions) {
    let host = |name: &str| HostOptions { name: name.to_owned(), ..HostOptions::default() };
    let options = TopologyOptions {
        hosts: vec![host("a"), host("b")],
        wires: vec![WireOptions { from: "a".into(), to: "b".into(), there: direction.clone(), back: None }],
        default_wire: None,
    };
    let mut topology = Topology::new(&options, &Seed::from_number(1)).expect("good options");
    let (a, b) = (topology.host("a").expect("a"), topology.host("b").expect("b"));
    let mut arrived = 0u64;
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
    let start = std::time::Instant::now();
    for number in 0..PACKETS {
        let now = Instant::from_nanos(number * 9_900);
        while topology.poll(now).is_some() {
            arrived += 1;
        }
        topology.send(now, a, b, Blank).expect("a wire");
    }
    let elapsed_s = start.elapsed().as_secs_f64();
    println!("{name}: {:.2} M packets/s ({arrived} of {PACKETS} arrived)", PACKETS as f64 / elapsed_s / 1e6);
}
