//! Which flow control an end of a circuit runs, where it has a choice.
//!
//! The two ends agree on one thing only, by their handshake: congestion control, with its SENDMEs and XON and XOFF, or
//! the old windows. How many cells an end lets be in flight is its own affair, as long as it keeps to what the other
//! end counts. So an end that is to run windows does not ask for congestion control, or does not agree to it.

use super::fixed::CIRCUIT_WINDOW_CELLS;
use super::{Algorithm, Path, VegasParams, congestion_control_enabled, consensus_param};
use core::fmt;
use core::str::FromStr;

/// What an operator, or whoever experiments, wants of the flow control of circuits that end here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowChoice {
    /// Congestion control if both ends and the consensus have it, else windows as large as the consensus says.
    #[default]
    Auto,
    /// Windows of 1000 cells, as in Tor before 0.4.7 (and in DefenestraTor's "stock").
    Fixed1000,
    /// Windows of 100 cells: DefenestraTor's section 4.1, "small fixed-size circuit windows".
    Fixed100,
    /// Windows that follow the round trip: DefenestraTor's section 4.1, "dynamic circuit windows".
    Dynamic,
    /// Congestion control if the other end has it, whatever the consensus says.
    Vegas,
}

impl FlowChoice {
    /// All there are.
    pub const ALL: [FlowChoice; 5] = [
        FlowChoice::Auto,
        FlowChoice::Fixed1000,
        FlowChoice::Fixed100,
        FlowChoice::Dynamic,
        FlowChoice::Vegas,
    ];

    /// Its name in torrc and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            FlowChoice::Auto => "auto",
            FlowChoice::Fixed1000 => "fixed-1000",
            FlowChoice::Fixed100 => "fixed-100",
            FlowChoice::Dynamic => "dynamic",
            FlowChoice::Vegas => "vegas",
        }
    }

    /// Whether to ask for congestion control, or to agree to it, by this consensus.
    pub fn wants_congestion_control(self, lookup: &dyn Fn(&str) -> Option<i32>) -> bool {
        match self {
            FlowChoice::Auto => congestion_control_enabled(lookup),
            FlowChoice::Vegas => true,
            FlowChoice::Fixed1000 | FlowChoice::Fixed100 | FlowChoice::Dynamic => false,
        }
    }

    /// What an exit, or a client towards an exit, runs. `agreed` is the number of cells for each SENDME when the
    /// handshake agreed on congestion control; then nothing else is possible.
    pub fn algorithm(self, agreed: Option<u8>, lookup: &dyn Fn(&str) -> Option<i32>) -> Algorithm {
        if let Some(sendme_inc) = agreed {
            let params = VegasParams::from_consensus(Path::Exit, lookup);
            return Algorithm::Vegas(VegasParams { sendme_cells: sendme_inc.into(), ..params });
        }
        match self {
            FlowChoice::Fixed1000 => Algorithm::Fixed(CIRCUIT_WINDOW_CELLS),
            FlowChoice::Fixed100 => Algorithm::Fixed(100),
            FlowChoice::Dynamic => Algorithm::Dynamic,
            FlowChoice::Auto | FlowChoice::Vegas => {
                let cells = consensus_param(lookup, "circwindow", CIRCUIT_WINDOW_CELLS.into(), 100..=1000);
                Algorithm::Fixed(u16::try_from(cells).unwrap_or(CIRCUIT_WINDOW_CELLS))
            }
        }
    }
}

impl fmt::Display for FlowChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for FlowChoice {
    type Err = String;

    /// A name, in any case.
    fn from_str(text: &str) -> Result<Self, String> {
        let found = FlowChoice::ALL.into_iter().find(|choice| choice.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| {
            format!("`{text}` is none of {}", FlowChoice::ALL.map(FlowChoice::name).join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow_control::{self, StreamControl};

    #[test]
    fn names_are_read_as_they_are_written() {
        for choice in FlowChoice::ALL {
            assert_eq!(choice.to_string().to_ascii_uppercase().parse(), Ok(choice));
        }
        assert_eq!(FlowChoice::default(), FlowChoice::Auto);
        let error = "fixed-500".parse::<FlowChoice>().unwrap_err();
        assert_eq!(error, "`fixed-500` is none of auto, fixed-1000, fixed-100, dynamic, vegas");
    }

    #[test]
    fn an_agreement_binds_and_without_one_there_are_windows() {
        let consensus = |name: &str| (name == "circwindow").then_some(300);
        let windows = FlowChoice::ALL.map(|choice| {
            let agreed = flow_control::new(choice.algorithm(Some(31), &consensus));
            assert_eq!(agreed.stream_control(), StreamControl::XonXoff);
            assert_eq!(agreed.snapshot().sendme_cells, 31);
            let windows = flow_control::new(choice.algorithm(None, &consensus));
            assert_eq!(
                (windows.stream_control(), windows.snapshot().sendme_cells),
                (StreamControl::Windows, 100)
            );
            windows.snapshot().window_cells
        });
        assert_eq!(windows, [300, 1000, 100, 100, 300]);
    }

    #[test]
    fn whoever_runs_windows_does_not_agree_to_congestion_control() {
        let off = |name: &str| (name == "cc_alg").then_some(0);
        let wants = |choice: FlowChoice| {
            [choice.wants_congestion_control(&|_| None), choice.wants_congestion_control(&off)]
        };
        let wanted = FlowChoice::ALL.map(wants);
        assert_eq!(wanted, [[true, false], [false; 2], [false; 2], [false; 2], [true; 2]]);
    }
}
