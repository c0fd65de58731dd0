//! A packet is sealed and opened without an allocation, once there is a buffer. The counter is the process's, so this
//! test is alone in its program.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use heddle_esp::packet::TCP;
use heddle_esp::{Keys, Lifetime, Spi, Tunnel};
use heddle_seam::time::Instant;
use std::alloc::{GlobalAlloc, Layout, System};

#[global_allocator]
static ALLOCATOR: Counting = Counting;
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: all is the system's allocator's doing; counting allocates nothing.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps the rules of this same function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[test]
fn no_packet_costs_an_allocation() {
    let now = Instant::ZERO;
    let [here, there] = [1_000, 2_000].map(|spi| Spi::new(spi).expect("an SPI"));
    let keys = |byte| Keys::from_material(&[byte; 20]);
    let mut ends = [
        Tunnel::new(now, (there, &keys(1)), (here, &keys(2)), Lifetime::default()),
        Tunnel::new(now, (here, &keys(2)), (there, &keys(1)), Lifetime::default()),
    ];
    let (payload, mut datagram) = ([7; 1_400], Vec::with_capacity(2_000));
    let before = ALLOCATIONS.load(Relaxed);
    let mut opened = 0;
    for _ in 0..1_000 {
        datagram.clear();
        ends[0].seal(now, TCP, &payload, &mut datagram).expect("it may seal");
        let content = ends[1].open(now, &mut datagram).expect("authentic").expect("no dummy");
        opened += content.payload.len();
        assert!(ends[1].open(now, &mut datagram).is_err());
    }
    // The harness may write a line on another thread.
    let allocations = ALLOCATIONS.load(Relaxed) - before;
    assert_eq!(opened, 1_000 * payload.len());
    assert!(allocations < 100, "{allocations} allocations for 1,000 packets");
}
