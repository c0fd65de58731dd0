//! What the consensus says about Vegas (proposal 324, section 6.5). Defaults and ranges are those
//! of stock tor 0.4.9.

use super::super::consensus_param;

/// Cells that fit into the largest TLS record.
const TLS_RECORD_CELLS: i32 = 31;
/// Cells that a stock relay lets wait in the output buffer of a channel: two TLS records.
const OUTBUF_CELLS: i32 = 2 * TLS_RECORD_CELLS;
/// Our own limit to any congestion window, so that the memory of a circuit is bounded: 65,536
/// cells are 33 MB in flight, or 870 Mbit/s at a round-trip time of 0.3 s. The consensus may ask
/// for less (`cc_cwnd_max`), never for more.
const CWND_CELLS_MAX: u32 = 1 << 16;

/// The kind of path a circuit takes, because longer paths have more queues to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Three hops to an exit, or to an onion service without a client's own hops.
    Exit,
    /// Six hops to an onion service.
    Onion,
    /// The two hops of a bandwidth measurement.
    Sbws,
}

impl Path {
    fn suffix(self) -> &'static str {
        match self {
            Path::Exit => "exit",
            Path::Onion => "onion",
            Path::Sbws => "sbws",
        }
    }

    /// The defaults of alpha, beta, gamma, delta and the cap of slow start.
    fn defaults(self) -> [i32; 5] {
        const Q: i32 = OUTBUF_CELLS;
        match self {
            Path::Exit => [3 * Q, 4 * Q, 3 * Q, 5 * Q, 600],
            Path::Onion => [3 * Q, 6 * Q, 4 * Q, 7 * Q, 475],
            Path::Sbws => [2 * Q - Q / 2, 2 * Q + Q / 2, 2 * Q, 4 * Q, 400],
        }
    }
}

/// The parameters of Vegas. Each names the consensus parameter it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VegasParams {
    /// `cc_sendme_inc`: cells that one SENDME acknowledges, 1 to 254. The exit's value holds on
    /// both ends; it is negotiated in the circuit's handshake.
    pub sendme_cells: u32,
    /// `cc_cwnd_init`: the first congestion window.
    pub cwnd_init_cells: u32,
    /// `cc_cwnd_min`: the smallest congestion window in the steady state.
    pub cwnd_min_cells: u32,
    /// `cc_cwnd_max`: the largest congestion window.
    pub cwnd_max_cells: u32,
    /// `cc_cwnd_inc`: what one step of the steady state adds or removes.
    pub cwnd_inc_cells: u32,
    /// `cc_cwnd_inc_rate`: steps in a congestion window's worth of SENDMEs.
    pub cwnd_inc_rate: u32,
    /// `cc_cwnd_inc_pct_ss`: what slow start adds for a SENDME, in percent of its cells.
    pub cwnd_inc_ss_pct: u32,
    /// `cc_ewma_cwnd_pct`: SENDMEs over which the RTT is smoothed, in percent of those between
    /// two steps.
    pub ewma_cwnd_pct: u32,
    /// `cc_ewma_max`: the most SENDMEs over which the RTT is smoothed.
    pub ewma_max_sendmes: u32,
    /// `cc_ewma_ss`: SENDMEs over which the RTT is smoothed in slow start.
    pub ewma_ss_sendmes: u32,
    /// `cc_rtt_reset_pct`: where the smallest RTT goes when the window is at its smallest: this
    /// part of the larger of it and the smoothed RTT, and the rest of the smaller.
    pub rtt_reset_pct: u32,
    /// `cc_vegas_alpha_*`: cells in queues below which the window grows.
    pub alpha_cells: u32,
    /// `cc_vegas_beta_*`: cells in queues above which the window shrinks.
    pub beta_cells: u32,
    /// `cc_vegas_gamma_*`: cells in queues that end slow start.
    pub gamma_cells: u32,
    /// `cc_vegas_delta_*`: cells in queues above which the window falls at once.
    pub delta_cells: u32,
    /// `cc_sscap_*`: the window above which slow start slows down (RFC 3742).
    pub ss_cap_cells: u32,
    /// `cc_ss_max`: the window that ends slow start in any case.
    pub ss_max_cells: u32,
    /// `cc_cwnd_full_gap`: a window counts as full with this many SENDMEs' worth unused.
    pub full_gap_sendmes: u32,
    /// `cc_cwnd_full_minpct`: a window counts as not full below this percentage in flight.
    pub full_min_pct: u32,
    /// `cc_cwnd_full_per_cwnd`: whether fullness is forgotten once per window, not per step.
    pub full_per_cwnd: bool,
}

