//! A network as SVG: hosts in columns, and between them a line for each group of wires.

use super::svg::{CHARACTER, Size, open, put};
use super::words::escape;

/// Hosts and wires to draw.
pub(super) struct Sketch {
    pub(super) hosts: Vec<Host>,
    pub(super) wires: Vec<Wires>,
}

/// A box: a host, or several that are alike.
pub(super) struct Host {
    /// How many hosts away from the clients it stands.
    pub(super) column: usize,
    pub(super) name: String,
    /// What stands under the name.
    pub(super) details: Vec<String>,
    pub(super) is_bottleneck: bool,
}

/// Wires that are alike.
pub(super) struct Wires {
    /// What stands at them, line by line.
    pub(super) label: Vec<String>,
    pub(super) lines: Vec<Line>,
    pub(super) is_bottleneck: bool,
    /// Whether they are what no group names.
    pub(super) is_default: bool,
}

/// A line between two boxes, by their places in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) from: usize,
    pub(super) to: usize,
}

const LINE: f64 = 15.0;
const MARGIN: f64 = 8.0;
/// Between boxes, and between labels.
const BETWEEN: f64 = 12.0;
/// What of lines is seen on both sides of a label.
const SEEN: f64 = 20.0;
/// The piece of a line beside a label that tells whose label it is, where there are several.
const SAMPLE: f64 = 26.0;

