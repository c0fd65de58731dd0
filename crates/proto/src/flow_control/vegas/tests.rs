use super::*;
use crate::flow_control::Digests;
use heddle_seam::rng::Seed;
use heddle_seam::time::Duration;
use proptest::prelude::*;

fn at_us(us: u64) -> Instant {
    Instant::from_nanos(us * 1_000)
}

fn on_sendme(flow: &mut Vegas, now: Instant) -> Result<(), Violation> {
    flow.on_sendme(now, SendmeContext::default())
}

/// One row of stock tor's own test of its Vegas: sent, answered, channel blocked, in flight;
/// smoothed RTT, smallest RTT, window, slow start, full, blocked after.
type Row = (u64, u64, u32, u32, u64, u64, u32, u32, u32, u32);

fn run(rows: &[Row]) {
    let mut flow = Vegas::new(VegasParams::default());
    for (row, &(sent_us, now_us, blocked, inflight, ewma, min, cwnd, ss, full, still)) in
        rows.iter().enumerate()
    {
        flow.rtt.on_sent(at_us(sent_us), 1);
        flow.inflight_cells = inflight;
        let input = SendmeContext { channel_blocked: blocked == 1, queued_cells: 0 };
        assert_eq!(flow.on_sendme(at_us(now_us), input), Ok(()));
        let state = flow.snapshot();
        assert_eq!(state.rtt, Some(Duration::from_micros(ewma)), "row {row}");
        assert_eq!(state.rtt_min, Some(Duration::from_micros(min)), "row {row}");
        assert_eq!(state.window_cells, cwnd, "row {row}");
        assert_eq!(state.slow_start, ss == 1, "row {row}");
        assert_eq!(flow.full, full == 1, "row {row}");
        assert_eq!(flow.channel_blocked, still == 1, "row {row}");
        if blocked == 1 {
            assert_eq!(flow.until_step_sendmes, flow.update_rate(), "row {row}");
        }
    }
}

#[test]
fn stock_vector_slow_start_ends_by_gamma_then_all_signals() {
    run(&[
        (100_000, 200_000, 0, 124, 100_000, 100_000, 155, 1, 0, 0),
        (200_000, 300_000, 0, 155, 100_000, 100_000, 186, 1, 1, 0),
        (350_000, 500_000, 0, 186, 133_333, 100_000, 217, 1, 1, 0),
        (500_000, 550_000, 0, 217, 77_777, 77_777, 248, 1, 1, 0),
        (600_000, 700_000, 0, 248, 92_592, 77_777, 279, 1, 1, 0),
        (700_000, 750_000, 0, 279, 64_197, 64_197, 310, 1, 0, 0),
        (750_000, 875_000, 0, 310, 104_732, 64_197, 341, 1, 1, 0),
        (875_000, 900_000, 0, 341, 51_577, 51_577, 372, 1, 1, 0),
        (900_000, 950_000, 0, 279, 50_525, 50_525, 403, 1, 1, 0),
        (950_000, 1_000_000, 0, 279, 50_175, 50_175, 434, 1, 1, 0),
        (1_000_000, 1_050_000, 0, 279, 50_058, 50_058, 465, 1, 1, 0),
        (1_050_000, 1_100_000, 0, 279, 50_019, 50_019, 496, 1, 1, 0),
        (1_100_000, 1_150_000, 0, 279, 50_006, 50_006, 527, 1, 1, 0),
        (1_150_000, 1_200_000, 0, 279, 50_002, 50_002, 558, 1, 1, 0),
        (1_200_000, 1_250_000, 0, 550, 50_000, 50_000, 589, 1, 1, 0),
        (1_250_000, 1_300_000, 0, 550, 50_000, 50_000, 620, 1, 0, 0),
        (1_300_000, 1_350_000, 0, 550, 50_000, 50_000, 635, 1, 1, 0),
        (1_350_000, 1_400_000, 0, 550, 50_000, 50_000, 650, 1, 1, 0),
        (1_400_000, 1_450_000, 0, 150, 50_000, 50_000, 650, 1, 0, 0),
        (1_450_000, 1_500_000, 0, 150, 50_000, 50_000, 650, 1, 0, 0),
        (1_500_000, 1_550_000, 0, 550, 50_000, 50_000, 664, 1, 1, 0),
        (1_500_000, 1_600_000, 0, 550, 83_333, 50_000, 584, 0, 1, 0),
        (1_600_000, 1_650_000, 0, 550, 61_111, 50_000, 585, 0, 1, 0),
        (1_650_000, 1_700_000, 0, 550, 53_703, 50_000, 586, 0, 1, 0),
        (1_700_000, 1_750_000, 0, 100, 51_234, 50_000, 586, 0, 0, 0),
        (1_750_000, 1_900_000, 0, 100, 117_078, 50_000, 559, 0, 0, 0),
        (1_900_000, 2_000_000, 0, 100, 105_692, 50_000, 558, 0, 0, 0),
        (2_000_000, 2_075_000, 0, 500, 85_230, 50_000, 558, 0, 1, 0),
        (2_075_000, 2_125_000, 1, 500, 61_743, 50_000, 557, 0, 1, 1),
        (2_125_000, 2_150_000, 0, 500, 37_247, 37_247, 558, 0, 1, 0),
        (2_150_000, 2_350_000, 0, 500, 145_749, 37_247, 451, 0, 1, 0),
    ]);
}

