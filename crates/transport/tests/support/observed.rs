//! What the cells of a few circuits leave on the wire while nothing else does.

use crate::bench::{Bench, MS, S, body, delay, dialled, options};
use heddle_netem::DirectionOptions;
use heddle_proto::cell::Command;
use heddle_proto::cell::create::DestroyReason;
use heddle_proto::endpoint::ConnId;

pub struct Observed {
    pub bench: Bench,
    pub conns: (ConnId, ConnId),
}

impl Observed {
    /// Two ends that are at rest, 10 ms apart.
    pub fn new() -> Self {
        Observed::over(delay(10 * MS))
    }

    pub fn over(there: DirectionOptions) -> Self {
        let mut bench = Bench::pair(there, &options());
        let conns = bench.open_ready();
        bench.run_for(5 * S, &mut ());
        bench.record = Some(Vec::new());
        Observed { bench, conns }
    }

    pub fn send(&mut self, end: usize, circuit: u32, command: Command) {
        let Bench { now, ends, .. } = &mut self.bench;
        let conn = if end == 0 { self.conns.0 } else { self.conns.1 };
        let mut body = body(0);
        if command == Command::DESTROY {
            body[0] = DestroyReason::REQUESTED.0;
        }
        ends[end].endpoint.send(*now, conn, dialled(circuit), command, &body);
    }
}
