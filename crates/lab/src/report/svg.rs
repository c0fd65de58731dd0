//! What all drawings are made with.

use std::fmt::Write;

use super::words::escape;

/// The most that a character of a label takes, on average, in pixels.
pub(super) const CHARACTER: f64 = 7.0;

/// How large a drawing is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// As wide as the page lets it be.
    OfPage,
    /// Never larger than it is.
    Own,
}

/// Begins a drawing of so many pixels.
pub(super) fn open(title: &str, width: f64, height: f64, size: Size) -> String {
    let title = escape(title);
    let own = match size {
        Size::OfPage => String::new(),
        Size::Own => format!(r#" width="{width:.0}" height="{height:.0}""#),
    };
    format!(
        r#"<svg role="img" aria-label="{title}"{own} viewBox="0 0 {width:.0} {height:.0}"><title>{title}</title>"#
    )
}

/// Appends to a drawing.
pub(super) fn put(svg: &mut String, what: std::fmt::Arguments<'_>) {
    svg.write_fmt(what).expect("a string takes everything");
}
