//! A measurement in virtual time beside the same one over emulated wires.

use super::Wanted;
use super::markdown::{arm_and_place, number, table};
use super::record::Record;
use crate::fidelity::{MEDIAN_WITHIN, P90_WITHIN, Ratio, compare};

/// The figures that both have, of those that the page is to show.
pub(super) fn ratios(wanted: &Wanted, emu: &Record, sim: &Record) -> Vec<Ratio> {
    let is_shown = |name: &str| wanted.figures.iter().any(|figure| figure == name);
    let of_emu = emu.figures.iter().map(|kept| &kept.figure).filter(|figure| is_shown(&figure.name));
    let of_sim: Vec<_> = sim.figures.iter().map(|kept| &kept.figure).collect();
    compare(&emu.name, of_emu, &of_sim)
}

/// How many of them are near each other.
pub(super) fn outcome(wanted: &Wanted, ratios: &[Ratio], emu: &Record) -> String {
    let near = ratios.iter().filter(|ratio| ratio.is_near).count();
    let told = format!("{near} of {} near", ratios.len());
    let shown = emu.figures.iter().filter(|kept| wanted.figures.contains(&kept.figure.name)).count();
    match shown - ratios.len() {
        0 => told,
        alone => format!("{told}, {alone} over emulated wires alone"),
    }
}

/// A row for each figure, by its arm and place; what is not near stands out.
pub(super) fn text(wanted: &Wanted, ratios: &[Ratio], emu: &Record, sim: &Record) -> String {
    let mut text = format!(
        "Beside [`{0}`]({0}.json), over emulated wires{1}: {2}. Near is within {3} % at the median and {4} % at the \
         90th percentile.\n\n",
        emu.name,
        if emu.valid { "" } else { " (**not valid**)" },
        outcome(wanted, ratios, emu),
        number(100.0 * MEDIAN_WITHIN),
        number(100.0 * P90_WITHIN),
    );
    let told = |ratio: Option<f64>| ratio.map_or_else(|| "none".to_owned(), number);
    let row = |ratio: &Ratio| {
        let (arm, place) = arm_and_place(&ratio.labels);
        let [p50, p90] = [ratio.sim_over_emu_p50, ratio.sim_over_emu_p90].map(told);
        let both = format!("{p50}, {p90}");
        vec![
            sim.title(&ratio.figure, &ratio.unit),
            arm.unwrap_or_default().to_owned(),
            place,
            number(ratio.p50[0]),
            number(ratio.p50[1]),
            if ratio.is_near { both } else { format!("**{both}**") },
        ]
    };
    let rows: Vec<Vec<String>> = ratios.iter().map(row).collect();
    let head = ["", "arm", "", "emulated, median", "virtual, median", "virtual over emulated, p50 and p90"];
    text += &table(&head.map(str::to_owned), &rows);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::Book;
    use std::path::Path;

    #[test]
    fn what_is_far_off_stands_out_and_stock_is_beside_its_model() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        let emu = Record::read(&docs, "thesis-exp08").unwrap().unwrap();
        let book = Book::shipped().unwrap();
        let wanted = book.wanted("thesis-exp08-sim").unwrap();
        let mut sim = emu.clone();
        for kept in &mut sim.figures {
            let transport = kept.figure.labels.get_mut("transport").filter(|name| *name == "stock");
            let Some(transport) = transport else { continue };
            "stock-model".clone_into(transport);
            kept.figure.p50 *= 1.2;
        }
        let ratios = ratios(wanted, &emu, &sim);
        assert!(ratios.iter().all(|ratio| wanted.figures.contains(&ratio.figure)));
        let far: Vec<&Ratio> = ratios.iter().filter(|ratio| !ratio.is_near).collect();
        assert!(!far.is_empty() && far.len() < ratios.len());
        assert!(far.iter().all(|ratio| ratio.labels["transport"] == "stock"), "{far:?}");
        let text = text(wanted, &ratios, &emu, &sim);
        assert_eq!(text.matches("**1.20, 1.00**").count(), far.len(), "{text}");
        assert!(text.contains(&format!("{} of {} near. ", ratios.len() - far.len(), ratios.len())));
        sim.figures.clear();
        let alone = format!("0 of 0 near, {} over emulated wires alone", ratios.len());
        assert_eq!(outcome(wanted, &super::ratios(wanted, &emu, &sim), &emu), alone);
    }
}
