//! Plots as SVG. Colours come from the page's style sheet, so that they follow the reader's scheme.

use super::looks::{COLOURS, Look};
use super::svg::{CHARACTER, Size, open, put};
use super::words::escape;

pub(super) const WIDTH: f64 = 760.0;
/// Room for labels on the left of a chart of intervals, where none is longer.
const LABELS: f64 = 200.0;
/// From a label to the axis.
const GAP: f64 = 10.0;
const ROW: f64 = 22.0;
const AXIS: f64 = 46.0;
pub(super) const RIGHT: f64 = 24.0;
pub(super) const PLOT_HEIGHT: f64 = 280.0;
const TICKS: f64 = 6.0;

/// A row of a chart of intervals.
pub(super) struct Row {
    pub(super) label: String,
    pub(super) mean: f64,
    pub(super) ci95: Option<[f64; 2]>,
    /// The value from elsewhere.
    pub(super) known: Option<f64>,
    /// What it looks like.
    pub(super) look: Look,
}

/// A point of a distribution function with its confidence band.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) p: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// A distribution function.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Curve {
    pub(super) label: String,
    pub(super) n: usize,
    pub(super) points: Vec<Point>,
    #[serde(skip)]
    pub(super) look: Look,
}

/// A value over time.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Trace {
    pub(super) label: String,
    /// Times in seconds, ascending, and what it was then.
    pub(super) points: Vec<(f64, f64)>,
    #[serde(skip)]
    pub(super) look: Look,
}

/// The markers of the colours, around where they are.
const MARKERS: [&str; COLOURS] = [
    "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "m-4 -4h8v8h-8z",
    "m0 -5l5 9h-10z",
    "m0 5l5 -9h-10z",
    "m-1.5 -5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
    "m0 -2.5l2.5 -2.5l2.5 2.5l-2.5 2.5l2.5 2.5l-2.5 2.5l-2.5 -2.5l-2.5 2.5l-2.5 -2.5l2.5 -2.5l-2.5 -2.5l2.5 -2.5z",
    "m-1.5 -6h3v12h-3z",
    "m-6 -1.5h12v3h-12z",
];
/// Where a curve has its marker: the shares of samples below.
const MARKED: [f64; 4] = [0.2, 0.4, 0.6, 0.8];

/// The most points of a curve.
const POINTS_MAX: usize = 200;
/// Where the axis of a distribution ends: the tail beyond would press everything else together.
pub(super) const TAIL: f64 = 0.995;

impl Curve {
    /// The empirical distribution of samples, with the 95 % band of Dvoretzky, Kiefer, Wolfowitz and Massart. `None`
    /// without samples.
    pub(super) fn of(label: String, look: Look, mut samples: Vec<f64>) -> Option<Curve> {
        samples.sort_by(f64::total_cmp);
        let n = samples.len();
        let half = ((2.0_f64 / 0.05).ln() / (2.0 * n as f64)).sqrt();
        let step = (n / POINTS_MAX).max(1);
        let point = |(rank, x): (usize, &f64)| {
            let p = (rank + 1) as f64 / n as f64;
            Point { x: *x, p, low: (p - half).max(0.0), high: (p + half).min(1.0) }
        };
        let mut points: Vec<Point> = samples.iter().enumerate().step_by(step).map(point).collect();
        points.push(samples.last().map(|x| point((n - 1, x)))?);
        Some(Curve { label, n, points, look })
    }

    fn quantile(&self, q: f64) -> f64 {
        let found = self.points.iter().find(|point| point.p >= q).or(self.points.last());
        found.map_or(0.0, |point| point.x)
    }
}

/// A value axis with round numbers on it.
pub(super) struct Axis {
    low: f64,
    high: f64,
    step: f64,
    start_px: f64,
    length_px: f64,
}

impl Axis {
    /// An axis over all values, with ends on round numbers.
    pub(super) fn over(values: impl Iterator<Item = f64>, start_px: f64, length_px: f64) -> Axis {
        let (low, high) = values
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
        // Near zero the zero belongs to it.
        let low = if low > 0.0 && low < high / 2.0 { 0.0 } else { low };
        let spread = if high > low { high - low } else { high.abs().max(1.0) };
        let step = round_step(spread / TICKS);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        let high = if high > low { high } else { low + step };
        Axis { low, high, step, start_px, length_px }
    }

    fn at(&self, value: f64) -> f64 {
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.start_px + share * self.length_px
    }

