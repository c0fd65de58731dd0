//! What a neighbour says of credit: cells, and the ledger of a circuit that hears them.
//!
//! A ledger never lets more be sent than the agreement has room for beyond what was passed on, whatever is said.

use heddle_proto::cell::CircId;
use heddle_proto::credit::{CreditCell, CreditMessage, Ledger, N3, N23};
use heddle_seam::time::{Duration, Instant};

/// Bytes that one cell of the input takes.
const CELL_LEN: usize = 23;

pub fn run(data: &[u8]) {
    let n23 = N23 { n2_cells: 10, n3: N3::Static(70) };
    let mut ledger = Ledger::new(n23, n23);
    let (mut sent, mut now) = (0_u64, Instant::ZERO);
    for body in data.chunks(CELL_LEN) {
        let Some(Ok(cell)) = CreditCell::parse(body) else { continue };
        assert_eq!(CreditCell::parse(&cell.encode()), Some(Ok(cell)), "what is read is written alike");
        if let CreditCell::Circuit { message, .. } = cell {
            let is_boundless = |cells| cells > sent + u64::from(n23.queue_cells_max());
            let expected = matches!(message, CreditMessage::Granted { cells } if is_boundless(cells));
            assert_eq!(ledger.on_message(message).is_err(), expected);
        }
        // Half of what may be sent is, so that grants of any age come.
        for _ in 0..room(&ledger, now).div_ceil(2) {
            ledger.on_sent(now);
            sent += 1;
        }
        now += Duration::from_secs(1);
        ledger.on_starving(now);
        while let Some(word) = ledger.next_word() {
            assert!(word != CreditMessage::Asked || !ledger.has_room(), "only who may send nothing asks");
        }
    }
}

/// How many cells may be sent, which is never more than the agreement has room for.
fn room(ledger: &Ledger, now: Instant) -> u32 {
    let (mut ledger, mut room) = (ledger.clone(), 0);
    while ledger.has_room() {
        ledger.on_sent(now);
        room += 1;
        assert!(room <= 80);
    }
    room
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
