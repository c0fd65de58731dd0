//! A part of a plan: some of its arms, some of its phases, and what is about those.

use std::collections::BTreeSet;

use toml::Spanned;

use super::model::{Arm, Plan};
use super::network::Phase;
use crate::error::{Error, Result};
use crate::figures::Labels;

impl Plan {
    /// The plan with these arms only, and without the known values and targets that are about others. Without names,
    /// with all arms that are not there by choice only.
    ///
    /// # Errors
    ///
    /// A name that no arm has.
    pub fn with_arms(&self, names: &[String]) -> Result<Plan> {
        let mut plan = self.clone();
        let has = |name: &String| self.arms.iter().any(|arm| arm.as_ref().name == *name);
        if let Some(unknown) = names.iter().find(|name| !has(name)) {
            let arms: Vec<&str> = self.arms.iter().map(|arm| &*arm.as_ref().name).collect();
            let arms = arms.join(", ");
            return Err(Error::Options(format!("--arms: there is no arm {unknown:?}; the plan has {arms}")));
        }
        let is_chosen = |arm: &Spanned<Arm>| match names.is_empty() {
            true => !arm.as_ref().by_choice,
            false => names.contains(&arm.as_ref().name),
        };
        plan.arms.retain(is_chosen);
        // What no arm gives is kept, and told as not measured.
        let is_about_others = |gives: &dyn Fn(&Arm) -> bool| {
            let mut giving = self.arms.iter().filter(|arm| gives(arm.as_ref())).peekable();
            giving.peek().is_some() && !giving.any(is_chosen)
        };
        plan.known.retain(|known| !is_about_others(&|arm| arm.gives(&known.as_ref().labels)));
        let case_labels = self.case_label_names();
        plan.targets
            .retain(|target| !is_about_others(&|arm| arm.may_give(&target.as_ref().labels, &case_labels)));
        Ok(plan)
    }

    /// The names of all labels by which cases are told apart.
    fn case_label_names(&self) -> BTreeSet<String> {
        let arms = self.arms.iter().map(Spanned::as_ref);
        let labels = arms.flat_map(|arm| arm.cases.iter().map(|case| arm.labels_of(case.as_ref())));
        labels.flat_map(Labels::into_keys).collect()
    }

    /// The plan with these phases of its network only, in their own order, and with the known values and targets that
    /// are about them. Without names, with all of them.
    ///
    /// # Errors
    ///
    /// A name that no phase has, an arm that is left without any, or a plan without phases.
    pub(crate) fn with_phases(&self, names: &[String]) -> Result<Plan> {
        let mut plan = self.clone();
        if names.is_empty() {
            return Ok(plan);
        }
        let wrong = |what: String| Error::Options(format!("--phase: {what}"));
        let Plan { tor: Some(tor), arms, known, targets, .. } = &mut plan else {
            return Err(wrong(format!("{} has no phases", self.name)));
        };
        let tor = tor.as_mut();
        let all: Vec<&str> = tor.phases.iter().map(|phase| &*phase.as_ref().name).collect();
        if let Some(unknown) = names.iter().find(|name| !all.contains(&name.as_str())) {
            return Err(wrong(format!("there is no phase {unknown:?}; the plan has {}", all.join("; "))));
        }
        let before = std::mem::take(&mut tor.phases);
        tor.phases = before.iter().filter(|phase| names.contains(&phase.as_ref().name)).cloned().collect();
        for arm in arms {
            let arm = arm.as_mut();
            let Some(chosen) = arm.tor.as_mut().map(|tor| &mut tor.phases).filter(|own| !own.is_empty())
            else {
                continue;
            };
            chosen.retain(|name| names.contains(name));
            if chosen.is_empty() {
                return Err(wrong(format!("the arm {:?} has none of these", arm.name)));
            }
        }
        let may_give =
            |labels: &Labels| tor.phases.iter().any(|phase| phase.as_ref().may_give(labels, &before));
        known.retain(|known| may_give(&known.as_ref().labels));
        targets.retain(|target| may_give(&target.as_ref().labels));
        Ok(plan)
    }
}

impl Phase {
    /// Whether a figure with these labels can be this phase's. Those that none of `all` phases has are not about
    /// phases.
    fn may_give(&self, labels: &Labels, all: &[Spanned<Phase>]) -> bool {
        let is_ours = |(name, value): (&String, &String)| match self.labels.get(name) {
            Some(own) => own == value,
            None => all.iter().all(|phase| !phase.as_ref().labels.contains_key(name)),
        };
        labels.iter().all(is_ours)
    }
}

impl Arm {
    /// Whether a figure with these labels and no others can be this arm's.
    fn gives(&self, labels: &Labels) -> bool {
        match self.tor {
            Some(_) => self.gives_over_tor(labels),
            None => self.cases.iter().any(|case| self.labels_of(case.as_ref()) == *labels),
        }
    }

    /// Whether a figure with these labels, and maybe others, can be this arm's. Those that are not among `all`, which
    /// the plan's cases have, are not about cases.
    fn may_give(&self, labels: &Labels, all: &BTreeSet<String>) -> bool {
        if self.tor.is_some() {
            return self.gives_over_tor(labels);
        }
        self.cases.iter().any(|case| {
            let own = self.labels_of(case.as_ref());
            labels.iter().all(|(name, value)| own.get(name) == Some(value) || !all.contains(name))
        })
    }

    /// Figures of a Tor network have labels of phases and clients besides the arm's.
    fn gives_over_tor(&self, labels: &Labels) -> bool {
        self.labels.iter().all(|(name, value)| labels.get(name).is_none_or(|other| other == value))
    }
}