#[test]
fn stock_vector_slow_start_ends_by_a_blocked_channel() {
    run(&[
        (100_000, 200_000, 0, 124, 100_000, 100_000, 155, 1, 0, 0),
        (200_000, 300_000, 0, 155, 100_000, 100_000, 186, 1, 1, 0),
        (350_000, 500_000, 0, 186, 133_333, 100_000, 217, 1, 1, 0),
        (500_000, 550_000, 1, 217, 77_777, 77_777, 403, 0, 1, 1),
        (600_000, 700_000, 0, 248, 92_592, 77_777, 404, 0, 1, 0),
        (700_000, 750_000, 1, 404, 64_197, 64_197, 403, 0, 0, 1),
        (750_000, 875_000, 0, 403, 104_732, 64_197, 404, 0, 1, 0),
    ]);
}

#[test]
fn stock_vector_first_recorded_upload() {
    run(&[
        (18_258_527, 19_002_938, 0, 83, 744_411, 744_411, 155, 1, 0, 0),
        (18_258_580, 19_254_257, 0, 52, 911_921, 744_411, 186, 1, 1, 0),
        (20_003_224, 20_645_298, 0, 164, 732_023, 732_023, 217, 1, 1, 0),
        (20_003_367, 21_021_444, 0, 133, 922_725, 732_023, 248, 1, 1, 0),
        (20_003_845, 21_265_508, 0, 102, 1_148_683, 732_023, 279, 1, 1, 0),
        (20_003_975, 21_429_157, 0, 71, 1_333_015, 732_023, 310, 1, 0, 0),
        (20_004_309, 21_707_677, 0, 40, 1_579_917, 732_023, 310, 1, 0, 0),
    ]);
}

#[test]
fn stock_vector_second_recorded_upload() {
    run(&[
        (358_297_091, 358_854_163, 0, 83, 557_072, 557_072, 155, 1, 0, 0),
        (358_297_649, 359_123_845, 0, 52, 736_488, 557_072, 186, 1, 1, 0),
        (359_492_879, 359_995_330, 0, 186, 580_463, 557_072, 217, 1, 1, 0),
        (359_493_043, 360_489_243, 0, 217, 857_621, 557_072, 248, 1, 1, 0),
        (359_493_232, 360_489_673, 0, 248, 950_167, 557_072, 279, 1, 1, 0),
        (359_493_795, 360_489_971, 0, 279, 980_839, 557_072, 310, 1, 0, 0),
        (359_493_918, 360_490_248, 0, 310, 991_166, 557_072, 341, 1, 1, 0),
        (359_494_029, 360_716_465, 0, 341, 1_145_346, 557_072, 372, 1, 1, 0),
        (359_996_888, 360_948_867, 0, 372, 1_016_434, 557_072, 403, 1, 1, 0),
        (359_996_979, 360_949_330, 0, 403, 973_712, 557_072, 434, 1, 1, 0),
        (360_489_528, 361_113_615, 0, 434, 740_628, 557_072, 465, 1, 1, 0),
        (360_489_656, 361_281_604, 0, 465, 774_841, 557_072, 496, 1, 1, 0),
        (360_489_837, 361_500_461, 0, 496, 932_029, 557_072, 482, 0, 1, 0),
        (360_489_963, 361_500_631, 0, 482, 984_455, 557_072, 482, 0, 1, 0),
        (360_490_117, 361_842_481, 0, 482, 1_229_727, 557_072, 481, 0, 1, 0),
    ]);
}

