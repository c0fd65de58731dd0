//! Stock Tor's part of a plan where a model stands in its place: its figures have a label that says so.

use toml::Spanned;

use super::model::Plan;
use crate::arm::Transport;
use crate::figures::Labels;

/// What arms of stock Tor are labelled where they are a model of it.
pub(crate) const STOCK_MODEL: &str = "stock-model";

impl Plan {
    /// The plan as it is for a backend without stock Tor: labels, comparisons and plots speak of the model where they
    /// spoke of stock. Arms keep their names, and so does what figures are called.
    pub(crate) fn with_stock_modelled(mut self) -> Plan {
        self.arms.iter_mut().map(Spanned::as_mut).for_each(|arm| rename(&mut arm.labels));
        self.known.iter_mut().for_each(|known| rename(&mut known.as_mut().labels));
        self.targets.iter_mut().for_each(|target| rename(&mut target.as_mut().labels));
        for compare in self.compare.iter_mut().map(Spanned::as_mut) {
            rename(&mut compare.only);
            compare
                .base
                .iter_mut()
                .filter(|base| is_stock(base))
                .for_each(|base| STOCK_MODEL.clone_into(base));
        }
        self.plots.iter_mut().map(Spanned::as_mut).for_each(|plot| rename(&mut plot.only));
        self
    }
}

fn is_stock(value: &str) -> bool {
    value == Transport::Stock.name()
}

fn rename(labels: &mut Labels) {
    labels.values_mut().filter(|value| is_stock(value)).for_each(|value| STOCK_MODEL.clone_into(value));
}

/// The labels that a figure of the model has over stock's own.
pub(crate) fn of_model(labels: &Labels) -> Labels {
    let mut labels = labels.clone();
    rename(&mut labels);
    labels
}

/// Whether these are labels of a figure of the model.
pub(crate) fn is_of_model(labels: &Labels) -> bool {
    labels.values().any(|value| value == STOCK_MODEL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::labels;
    use std::collections::BTreeMap;

    #[test]
    fn all_that_speaks_of_stock_speaks_of_the_model() {
        let names = ["bottleneck-position", "isolation", "n23-bottleneck", "thesis-exp11"];
        for name in names {
            let plan = Plan::load(name, &BTreeMap::new()).unwrap().plan;
            let speaks = |plan: &Plan| format!("{plan:?}").matches("\"stock\"").count();
            let (before, modelled) = (speaks(&plan), plan.with_stock_modelled());
            // What is left are arms' names.
            let left = modelled.arms.iter().filter(|arm| arm.as_ref().name == "stock").count();
            assert!(before > left, "{name}");
            assert_eq!(speaks(&modelled), left, "{name}");
        }
    }

    #[test]
    fn other_labels_stay() {
        let of_stock = labels([("transport", "stock"), ("beside", "bulk")]);
        assert_eq!(of_model(&of_stock), labels([("transport", STOCK_MODEL), ("beside", "bulk")]));
        assert!(!is_of_model(&of_stock) && is_of_model(&of_model(&of_stock)));
    }
}
