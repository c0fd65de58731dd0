//! The plans that come with the program.

/// A plan that comes with the program.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Its name.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// Every plan that ships, in the order of lists. A new one is a file and a line here.
const SHIPPED: &[Shipped] = &[
    Shipped { name: "calibrate", text: include_str!("../../plans/calibrate.toml") },
    Shipped { name: "thesis-exp01", text: include_str!("../../plans/thesis-exp01.toml") },
    Shipped { name: "thesis-exp02", text: include_str!("../../plans/thesis-exp02.toml") },
    Shipped { name: "thesis-exp03", text: include_str!("../../plans/thesis-exp03.toml") },
    Shipped { name: "thesis-exp08", text: include_str!("../../plans/thesis-exp08.toml") },
    Shipped { name: "thesis-exp09", text: include_str!("../../plans/thesis-exp09.toml") },
    Shipped { name: "thesis-exp10", text: include_str!("../../plans/thesis-exp10.toml") },
    Shipped { name: "thesis-exp11", text: include_str!("../../plans/thesis-exp11.toml") },
    Shipped { name: "thesis-exp12", text: include_str!("../../plans/thesis-exp12.toml") },
    Shipped { name: "thesis-exp13", text: include_str!("../../plans/thesis-exp13.toml") },
    Shipped { name: "n23-bottleneck", text: include_str!("../../plans/n23-bottleneck.toml") },
    Shipped { name: "n23-open", text: include_str!("../../plans/n23-open.toml") },
    Shipped { name: "defenestrator-network", text: include_str!("../../plans/defenestrator-network.toml") },
    Shipped { name: "pctcp-live", text: include_str!("../../plans/pctcp-live.toml") },
    Shipped { name: "pctcp-network", text: include_str!("../../plans/pctcp-network.toml") },
    Shipped { name: "quux-chutney", text: include_str!("../../plans/quux-chutney.toml") },
    Shipped { name: "quux-network", text: include_str!("../../plans/quux-network.toml") },
    Shipped { name: "deployment", text: include_str!("../../plans/deployment.toml") },
    Shipped { name: "udp-forwarding", text: include_str!("../../plans/udp-forwarding.toml") },
    Shipped { name: "isolation", text: include_str!("../../plans/isolation.toml") },
    Shipped { name: "fairness", text: include_str!("../../plans/fairness.toml") },
    Shipped { name: "cc-evaluation-queues", text: include_str!("../../plans/cc-evaluation-queues.toml") },
    Shipped { name: "cc-evaluation-aqm", text: include_str!("../../plans/cc-evaluation-aqm.toml") },
    Shipped { name: "cc-evaluation-events", text: include_str!("../../plans/cc-evaluation-events.toml") },
    Shipped { name: "utcp-fidelity", text: include_str!("../../plans/utcp-fidelity.toml") },
    Shipped { name: "bottleneck-position", text: include_str!("../../plans/bottleneck-position.toml") },
    Shipped { name: "first-byte", text: include_str!("../../plans/first-byte.toml") },
    Shipped { name: "udp-blocked", text: include_str!("../../plans/udp-blocked.toml") },
    Shipped { name: "mixed", text: include_str!("../../plans/mixed.toml") },
    Shipped { name: "cost", text: include_str!("../../plans/cost.toml") },
    Shipped { name: "wire-view", text: include_str!("../../plans/wire-view.toml") },
    Shipped { name: "prober", text: include_str!("../../plans/prober.toml") },
    Shipped { name: "credit-oracle", text: include_str!("../../plans/credit-oracle.toml") },
];

/// Every plan that ships.
pub fn shipped() -> &'static [Shipped] {
    SHIPPED
}
