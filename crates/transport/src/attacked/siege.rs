//! A relay whose neighbours leave holes in as many flows as they may, or fill them while the operator's rate lets
//! nothing be read: what it holds stays within its bounds. The neighbours' ends are the transport's ([`Peers`]), all
//! else is the same whichever it is.

use super::{AMPLE, Attacked, Bounds, Neighbours, SCARCE, alone, create2};
use heddle_proto::bucket::Limit;
use heddle_proto::cell::{CELL_LEN, Command};
use heddle_proto::endpoint::Endpoint;
use heddle_seam::rng::Seed;
use heddle_seam::time::{Duration, Instant};

/// More turns at one instant mean that both sides go in circles.
const TURNS_PER_INSTANT_MAX: u32 = 100_000;

/// What a flow carries before its hole, and how many pieces behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holes<'a> {
    /// A cell that opens a circuit, or nothing that could be read.
    pub(crate) opening: Option<&'a [u8]>,
    pub(crate) pieces: u32,
}

/// The neighbours' ends of their connections, in the hands of a test.
pub(crate) trait Peers: Neighbours + Default {
    /// What the transport is called in what is printed.
    const OVER: &'static str;
    /// Whether the relay permits each only few flows that had no cell.
    const FEW_UNBORN: bool;

    /// The relay's endpoint, as a relay of such bounds makes it.
    fn endpoint(bounds: &Bounds) -> Box<dyn Endpoint>;

    /// The neighbour of that number dials the relay, and is ready when this returns.
    fn dial(siege: &mut Siege<Self>, number: u8);

    /// Hands the relay what they have to send; whether there was something.
    fn send(&mut self, attacked: &mut Attacked) -> bool;

    /// Each opens so many flows, with holes.
    fn leave_holes(siege: &mut Siege<Self>, flows: u32, holes: Holes<'_>);

    /// Each opens so many flows with this cell, and then sends so many on each, all bytes of which are [`IN_VAIN`], as
    /// far as it may and on all in turn.
    fn fill(siege: &mut Siege<Self>, flows: u32, opening: &[u8], cells: u32);
}

/// A cell of nothing but this is a CREATED2 on a circuit that asked for none: a relay that reads it does nothing. So is
/// what is left of one that was sent in part, and what follows.
pub(crate) const IN_VAIN: u8 = Command::CREATED2.0;

/// A relay and its neighbours.
pub(crate) struct Siege<P> {
    pub(crate) attacked: Attacked,
    pub(crate) peers: P,
}

impl<P: Peers> Siege<P> {
    pub(crate) fn new(bounds: &Bounds, peers: u8) -> Self {
        let attacked = Attacked::new(bounds, || P::endpoint(bounds));
        let mut siege = Siege { attacked, peers: P::default() };
        (1..=peers).for_each(|number| P::dial(&mut siege, number));
        assert_eq!(siege.attacked.relay.in_use().flow_links, usize::from(peers));
        siege
    }

    pub(crate) fn exchange_all(&mut self) {
        let mut turns = 0;
        while self.exchange() {
            turns += 1;
            assert!(turns < TURNS_PER_INSTANT_MAX, "there is always more to say");
        }
    }

    /// Carries what there is from each side to the other; whether there was something.
    pub(crate) fn exchange(&mut self) -> bool {
        let moved = self.attacked.poll(&mut self.peers) > 0;
        self.peers.send(&mut self.attacked) || moved
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let end: Instant = self.attacked.now + time;
        loop {
            self.exchange_all();
            let Some(next) = self.attacked.timeout().filter(|next| *next <= end) else { break };
            self.attacked.now = self.attacked.now.max(next);
            self.attacked.handle_timeout();
        }
        self.attacked.now = end;
    }

    /// Each peer opens so many flows of which nothing can be read.
    pub(crate) fn leave_holes(&mut self, flows: u32) {
        P::leave_holes(self, flows, Holes { opening: None, pieces: 1 });
    }

    /// The same behind circuits that are opened.
    fn leave_holes_of_circuits(&mut self, circuits: u32, pieces: u32) {
        P::leave_holes(self, circuits, Holes { opening: Some(&opening()), pieces });
    }

    /// Each opens so many circuits and fills them, until the relay reads no more and takes no more.
    fn fill_circuits(&mut self, circuits: u32, cells: u32) {
        P::fill(self, circuits, &opening(), cells);
        let held = self.attacked.relay.in_use();
        let read_bytes = self.read_cells() * CELL_LEN as u64;
        println!(
            "{read_bytes} bytes were read, {} of flows were not; {} circuits",
            held.flow_bytes, held.circuits
        );
    }

    fn read_cells(&self) -> u64 {
        self.attacked.relay.stats().transports[1].cells_in
    }