    /// The round numbers and what they are called.
    fn ticks(&self) -> Vec<(f64, String)> {
        let count = ((self.high - self.low) / self.step).round() as usize;
        let decimals = (-self.step.log10().floor()).max(0.0) as usize;
        (0..=count)
            .map(|number| self.low + number as f64 * self.step)
            .map(|value| (value, format!("{value:.decimals$}")))
            .collect()
    }

    /// Grid lines and numbers of a horizontal axis between two heights, with what it shows under it. What is too long
    /// for the axis stands in the middle of the whole chart.
    pub(super) fn draw(&self, svg: &mut String, top: f64, bottom: f64, name: &str) {
        for (value, name) in self.ticks() {
            let x = self.at(value);
            put(
                svg,
                format_args!(
                    r#"<line class="grid" x1="{x:.1}" x2="{x:.1}" y1="{top:.1}" y2="{bottom:.1}"/>"#
                ),
            );
            put(
                svg,
                format_args!(
                    r#"<text class="tick" text-anchor="middle" x="{x:.1}" y="{:.1}">{name}</text>"#,
                    bottom + 16.0
                ),
            );
        }
        let is_long = name.chars().count() as f64 * CHARACTER > self.length_px;
        let start_px = if is_long { 0.0 } else { self.start_px };
        let x = (start_px + self.start_px + self.length_px) / 2.0;
        put(
            svg,
            format_args!(
                r#"<text class="tick" text-anchor="middle" x="{x:.1}" y="{:.1}">{}</text>"#,
                bottom + 34.0,
                escape(name)
            ),
        );
    }
}

/// The round number (1, 2 or 5 times a power of ten) at or above `raw`, which is positive.
fn round_step(raw: f64) -> f64 {
    let power = 10_f64.powf(raw.log10().floor());
    let round = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= raw * 0.999_999);
    round.unwrap_or(10.0) * power
}

