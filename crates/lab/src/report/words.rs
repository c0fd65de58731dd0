//! Labels and numbers as people read them.

use crate::figures::Labels;

/// The values of those labels that are not the same in all, or of all labels when there is one set only.
pub(super) fn short_names<'a>(all: impl Iterator<Item = &'a Labels>) -> Vec<String> {
    let all: Vec<&Labels> = all.collect();
    let varies = |name: &str, value: &str| {
        all.iter().any(|labels| labels.get(name).is_none_or(|other| other != value))
    };
    let short = |labels: &&Labels| {
        let kept: Labels = labels
            .iter()
            .filter(|(name, value)| varies(name, value))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if kept.is_empty() { join(labels) } else { join(&kept) }
    };
    all.iter().map(short).collect()
}

/// Labels as text.
pub(super) fn join(labels: &Labels) -> String {
    let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if pairs.is_empty() { "all".to_owned() } else { pairs.join(", ") }
}

/// A number with four significant digits.
pub(super) fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let decimals = (3.0 - value.abs().log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{value:.decimals$}")
}

/// Text as it stands in HTML, in content and in quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            // No XML has them.
            c if c.is_control() && c != '\n' => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