    fn assert_bounds_for_a_while(&mut self, what: &str, is_short: bool) {
        self.attacked.assert_bounds(&format!("{what} over {}", P::OVER));
        self.run(Duration::from_secs(20));
        self.attacked.assert_bounds("20 s later");
        assert_eq!(self.attacked.pressures > 0, is_short, "memory was short");
    }
}

/// What opens a circuit on a flow.
fn opening() -> Vec<u8> {
    let mut opening = vec![Command::CREATE2.0];
    opening.extend(create2(&mut Seed::from_number(9).rng()).1);
    opening
}

/// A relay of which the operator's rate lets so much pass, and then next to nothing.
fn used_up_after(burst_bytes: u64, max_queue_bytes: usize) -> Bounds {
    let limit = Limit { rate_bytes_per_s: 75_000, burst_bytes };
    Bounds { max_queue_bytes, relay_bandwidth: Some(limit) }
}

/// Flows of which nothing can be read, from so many neighbours, where there is memory for few of them. Where a peer may
/// have few flows without a cell, that is enough.
pub(crate) fn holes_take_no_more_than_is_said_and_permitted<P: Peers>(cases: [(u8, u32); 2]) {
    for (peers, flows) in cases {
        let mut siege: Siege<P> = Siege::new(&Bounds::of(SCARCE), peers);
        siege.leave_holes(flows);
        siege.assert_bounds_for_a_while(&format!("{peers} neighbours with {flows} flows"), !P::FEW_UNBORN);
    }
}

/// The same behind circuits that were opened.
pub(crate) fn holes_of_circuits_take_no_more_than_is_said_and_permitted<P: Peers>() {
    let mut siege: Siege<P> = Siege::new(&Bounds::of(SCARCE), 2);
    siege.leave_holes_of_circuits(7_000, 2);
    siege.assert_bounds_for_a_while("circuits", true);
}

/// As many flows as a neighbour may have where there is memory for few: what the process has, likewise.
pub(crate) fn fifty_thousand_holes_are_resident_within_the_bounds<P: Peers>(name: &str) {
    alone(name, || {
        let mut siege: Siege<P> = Siege::new(&Bounds::of(SCARCE), 1);
        siege.leave_holes(50_000);
        siege.attacked.assert_resident(&format!("50,000 flows over {}", P::OVER), false);
        siege.run(Duration::from_secs(20));
        siege.attacked.assert_resident("the same 20 s later", false);
    });
}

/// So many circuits of two neighbours, of whom one alone may have 37,500, each with a hole: what the process has,
/// libraries in C and all.
pub(crate) fn fifty_thousand_holes_of_circuits_are_resident_within_the_bounds<P: Peers>(name: &str) {
    alone(name, || {
        let mut siege: Siege<P> = Siege::new(&Bounds::of(AMPLE), 2);
        siege.leave_holes_of_circuits(25_000, 1);
        assert!(siege.attacked.relay.in_use().circuits >= 50_000);
        siege.attacked.assert_resident(&format!("50,000 circuits over {}", P::OVER), true);
    });
}

/// What lets circuits of two neighbours begin, 50,000 with an answer to each, and some cells more.
const BEGINNINGS: u64 = 40_000_000;

/// So many circuits of two neighbours, all filled when a rate that has let much pass lets nothing be read any more:
/// what the process has is what is said.
pub(crate) fn fifty_thousand_unread_circuits_are_resident_as_is_said<P: Peers>(name: &str) {
    alone(name, || {
        let mut siege: Siege<P> = Siege::new(&used_up_after(BEGINNINGS, AMPLE), 2);
        siege.fill_circuits(25_000, 4);
        let held = siege.attacked.relay.in_use();
        assert!(held.circuits >= 50_000 && held.flow_bytes > 10_000_000, "{held:?}");
        siege.attacked.assert_resident(&format!("50,000 unread circuits over {}", P::OVER), true);
        let read = siege.read_cells();
        siege.run(Duration::from_secs(20));
        let then = (siege.read_cells() - read) * CELL_LEN as u64;
        assert!((700_000..3_000_000).contains(&then), "{then} bytes were read in 20 s");
        siege.attacked.assert_resident("the same 20 s later", false);
    });
}

/// The same where there is memory for few of them, so that most end.
pub(crate) fn fifty_thousand_unread_circuits_are_resident_within_the_bounds<P: Peers>(name: &str) {
    alone(name, || {
        let mut siege: Siege<P> = Siege::new(&used_up_after(BEGINNINGS, SCARCE), 2);
        siege.fill_circuits(25_000, 4);
        siege.attacked.assert_resident(&format!("50,000 unread circuits over {}", P::OVER), false);
        siege.run(Duration::from_secs(20));
        siege.attacked.assert_resident("the same 20 s later", false);
        assert!(siege.attacked.pressures > 0, "memory was short");
    });
}

/// As many flows of as many neighbours as there may be here, each with what may wait of its flows however little is
/// read, which is more than there is memory for.
pub(crate) fn unread_flows_of_many_neighbours_are_resident_within_the_bounds<P: Peers>(name: &str) {
    alone(name, || {
        // Handshakes and acknowledgements pass.
        let mut siege: Siege<P> = Siege::new(&used_up_after(4_000_000, SCARCE), 97);
        siege.fill_circuits(512, 1);
        siege.attacked.assert_resident(&format!("97 neighbours with 512 flows over {}", P::OVER), false);
        siege.run(Duration::from_secs(20));
        siege.attacked.assert_resident("the same 20 s later", false);
        assert!(siege.attacked.pressures > 0, "memory was short");
    });
}
