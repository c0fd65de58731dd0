//! What a neighbour says of credit: cells, and the balance of a circuit that hears them.
//!
//! A balance never lets more be sent than the agreement has room for beyond what was passed on, whatever is said.

use heddle_proto::cell::CircId;
use heddle_proto::credit::{Balance, CreditCell, CreditMessage, HopCredit, N3, N23};
use heddle_seam::time::{Duration, Instant};

/// Bytes that one cell of the input takes.
const CELL_LEN: usize = 23;

pub fn run(data: &[u8]) {
    let n23 = N23 { n2_cells: 10, n3: N3::Static(70) };
    let mut balance = Balance::new(HopCredit::N23(n23));
    let (mut sent, mut now) = (0_u64, Instant::ZERO);
    for body in data.chunks(CELL_LEN) {
        let Some(Ok(cell)) = CreditCell::parse(body) else { continue };
        assert_eq!(CreditCell::parse(&cell.encode()), Some(Ok(cell)), "what is read is written alike");
        if let CreditCell::Circuit { message: CreditMessage::Granted { cells }, .. } = cell {
            let room = u64::from(n23.queue_cells_max());
            assert_eq!(balance.on_granted(cells).is_err(), cells > sent + room);
            assert!(u64::from(balance.room()) <= room);
        }
        // Half of what may be sent is, so that grants of any age come.
        for _ in 0..balance.room().div_ceil(2) {
            balance.on_sent(now);
            sent += 1;
        }
        now += Duration::from_secs(1);
        assert!(!balance.take_ask(now) || balance.room() == 0, "only who may send nothing asks");
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let circ_id = CircId::new(7).expect("not zero");
    let mut said: Vec<_> = [40, 85, 80, 200, u64::MAX]
        .map(|cells| CreditCell::Circuit { circ_id, message: CreditMessage::Granted { cells } })
        .into();
    said.push(CreditCell::Circuit { circ_id, message: CreditMessage::Asked });
    said.push(CreditCell::Agreement(N23 { n2_cells: 10, n3: N3::Static(70) }));
    let padded = |cell: &CreditCell| {
        let mut body = cell.encode();
        body.resize(CELL_LEN, 0);
        body
    };
    let mut seeds: Vec<Vec<u8>> = said.iter().map(padded).collect();
    seeds.push(said.iter().flat_map(padded).collect());
    seeds
}