impl Default for VegasParams {
    fn default() -> Self {
        VegasParams::from_consensus(Path::Exit, &|_| None)
    }
}

impl VegasParams {
    /// The parameters for circuits of this path. `lookup` gives the number that the consensus has
    /// for a name, if it has one.
    pub fn from_consensus(path: Path, lookup: &dyn Fn(&str) -> Option<i32>) -> Self {
        let get = |name: &str, default, range| consensus_param(lookup, name, default, range);
        let of_path = |stem: &str, default, range| {
            consensus_param(lookup, &format!("{stem}_{}", path.suffix()), default, range)
        };
        let [alpha, beta, gamma, delta, ss_cap] = path.defaults();
        const INC: i32 = TLS_RECORD_CELLS;
        VegasParams {
            sendme_cells: get("cc_sendme_inc", INC, 1..=254),
            cwnd_init_cells: get("cc_cwnd_init", 4 * INC, INC..=10_000),
            cwnd_min_cells: get("cc_cwnd_min", 4 * INC, INC..=1_000),
            cwnd_max_cells: get("cc_cwnd_max", i32::MAX, 500..=i32::MAX),
            cwnd_inc_cells: get("cc_cwnd_inc", 1, 1..=1_000),
            cwnd_inc_rate: get("cc_cwnd_inc_rate", INC, 1..=250),
            cwnd_inc_ss_pct: get("cc_cwnd_inc_pct_ss", 100, 1..=500),
            ewma_cwnd_pct: get("cc_ewma_cwnd_pct", 50, 1..=255),
            ewma_max_sendmes: get("cc_ewma_max", 10, 2..=i32::MAX),
            ewma_ss_sendmes: get("cc_ewma_ss", 2, 2..=i32::MAX),
            rtt_reset_pct: get("cc_rtt_reset_pct", 100, 0..=100),
            alpha_cells: of_path("cc_vegas_alpha", alpha, 0..=1_000),
            beta_cells: of_path("cc_vegas_beta", beta, 0..=1_000),
            gamma_cells: of_path("cc_vegas_gamma", gamma, 0..=1_000),
            delta_cells: of_path("cc_vegas_delta", delta, 0..=i32::MAX),
            ss_cap_cells: of_path("cc_sscap", ss_cap, 100..=i32::MAX),
            ss_max_cells: get("cc_ss_max", 5_000, 500..=i32::MAX),
            full_gap_sendmes: get("cc_cwnd_full_gap", 4, 0..=i32::from(i16::MAX)),
            full_min_pct: get("cc_cwnd_full_minpct", 25, 0..=100),
            full_per_cwnd: get("cc_cwnd_full_per_cwnd", 1, 0..=1) == 1,
        }
    }

    /// The same with what would divide by zero or block a circuit for ever put right: a window
    /// smaller than `sendme_cells` would never see a SENDME.
    pub(super) fn normalized(mut self) -> Self {
        self.sendme_cells = self.sendme_cells.clamp(1, 254);
        self.cwnd_inc_rate = self.cwnd_inc_rate.max(1);
        self.rtt_reset_pct = self.rtt_reset_pct.min(100);
        self.cwnd_max_cells = self.cwnd_max_cells.clamp(self.sendme_cells, CWND_CELLS_MAX);
        let range = self.sendme_cells..=self.cwnd_max_cells;
        self.cwnd_min_cells = self.cwnd_min_cells.clamp(*range.start(), *range.end());
        self.cwnd_init_cells = self.cwnd_init_cells.clamp(*range.start(), *range.end());
        self
    }
}

