//! What the consensus asks of everybody.

use crate::endpoint::CongestionParams;
use std::collections::BTreeMap;

/// The parameters of the consensus, by name (`param-spec`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkParams(pub BTreeMap<String, i32>);

impl NetworkParams {
    /// A parameter, or `default` when the consensus does not name it; clamped to its range.
    pub fn get(&self, name: &str, default: i32, min: i32, max: i32) -> i32 {
        self.0.get(name).copied().unwrap_or(default).clamp(min, max)
    }

    /// What endpoints are told: `heddle_cc_tcps_max`.
    pub fn congestion(&self) -> CongestionParams {
        let most = i32::from(CongestionParams::TCPS_MAX);
        let tcps_max = self.get("heddle_cc_tcps_max", most, 1, most);
        CongestionParams { tcps_max: u8::try_from(tcps_max).unwrap_or(CongestionParams::TCPS_MAX) }
    }
}