#[test]
fn every_31st_cell_is_answered_from_the_first_on() {
    let mut flow = Vegas::new(VegasParams::default());
    let answered: Vec<u32> = (1..=124).filter(|_| flow.on_sent(Instant::ZERO)).collect();
    assert_eq!(answered, [31, 62, 93, 124]);
    assert_eq!(flow.room(), 0);
    let asked: Vec<u32> = (1..=100).filter(|_| flow.on_received()).collect();
    assert_eq!(asked, [31, 62, 93]);
}

#[test]
fn a_sendme_for_cells_that_were_never_sent_is_a_violation() {
    let mut flow = Vegas::new(VegasParams::default());
    assert_eq!(on_sendme(&mut flow, at_us(1)), Err(Violation::UnexpectedSendme));
    for _ in 0..61 {
        flow.on_sent(at_us(1));
    }
    assert_eq!(on_sendme(&mut flow, at_us(2)), Ok(()));
    assert_eq!(on_sendme(&mut flow, at_us(3)), Err(Violation::UnexpectedSendme));
    assert_eq!(flow.snapshot().inflight_cells, 30);
}

#[test]
fn a_clock_that_stands_still_frees_the_window_but_teaches_nothing() {
    let mut flow = Vegas::new(VegasParams::default());
    for _ in 0..124 {
        flow.on_sent(at_us(7));
    }
    assert_eq!(on_sendme(&mut flow, at_us(7)), Ok(()));
    assert_eq!(flow.snapshot().rtt, None);
    assert_eq!((flow.snapshot().window_cells, flow.room()), (124, 31));
    // A blocked channel is a signal even then: the window goes to what is not queued, and gamma.
    let input = SendmeContext { channel_blocked: true, queued_cells: 1_000 };
    assert_eq!(flow.on_sendme(at_us(7), input), Ok(()));
    assert_eq!(flow.snapshot().window_cells, 124 + 186);
    assert!(!flow.snapshot().slow_start);
}

/// A circuit whose only queue is a bottleneck: cells leave it one by one and come back as SENDMEs.
/// Returns the flow and the longest queue of the second half, in cells.
fn bottleneck(cell_us: u64, delay_us: u64, cells: u32) -> (Vegas, u64) {
    let mut flow = Vegas::new(VegasParams::default());
    let (mut now_us, mut free_us, mut sent, mut queue_max) = (0, 0, 0, 0);
    let mut returning = std::collections::VecDeque::new();
    while sent < cells {
        while flow.room() > 0 {
            assert!(sent < 2 * cells, "the window is never full");
            free_us = now_us.max(free_us) + cell_us;
            if sent > cells / 2 {
                queue_max = queue_max.max((free_us - now_us) / cell_us);
            }
            if flow.on_sent(at_us(now_us)) {
                returning.push_back(free_us + delay_us);
            }
            sent += 1;
        }
        now_us = returning.pop_front().expect("a full window has a SENDME under way");
        on_sendme(&mut flow, at_us(now_us)).expect("it was awaited");
    }
    (flow, queue_max)
}

/// The purpose of it all: the window settles at the bandwidth-delay product and a few hundred
/// cells, whatever the wire.
#[test]
fn the_queue_at_a_bottleneck_settles_between_alpha_and_delta() {
    for (cell_us, delay_us) in [(100, 100_000), (400, 100_000), (1_000, 300_000), (200, 20_000)] {
        let (flow, queue_max) = bottleneck(cell_us, delay_us, 200_000);
        let bdp_cells = delay_us / cell_us;
        let window = u64::from(flow.snapshot().window_cells);
        assert!(!flow.snapshot().slow_start);
        assert!(window >= bdp_cells, "{window} for {bdp_cells}");
        assert!(window <= bdp_cells + 400, "{window} for {bdp_cells}");
        assert!(queue_max <= 400, "{queue_max} in the queue");
    }
}