/// Means with their intervals, one under the other; a diamond is a known value.
pub(super) fn intervals(title: &str, axis_title: &str, rows: &[Row]) -> String {
    let values =
        rows.iter().flat_map(|row| row.ci95.into_iter().flatten().chain([row.mean]).chain(row.known));
    let longest = rows.iter().map(|row| row.label.chars().count()).max().unwrap_or(0);
    let labels = (longest as f64 * CHARACTER + GAP).max(LABELS);
    // The chart becomes wider by what labels need beyond the usual.
    let width = WIDTH + labels - LABELS;
    let axis = Axis::over(values, labels, width - labels - RIGHT);
    let bottom = 8.0 + ROW * rows.len() as f64;
    let mut svg = open(title, width, bottom + AXIS, Size::OfPage);
    axis.draw(&mut svg, 8.0, bottom, axis_title);
    for (number, row) in rows.iter().enumerate() {
        let y = 8.0 + ROW * (number as f64 + 0.5);
        let (colour, dash) = (row.look.colour, row.look.row_dash());
        put(
            &mut svg,
            format_args!(
                r#"<text text-anchor="end" x="{:.1}" y="{:.1}">{}</text>"#,
                labels - GAP,
                y + 4.0,
                escape(&row.label)
            ),
        );
        if let Some([low, high]) = row.ci95 {
            let (low, high) = (axis.at(low), axis.at(high));
            put(
                &mut svg,
                format_args!(
                    r#"<line class="interval s{colour} d{dash}" x1="{low:.1}" x2="{high:.1}" y1="{y:.1}" y2="{y:.1}"/>"#
                ),
            );
        }
        put_marker(&mut svg, colour, axis.at(row.mean), y);
        if let Some(known) = row.known {
            let x = axis.at(known);
            put(
                &mut svg,
                format_args!(r#"<path class="known" d="M{x:.1} {:.1}l6 6l-6 6l-6 -6z"/>"#, y - 6.0),
            );
        }
    }
    svg.push_str("</svg>");
    svg
}

/// Distribution functions with their bands, and what each curve is.
pub(super) fn distributions(title: &str, axis_title: &str, curves: &[Curve]) -> String {
    let left = 48.0;
    let ends = curves.iter().flat_map(|curve| [curve.quantile(0.0), curve.quantile(TAIL)]);
    let axis = Axis::over(ends, left, WIDTH - left - RIGHT);
    let (top, bottom) = (8.0, 8.0 + PLOT_HEIGHT);
    let legend = 18.0 * curves.len() as f64;
    let mut svg = open(title, WIDTH, bottom + AXIS + legend, Size::OfPage);
    axis.draw(&mut svg, top, bottom, axis_title);
    let y = |p: f64| bottom - p * PLOT_HEIGHT;
    for p in [0.0, 0.25, 0.5, 0.75, 1.0] {
        level(&mut svg, left, y(p), &p.to_string());
    }
    for (number, curve) in curves.iter().enumerate() {
        draw_curve(&mut svg, curve, &axis, y);
        let at = bottom + AXIS + 18.0 * number as f64;
        legend_line(&mut svg, curve.look, &curve.label, curve.n, [left, at]);
    }
    svg.push_str("</svg>");
    svg
}

/// Values over time, a line for each, and what each line is.
pub(super) fn over_time(title: &str, traces: &[Trace]) -> String {
    let left = 60.0;
    let points = || traces.iter().flat_map(|trace| trace.points.iter().copied());
    let time = Axis::over(points().map(|(time_s, _)| time_s).chain([0.0]), left, WIDTH - left - RIGHT);
    let height = Axis::over(points().map(|(_, value)| value), 0.0, PLOT_HEIGHT);
    let (top, bottom) = (8.0, 8.0 + PLOT_HEIGHT);
    let legend = 18.0 * traces.len() as f64;
    let mut svg = open(title, WIDTH, bottom + AXIS + legend, Size::OfPage);
    time.draw(&mut svg, top, bottom, "time in s");
    for (value, name) in height.ticks() {
        level(&mut svg, left, bottom - height.at(value), &name);
    }
    for (number, trace) in traces.iter().enumerate() {
        let (colour, dash) = (trace.look.colour, trace.look.curve_dash());
        let line = path(highest(trace).into_iter(), &time, |value| bottom - height.at(value));
        put(&mut svg, format_args!(r#"<path class="curve s{colour} d{dash}" d="{line}"/>"#));
        let at = bottom + AXIS + 18.0 * number as f64;
        legend_line(&mut svg, trace.look, &trace.label, trace.points.len(), [left, at]);
    }
    svg.push_str("</svg>");
    svg
}

/// The points of a line: of many values the highest of each few, so that no peak is lost.
fn highest(trace: &Trace) -> Vec<(f64, f64)> {
    let few = trace.points.len().div_ceil(2 * POINTS_MAX).max(1);
    let highest = |points: &[(f64, f64)]| points.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
    trace.points.chunks(few).filter_map(highest).collect()
}

/// A grid line at some height, and its number.
pub(super) fn level(svg: &mut String, left: f64, y: f64, name: &str) {
    put(
        svg,
        format_args!(
            r#"<line class="grid" x1="{left:.1}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}"/>"#,
            WIDTH - RIGHT
        ),
    );
    put(
        svg,
        format_args!(
            r#"<text class="tick" text-anchor="end" x="{:.1}" y="{:.1}">{name}</text>"#,
            left - 6.0,
            y + 4.0
        ),
    );
}

/// A curve in its band, with its markers.
fn draw_curve(svg: &mut String, curve: &Curve, axis: &Axis, y: impl Fn(f64) -> f64) {
    let (colour, dash) = (curve.look.colour, curve.look.curve_dash());
    let shown = steps(curve.points.iter().filter(|point| point.x <= axis.high));
    let high = shown.iter().map(|point| (point.x, point.high));
    let band = high.chain(shown.iter().rev().map(|point| (point.x, point.low)));
    put(svg, format_args!(r#"<path class="band f{colour}" d="{}z"/>"#, path(band, axis, &y)));
    let line = path(shown.iter().map(|point| (point.x, point.p)), axis, &y);
    put(svg, format_args!(r#"<path class="curve s{colour} d{dash}" d="{line}"/>"#));
    for p in MARKED {
        put_marker(svg, colour, axis.at(curve.quantile(p)), y(p));
    }
}

/// What a curve is, beside a piece of it.
fn legend_line(svg: &mut String, look: Look, label: &str, n: usize, [left, y]: [f64; 2]) {
    let (colour, dash) = (look.colour, look.curve_dash());
    put(
        svg,
        format_args!(
            r#"<line class="curve s{colour} d{dash}" x1="{left:.1}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}"/>"#,
            left + 34.0
        ),
    );
    put_marker(svg, colour, left + 17.0, y);
    put(
        svg,
        format_args!(
            r#"<text x="{:.1}" y="{:.1}">{} (n = {})</text>"#,
            left + 42.0,
            y + 4.0,
            escape(label),
            n
        ),
    );
}

fn put_marker(svg: &mut String, colour: usize, x: f64, y: f64) {
    let shape = MARKERS[colour % COLOURS];
    put(svg, format_args!(r#"<path class="dot f{colour}" d="M{x:.1} {y:.1}{shape}"/>"#));
}

/// The corners of a distribution function: it rises at its points and is level between them.
fn steps<'a>(points: impl Iterator<Item = &'a Point>) -> Vec<Point> {
    let mut corners: Vec<Point> = Vec::new();
    for point in points {
        let before = corners.last().map_or(Point { p: 0.0, low: 0.0, ..*point }, |last| *last);
        corners.extend([Point { x: point.x, ..before }, *point]);
    }
    corners
}

pub(super) fn path(points: impl Iterator<Item = (f64, f64)>, axis: &Axis, y: impl Fn(f64) -> f64) -> String {
    let mut path = String::new();
    for (number, (x, p)) in points.enumerate() {
        let command = if number == 0 { 'M' } else { 'L' };
        put(&mut path, format_args!("{command}{:.1} {:.1}", axis.at(x), y(p)));
    }
    if path.is_empty() { "M0 0".to_owned() } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Look = Look { colour: 0, run: 0, runs: 1, place: 0 };

    #[test]
    fn axes_have_round_numbers() {
        let ticks = |values: &[f64]| -> Vec<String> {
            Axis::over(values.iter().copied(), 0.0, 1.0).ticks().into_iter().map(|(_, name)| name).collect()
        };
        assert_eq!(ticks(&[1.25, 9.5]), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(ticks(&[50.01, 50.23]), ["50.00", "50.05", "50.10", "50.15", "50.20", "50.25"]);
        assert_eq!(ticks(&[0.0]), ["0.0", "0.2"]);
        assert_eq!(ticks(&[]).len(), 6);
        assert_eq!(ticks(&[-3.0, 3.0]).first().map(String::as_str), Some("-3"));
    }

    #[test]
    fn no_label_is_cut_off() {
        let chart = |length: usize| {
            let row =
                Row { label: "x".repeat(length), mean: 1.0, ci95: Some([0.5, 1.5]), known: None, look: LOOK };
            let svg = intervals("a", "ms", &[row]);
            let number = |before: &str, after: &str| -> f64 {
                let rest = svg.split_once(before).unwrap().1;
                rest.split_once(after).unwrap().0.parse().unwrap()
            };
            let dot = number("class=\"dot f0\" d=\"M", " ");
            (number("text-anchor=\"end\" x=\"", "\""), dot, number("viewBox=\"0 0 ", " "))
        };
        let (short, long) = (chart(10), chart(90));
        assert_eq!((short.0, short.2), (190.0, 760.0));
        assert!(90.0 * 7.0 <= long.0, "{long:?}");
        // The room for what is drawn stays what it was.
        assert_eq!(long.2 - long.1, short.2 - short.1);
    }

    #[test]
    fn of_many_values_over_time_the_peaks_stay() {
        let mut points: Vec<(f64, f64)> = (0..10_000).map(|number| (0.1 * f64::from(number), 1.0)).collect();
        points[7_777].1 = 50.0;
        let trace = Trace { label: "a".into(), points, look: LOOK };
        let points = highest(&trace);
        assert!(points.len() <= 2 * POINTS_MAX, "{}", points.len());
        let peak = points.iter().find(|(_, value)| *value == 50.0).unwrap();
        assert!((peak.0 - 777.7).abs() < 0.01, "{peak:?}");
        let svg = over_time("a", &[trace]);
        assert!(svg.contains(">50<") && svg.contains("time in s") && svg.contains("a (n = 10000)"), "{svg}");
    }

    #[test]
    fn a_distribution_ends_at_one_and_its_band_narrows() {
        let curve = |n: usize| Curve::of("a".into(), LOOK, (0..n).map(|x| x as f64).collect()).unwrap();
        let (small, large) = (curve(10), curve(100_000));
        assert_eq!(small.points.last().unwrap().p, 1.0);
        assert!(large.points.len() <= POINTS_MAX + 1);
        let width = |curve: &Curve| {
            curve.points[curve.points.len() / 2].high - curve.points[curve.points.len() / 2].low
        };
        // Massart: half of the band is sqrt(ln(2 / 0.05) / 2n), 0.0043 at 100 000.
        assert!((width(&large) - 0.0086).abs() < 0.0001 && width(&small) > 0.5);
        assert!((large.quantile(0.5) - 50_000.0).abs() < 1000.0);
        assert!(Curve::of("none".into(), LOOK, Vec::new()).is_none());
    }
}