/// Whether the consensus lets circuits negotiate congestion control (`cc_alg`). Only 0 means no;
/// the algorithms besides Vegas are gone, and their numbers mean Vegas.
pub(crate) fn congestion_control_enabled(lookup: &dyn Fn(&str) -> Option<i32>) -> bool {
    const VEGAS: i32 = 2;
    consensus_param(lookup, "cc_alg", VEGAS, 0..=VEGAS) != 0
}

/// Whether an origin may accept what an exit answered for `cc_sendme_inc`: within a factor of two
/// of what the origin's own consensus says (proposal 324, section 10.3).
pub fn sendme_inc_acceptable(ours: u8, theirs: u8) -> bool {
    theirs != 0 && theirs >= ours / 2 && u16::from(theirs) <= 2 * u16::from(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_stock_tor() {
        let exit = VegasParams::default();
        assert_eq!(exit.sendme_cells, 31);
        assert_eq!((exit.cwnd_init_cells, exit.cwnd_min_cells), (124, 124));
        assert_eq!((exit.cwnd_inc_cells, exit.cwnd_inc_rate), (1, 31));
        assert_eq!((exit.alpha_cells, exit.beta_cells), (186, 248));
        assert_eq!((exit.gamma_cells, exit.delta_cells), (186, 310));
        assert_eq!((exit.ss_cap_cells, exit.ss_max_cells), (600, 5_000));
        let onion = VegasParams::from_consensus(Path::Onion, &|_| None);
        assert_eq!((onion.alpha_cells, onion.beta_cells), (186, 372));
        let sbws = VegasParams::from_consensus(Path::Sbws, &|_| None);
        assert_eq!((sbws.alpha_cells, sbws.beta_cells), (93, 155));
    }

    #[test]
    fn the_consensus_decides_within_the_ranges() {
        let lookup = |name: &str| match name {
            "cc_vegas_alpha_onion" => Some(7),
            "cc_vegas_alpha_exit" => Some(8),
            "cc_cwnd_min" => Some(-5),
            "cc_cwnd_inc_rate" => Some(9_999),
            "cc_cwnd_full_per_cwnd" => Some(0),
            _ => None,
        };
        let params = VegasParams::from_consensus(Path::Onion, &lookup);
        assert_eq!(params.alpha_cells, 7);
        assert_eq!(params.cwnd_min_cells, 31);
        assert_eq!(params.cwnd_inc_rate, 250);
        assert!(!params.full_per_cwnd);
    }

    #[test]
    fn only_zero_turns_congestion_control_off() {
        assert!(congestion_control_enabled(&|_| None));
        assert!(congestion_control_enabled(&|_| Some(2)));
        assert!(congestion_control_enabled(&|_| Some(1)));
        assert!(!congestion_control_enabled(&|_| Some(0)));
    }

    #[test]
    fn an_exit_may_answer_within_a_factor_of_two() {
        let accepted: Vec<u8> = (0..=255).filter(|&n| sendme_inc_acceptable(31, n)).collect();
        assert_eq!(accepted, (15..=62).collect::<Vec<_>>());
        assert!(!sendme_inc_acceptable(1, 0));
    }

    #[test]
    fn no_parameters_can_make_a_window_that_blocks_for_ever() {
        let params = VegasParams {
            sendme_cells: 0,
            cwnd_inc_rate: 0,
            cwnd_max_cells: u32::MAX,
            cwnd_min_cells: 0,
            ..VegasParams::default()
        };
        let params = params.normalized();
        assert_eq!((params.sendme_cells, params.cwnd_min_cells), (1, 1));
        assert_eq!(params.cwnd_max_cells, 65_536);
    }
}