#[test]
fn the_same_run_twice_ends_in_the_same_state() {
    let state = || format!("{:?}", bottleneck(250, 80_000, 50_000));
    assert_eq!(state(), state());
}

/// Two ends and their digests over a long random exchange with jitter, blocking and reordering of
/// nothing: every SENDME is expected, and the window is never exceeded at the moment of sending.
#[test]
fn two_ends_agree_and_never_exceed_the_window() {
    let mut rng = Seed::from_number(2).rng();
    for sendme_cells in [1, 2, 31, 254] {
        let params = VegasParams { sendme_cells, ..VegasParams::default() };
        let (mut sender, mut receiver) = (Vegas::new(params.clone()), Vegas::new(params));
        let mut digests = Digests::new(sender.pending_max());
        let mut returning = std::collections::VecDeque::new();
        let (mut now_us, mut cell) = (0, 0_u64);
        for _ in 0..50_000 {
            now_us += rng.below(500);
            if (rng.below(sendme_cells.into()) == 0 || sender.room() == 0) && !returning.is_empty() {
                let tag: [u8; 20] = returning.pop_front().expect("it is not empty");
                digests.check(&tag).expect("the oldest");
                let channel_blocked = rng.below(20) == 0;
                let input = SendmeContext { channel_blocked, queued_cells: rng.next_u32() };
                sender.on_sendme(at_us(now_us), input).expect("it was awaited");
            } else if sender.room() > 0 {
                cell += 1;
                let mut tag = [0; 20];
                tag[..8].copy_from_slice(&cell.to_le_bytes());
                if sender.on_sent(at_us(now_us)) {
                    digests.expect(tag);
                }
                if receiver.on_received() {
                    returning.push_back(tag);
                }
                let state = sender.snapshot();
                assert!(state.inflight_cells <= state.window_cells);
            }
            assert_eq!(digests.len(), returning.len());
            assert!(sender.room() > 0 || !returning.is_empty(), "blocked for ever");
        }
    }
}

fn any_params() -> impl Strategy<Value = VegasParams> {
    prop::array::uniform20(prop_oneof![0_u32..1_000, any::<u32>()]).prop_map(|n| VegasParams {
        sendme_cells: n[0],
        cwnd_init_cells: n[1],
        cwnd_min_cells: n[2],
        cwnd_max_cells: n[3],
        cwnd_inc_cells: n[4],
        cwnd_inc_rate: n[5],
        cwnd_inc_ss_pct: n[6],
        ewma_cwnd_pct: n[7],
        ewma_max_sendmes: n[8],
        ewma_ss_sendmes: n[9],
        rtt_reset_pct: n[10],
        alpha_cells: n[11],
        beta_cells: n[12],
        gamma_cells: n[13],
        delta_cells: n[14],
        ss_cap_cells: n[15],
        ss_max_cells: n[16],
        full_gap_sendmes: n[17],
        full_min_pct: n[18],
        full_per_cwnd: n[19] % 2 == 0,
    })
}

proptest! {
    /// No parameters, times or order of calls break the arithmetic, lift the window above its
    /// bound, or push it below what one SENDME acknowledges.
    #[test]
    fn nothing_a_peer_or_a_consensus_can_do_panics(
        params in any_params(),
        calls in prop::collection::vec((0..4, any::<u64>(), any::<bool>(), any::<u32>()), 1..400),
    ) {
        let mut flow = Vegas::new(params);
        let (least, most) = (flow.params.sendme_cells, flow.params.cwnd_max_cells);
        for (call, ns, channel_blocked, number) in calls {
            let now = Instant::from_nanos(ns);
            match call {
                0 => for _ in 0..number % 300 { flow.on_sent(now); },
                1 => drop(flow.on_sendme(now, SendmeContext { channel_blocked, queued_cells: number })),
                2 => drop(on_sendme(&mut flow, now)),
                _ => drop(flow.on_received()),
            }
            let state = flow.snapshot();
            prop_assert!((least..=most).contains(&state.window_cells));
            prop_assert!(flow.room() <= most);
        }
    }
}