/// A rectangle.
#[derive(Clone, Copy, Debug, Default)]
struct Rect {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl Rect {
    fn middle_y(&self) -> f64 {
        self.y + self.height / 2.0
    }
}

/// A label in the gap behind a column.
struct Label {
    group: usize,
    gap: usize,
    width: f64,
    height: f64,
    y: f64,
    /// Which of the groups in its gap it is of, and of how many.
    number: usize,
    count: usize,
}

impl Label {
    /// The room for a sample of the group's lines.
    fn sample(&self) -> f64 {
        if self.count > 1 { SAMPLE } else { 0.0 }
    }
}

/// The drawing of a network.
pub(super) fn draw(sketch: &Sketch) -> String {
    let mut labels = labels(sketch);
    let columns = sketch.hosts.iter().map(|host| host.column + 1).max().unwrap_or(0);
    let height = height(sketch, &labels, columns);
    let (boxes, gaps, width) = place_boxes(sketch, &labels, columns, height);
    place_labels(sketch, &boxes, &mut labels, height);
    let mut svg = open("The network", width, height + 2.0 * MARGIN, Size::Own);
    for label in &labels {
        let wires = &sketch.wires[label.group];
        for line in wires.lines.iter().filter(|line| gap_of(sketch, **line) == label.gap) {
            draw_line(&mut svg, &boxes, *line, &class(label, wires));
        }
    }
    for (host, rect) in sketch.hosts.iter().zip(&boxes) {
        draw_box(&mut svg, host, rect);
    }
    for label in &labels {
        let (start, length) = gaps[label.gap];
        draw_label(&mut svg, label, &sketch.wires[label.group], start + length / 2.0);
    }
    svg + "</svg>"
}

/// Single wires between two hosts, one under the other.
pub(super) fn draw_parallel(wires: &[String]) -> String {
    let longest = wires.iter().map(|wire| wire.chars().count()).max().unwrap_or(0) as f64 * CHARACTER;
    let step = 2.0 * LINE;
    let height = step * wires.len() as f64 + LINE;
    let host =
        |name: &str| Host { column: 0, name: name.to_owned(), details: Vec::new(), is_bottleneck: false };
    let (sender, receiver) = (host("sender"), host("receiver"));
    let width = 90.0;
    let left = Rect { x: MARGIN, y: MARGIN, width, height };
    let right = Rect { x: MARGIN + width + longest + 2.0 * BETWEEN, ..left };
    let mut svg = open("The wires", right.x + width + MARGIN, height + 2.0 * MARGIN, Size::Own);
    draw_box(&mut svg, &sender, &left);
    draw_box(&mut svg, &receiver, &right);
    for (number, wire) in wires.iter().enumerate() {
        let y = MARGIN + step * (number as f64 + 1.0);
        let (from, to) = (left.x + width, right.x);
        put(&mut svg, format_args!(r#"<path class="wire" d="M{from:.1} {y:.1}L{to:.1} {y:.1}"/>"#));
        let middle = (from + to) / 2.0;
        put(
            &mut svg,
            format_args!(
                r#"<text text-anchor="middle" x="{middle:.1}" y="{:.1}">{}</text>"#,
                y - 5.0,
                escape(wire)
            ),
        );
    }
    svg + "</svg>"
}

/// One label for each group of wires and each gap that lines of it begin in.
fn labels(sketch: &Sketch) -> Vec<Label> {
    let mut labels = Vec::new();
    for (group, wires) in sketch.wires.iter().enumerate() {
        let mut gaps: Vec<usize> = wires.lines.iter().map(|line| gap_of(sketch, *line)).collect();
        gaps.sort_unstable();
        gaps.dedup();
        let height = LINE * wires.label.len() as f64 + 4.0;
        let longest = wires.label.iter().map(|text| text.chars().count()).max().unwrap_or(0);
        let width = longest as f64 * CHARACTER + 8.0;
        let label = |gap| Label { group, gap, width, height, y: 0.0, number: 0, count: 0 };
        labels.extend(gaps.into_iter().map(label));
    }
    let gaps: Vec<usize> = labels.iter().map(|label| label.gap).collect();
    for (place, label) in labels.iter_mut().enumerate() {
        let of_gap = |gaps: &[usize]| gaps.iter().filter(|gap| **gap == label.gap).count();
        (label.number, label.count) = (of_gap(&gaps[..place]), of_gap(&gaps));
        label.width += label.sample();
    }
    labels
}

/// The column behind which the line's label stands.
fn gap_of(sketch: &Sketch, line: Line) -> usize {
    sketch.hosts[line.from].column.min(sketch.hosts[line.to].column)
}

fn box_height(host: &Host) -> f64 {
    LINE * (1 + host.details.len()) as f64 + 12.0
}

fn box_width(host: &Host) -> f64 {
    let texts = [&host.name].into_iter().chain(&host.details);
    texts.map(|text| text.chars().count()).max().unwrap_or(0) as f64 * CHARACTER + 20.0
}

/// How high the highest column of boxes or labels is.
fn height(sketch: &Sketch, labels: &[Label], columns: usize) -> f64 {
    let of_column = |column: usize| {
        let boxes = sketch.hosts.iter().filter(|host| host.column == column).map(box_height);
        let boxes: f64 = boxes.map(|height| height + BETWEEN).sum();
        let labels: f64 =
            labels.iter().filter(|label| label.gap == column).map(|label| label.height + BETWEEN).sum();
        boxes.max(labels)
    };
    (0..columns).map(of_column).fold(0.0, f64::max)
}

/// Where the boxes are, where each gap begins and how long it is, and the width of all.
fn place_boxes(
    sketch: &Sketch,
    labels: &[Label],
    columns: usize,
    height: f64,
) -> (Vec<Rect>, Vec<(f64, f64)>, f64) {
    let mut boxes = vec![Rect::default(); sketch.hosts.len()];
    let mut gaps = Vec::new();
    let mut x = MARGIN;
    for column in 0..columns {
        let of_column = || sketch.hosts.iter().enumerate().filter(|(_, host)| host.column == column);
        let width = of_column().map(|(_, host)| box_width(host)).fold(0.0, f64::max);
        let free = height - of_column().map(|(_, host)| box_height(host)).sum::<f64>();
        let between = free / of_column().count().max(1) as f64;
        let mut y = MARGIN + between / 2.0;
        for (place, host) in of_column() {
            boxes[place] = Rect { x, y, width, height: box_height(host) };
            y += box_height(host) + between;
        }
        let here = labels.iter().filter(|label| label.gap == column);
        let gap = here.map(|label| label.width + 2.0 * SEEN).fold(0.0, f64::max);
        gaps.push((x + width, gap));
        x += width + gap;
    }
    (boxes, gaps, x + MARGIN)
}

/// Puts labels as near to the middle of their lines as the others allow.
fn place_labels(sketch: &Sketch, boxes: &[Rect], labels: &mut [Label], height: f64) {
    for label in labels.iter_mut() {
        let lines = sketch.wires[label.group].lines.iter().filter(|line| gap_of(sketch, **line) == label.gap);
        let middles = lines.map(|line| (boxes[line.from].middle_y() + boxes[line.to].middle_y()) / 2.0);
        let (sum, count) = middles.fold((0.0, 0), |(sum, count), middle| (sum + middle, count + 1));
        label.y = sum / f64::from(count.max(1)) - label.height / 2.0;
    }
    labels.sort_by(|a, b| (a.gap, a.y).partial_cmp(&(b.gap, b.y)).unwrap_or(std::cmp::Ordering::Equal));
    for stack in labels.chunk_by_mut(|a, b| a.gap == b.gap) {
        let mut top = MARGIN;
        for label in stack.iter_mut() {
            label.y = label.y.max(top);
            top = label.y + label.height + BETWEEN / 2.0;
        }
        let mut bottom = MARGIN + height;
        for label in stack.iter_mut().rev() {
            label.y = label.y.min(bottom - label.height);
            bottom = label.y - BETWEEN / 2.0;
        }
    }
}

/// The classes of a group's lines in a gap: those of different groups differ by their dashes.
fn class(label: &Label, wires: &Wires) -> String {
    let bottleneck = if wires.is_bottleneck { " bottleneck" } else { "" };
    let dash = if wires.is_default { 2 } else { [0, 1, 3, 4, 5][label.number % 5] };
    format!("wire d{dash}{bottleneck}")
}

fn draw_line(svg: &mut String, boxes: &[Rect], line: Line, class: &str) {
    let (from, to) = (&boxes[line.from], &boxes[line.to]);
    let (left, right) = if from.x <= to.x { (from, to) } else { (to, from) };
    let (x1, y1, y2) = (left.x + left.width, left.middle_y(), right.middle_y());
    let path = match left.x < right.x {
        true => format!("M{x1:.1} {y1:.1}L{:.1} {y2:.1}", right.x),
        // Hosts of one column: around their right sides.
        false => {
            let out = x1 + 3.0 * BETWEEN;
            format!("M{x1:.1} {y1:.1}C{out:.1} {y1:.1} {out:.1} {y2:.1} {x1:.1} {y2:.1}")
        }
    };
    put(svg, format_args!(r#"<path class="{class}" d="{path}"/>"#));
}

fn draw_box(svg: &mut String, host: &Host, rect: &Rect) {
    let Rect { x, y, width, height } = *rect;
    let bottleneck = if host.is_bottleneck { " bottleneck" } else { "" };
    put(
        svg,
        format_args!(
            r#"<rect class="host{bottleneck}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="5"/>"#
        ),
    );
    let texts = [&host.name].into_iter().chain(&host.details);
    let first = y + (height - LINE * (1 + host.details.len()) as f64) / 2.0;
    for (number, text) in texts.enumerate() {
        put_text(svg, number > 0, x + width / 2.0, first + LINE * (number as f64 + 0.75), text);
    }
}

fn draw_label(svg: &mut String, label: &Label, wires: &Wires, middle: f64) {
    let Label { width, height, y, .. } = *label;
    let x = middle - width / 2.0;
    put(
        svg,
        format_args!(
            r#"<rect class="paper" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"/>"#
        ),
    );
    let sample = label.sample();
    if sample > 0.0 {
        let (at, end) = (y + LINE * 0.5, x + sample - 6.0);
        let class = class(label, wires);
        put(svg, format_args!(r#"<path class="{class}" d="M{x:.1} {at:.1}L{end:.1} {at:.1}"/>"#));
    }
    for (number, text) in wires.label.iter().enumerate() {
        let y = y + LINE * (number as f64 + 0.75);
        put_text(svg, number > 0, x + sample + (width - sample) / 2.0, y, text);
    }
}

fn put_text(svg: &mut String, is_soft: bool, x: f64, y: f64, text: &str) {
    let soft = if is_soft { r#" class="tick""# } else { "" };
    put(
        svg,
        format_args!(r#"<text{soft} text-anchor="middle" x="{x:.1}" y="{y:.1}">{}</text>"#, escape(text)),
    );
}

/// A name without the number at its end.
pub(super) fn stem(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit())
}

/// Names that differ only by their numbers, as one: "reader1 to reader7".
pub(super) fn range(names: &[&str]) -> String {
    let mut numbers: Vec<(u64, &str)> =
        names.iter().map(|name| (name[stem(name).len()..].parse().unwrap_or(0), *name)).collect();
    numbers.sort_unstable();
    match numbers[..] {
        [] => String::new(),
        [(_, one)] => one.to_owned(),
        [(_, one), (_, two)] => format!("{one}, {two}"),
        [(low, first), .., (high, last)] if high - low + 1 == numbers.len() as u64 => {
            format!("{first} to {last}")
        }
        [(_, first), .., (_, last)] => format!("{} of {first} to {last}", numbers.len()),
    }
}

/// Names, those together that differ only by their numbers.
pub(super) fn ranges(names: &[&str]) -> Vec<String> {
    let mut stems: Vec<&str> = Vec::new();
    for name in names {
        if !stems.contains(&stem(name)) {
            stems.push(stem(name));
        }
    }
    let of = |of: &str| range(&names.iter().copied().filter(|name| stem(name) == of).collect::<Vec<_>>());
    stems.into_iter().map(of).collect()
}
