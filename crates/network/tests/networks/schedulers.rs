//! Which channel of a relay sends next, in virtual time: pages of one client beside bulk downloads of many others, at
//! an exit whose operator allows less than they want. Each client has a guard of its own, and so a channel to the exit
//! of its own. So this is what KIST was made for ("Never Been KIST", USENIX Security 2014): the choice among circuits
//! of different channels.

use heddle_client::ExchangeState;
use heddle_network::{Net, Plan, add_client, download};
use heddle_relay::Scheduler;
use heddle_seam::time::{Duration, Instant};
use heddle_sim::Wire;

const RATE_BYTES_PER_S: u64 = 1 << 20;
const HALF_LIFE: Duration = Duration::from_secs(30);
const PAGE_BYTES: u64 = 20 << 10;
const PAGES: u64 = 7;

#[derive(Debug)]
struct Found {
    first_byte_ms: f64,
    page_ms: f64,
    /// Bytes of all clients in a second, over what the operator allows.
    used: f64,
}

fn measure(scheduler: Scheduler, bulk_clients: u8) -> Found {
    let exit = usize::from(bulk_clients) + 1;
    let mut plan = Plan {
        shards: vec![1; exit + 1],
        wire: Wire { latency: Duration::from_millis(20), ..Wire::default() },
        slow: Some((exit, RATE_BYTES_PER_S)),
        ..Plan::default()
    };
    plan.torrc.heddle.scheduler = scheduler;
    let mut net = Net::new(&plan);
    let web = net.client;
    let circuit = net.build(&[0, exit], true);
    let mut downloads = Vec::new();
    for number in 1..=bulk_clients {
        net.client = add_client(&mut net.sim, number);
        let circuit = net.build(&[number.into(), exit], true);
        downloads.push((net.client, net.begin(circuit, download(1 << 40))));
    }
    net.sim.run_for(Duration::from_secs(5));
    let received = |net: &mut Net| -> u64 {
        let each = downloads.iter().map(|(client, exchange)| {
            net.client = *client;
            net.await_status(*exchange, Duration::from_secs(1), |_| true).received_bytes
        });
        each.sum()
    };
    let before = received(&mut net);
    let (mut first_bytes, mut pages, mut took_s) = (Vec::new(), Vec::new(), 0.0);
    net.client = web;
    for page in 0..PAGES {
        let pause = Duration::from_millis(1000 + page * 137 % 2000);
        net.sim.run_for(pause);
        let page = net.begin(circuit, download(PAGE_BYTES));
        let status = net.await_status(page, Duration::from_secs(120), |status| {
            matches!(status.state, ExchangeState::Ended(_) | ExchangeState::Lost(_))
        });
        assert_eq!(status.received_bytes, PAGE_BYTES, "{status:?}");
        let since = |at: Option<Instant>| at.expect("it is over").since(status.begun_at).as_secs_f64();
        first_bytes.push(since(status.first_byte_at) * 1000.0);
        pages.push(since(status.ended_at) * 1000.0);
        took_s += pause.as_secs_f64() + since(status.ended_at);
    }
    let bytes = received(&mut net) - before + PAGES * PAGE_BYTES;
    let median = |values: &mut [f64]| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    // Of a cell's 514 bytes 498 are data, and TLS has some of its own.
    let used = bytes as f64 / took_s / RATE_BYTES_PER_S as f64 * 514.0 / 498.0;
    Found { first_byte_ms: median(&mut first_bytes), page_ms: median(&mut pages), used }
}

#[test]
fn a_page_waits_for_no_bulk_channel_where_links_are_chosen() {
    let alone = measure(Scheduler::RoundRobin, 0);
    println!("alone: {alone:.2?}");
    for bulk_clients in [2, 12] {
        let [round_robin, ewma, kist] = [
            Scheduler::RoundRobin,
            Scheduler::Ewma { half_life: HALF_LIFE },
            Scheduler::Kist { half_life: HALF_LIFE, interval: Duration::ZERO },
        ]
        .map(|scheduler| {
            let found = measure(scheduler, bulk_clients);
            println!("{bulk_clients} bulk channels, {scheduler:?}: {found:.2?}");
            found
        });
        assert!(kist.first_byte_ms <= round_robin.first_byte_ms, "{bulk_clients}: {kist:?} {round_robin:?}");
        let excess = |found: &Found| found.page_ms - alone.page_ms;
        for other in [&round_robin, &ewma] {
            assert!(excess(&kist) < excess(other) / 2.0, "{bulk_clients}: {kist:?} {other:?}");
        }
        for found in [round_robin, ewma, kist] {
            assert!((0.9..=1.05).contains(&found.used), "{bulk_clients}: {found:?}");
        }
    }
}
