use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::draw::DOCS;
use super::measure::make_all;
use super::*;
use crate::figures::{Figure, labels, quantity};
use crate::plan::Plan;
use crate::results::{Judgement, NOT_COMPLETED, OUT_OF_TIME, Outcome, RunSamples, Summary};

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_shipped_book_names_plans_and_figures_that_are_there() {
    let book = Book::shipped().unwrap();
    for wanted in &book.measurements {
        let words: Vec<&str> = wanted.command.split_whitespace().collect();
        let text = match words[..] {
            ["lab", "run", name, ..] => {
                let loaded = Plan::load(name, &BTreeMap::new()).unwrap();
                if let Some(at) = words.iter().position(|word| *word == "--arms") {
                    let arms: Vec<String> = words[at + 1].split(',').map(str::to_owned).collect();
                    loaded.plan.with_arms(&arms).unwrap();
                }
                loaded.text
            }
            _ => String::new(),
        };
        for figure in wanted.figures.iter().chain(wanted.aims.iter().map(|aim| &aim.figure)) {
            let is_known = quantity(figure).is_some() || text.contains(&format!("\"{figure}\""));
            assert!(is_known, "{}: {figure}", wanted.name);
        }
    }
}

/// Every experiment of the papers, and every table and figure that shows a result. `papers.toml` says what is left out.
#[test]
fn nothing_that_the_papers_have_is_forgotten() {
    let numbered = |what: &str, numbers: &[&str]| -> Vec<String> {
        numbers.iter().map(|number| format!("{what} {number}")).collect()
    };
    let range = |what: &str, chapter: u32, numbers: std::ops::RangeInclusive<u32>| -> Vec<String> {
        numbers.map(|number| format!("{what} {chapter}.{number}")).collect()
    };
    let expected: [(&str, Vec<Vec<String>>); 4] = [
        (
            "reardon",
            vec![
                (1..=13).map(|number| format!("experiment {number}")).collect(),
                range("table", 4, 1..=1),
                range("table", 5, 1..=5),
                range("table", 7, 1..=3),
                range("figure", 5, 5..=19),
                range("figure", 7, 1..=5),
                numbered(
                    "section",
                    &[
                        "4.1", "4.2", "4.3", "6.4", "8.1.2", "8.1.3", "8.1.4", "8.1.5", "8.1.6", "8.1.7",
                        "8.1.8", "8.1.10",
                    ],
                ),
                numbered("2009, section", &["5.1", "5.2"]),
            ],
        ),
        (
            "pctcp",
            vec![numbered("figure", &["4", "5", "6", "7", "8"]), numbered("section", &["3", "4", "5.1"])],
        ),
        (
            "defenestrator",
            vec![
                numbered("figure", &["2", "5", "6", "7", "8", "9", "10", "11", "12", "13"]),
                numbered("section", &["5.1", "6.3"]),
            ],
        ),
        ("quux", vec![numbered("section", &["3.3", "4.2", "5.1", "5.1.1", "5.2", "6.1"])]),
    ];
    let book = Book::shipped().unwrap();
    for (page, numbers) in expected {
        let of_page = book.items.iter().filter(|item| item.page == page);
        let mut has: Vec<String> = of_page.flat_map(|item| item.numbers.clone()).collect();
        let mut expected = numbers.concat();
        has.sort();
        expected.sort();
        assert_eq!(has, expected, "{page}");
    }
    assert!(book.items.iter().all(|item| book.pages.iter().any(|page| page.name == item.page)));
}

/// So no number stands in them that was not measured.
#[test]
fn the_pages_of_the_repository_are_what_its_records_say() {
    let stale = stale(&Book::shipped().unwrap(), &root()).unwrap();
    assert!(stale.is_empty(), "draw them anew (heddle lab book draw): {stale:?}");
}

#[test]
fn a_bad_list_is_refused_in_a_sentence() {
    let page = "[[page]]\nname = 'a'\ntitle = 'A'\nabout = ''\n";
    let measured = |name: &str, page: &str, command: &str| {
        format!("[[measurement]]\nname = '{name}'\npage = '{page}'\ncommand = '{command}'\nminutes = 1\n")
    };
    let row = "[[row]]\ntitle = 'r'\nmeasurement = 'x'\nfigure = 'f'\nheddle = {}\n";
    let refused = |text: String| Book::parse(&text, "mine.toml").unwrap_err().to_string();
    let good = format!("{page}{}{}", measured("b", "a", "demo"), row.replace("'x'", "'b'"));
    Book::parse(&good, "mine.toml").unwrap();
    assert!(refused(format!("{page}{}{row}", measured("B/..", "a", "demo"))).contains("small letters"));
    assert!(refused(format!("{page}{}{row}", measured("a", "a", "demo"))).contains("twice"));
    assert!(refused(format!("{page}{}{row}", measured("b", "c", "demo"))).contains("page \"c\""));
    assert!(refused(format!("{page}{}{row}", measured("b", "a", "demo --out x"))).contains("has no --out"));
    assert!(refused(format!("{page}{}{row}", measured("b", "a", "relay"))).contains("begins with"));
    let of_samples = "aims = [{ figure = 'f', at_most = 1, always = true, source = 's' }]\n";
    assert!(refused(format!("{page}{}{of_samples}{row}", measured("b", "a", "demo"))).contains("always"));
    assert!(refused(format!("{page}{}{row}", measured("b", "a", "demo"))).contains("nobody measures"));
    assert!(refused(format!("{page}minuets = 1\n")).contains("mine.toml"));
}

/// The page of the small book.
const PAGE: &str = concat!("docs/results/", "cost.md");

/// A book of one measurement, and a repository whose README has the marks.
fn small(dir: &Path) -> Book {
    let text = "[[page]]\nname = 'cost'\ntitle = 'Cost'\nabout = 'About it.'\n\
        [[measurement]]\nname = 'bench'\npage = 'cost'\ntitle = 'Busy'\ncommand = 'bench --rounds 3'\nminutes = 1\n\
        figures = ['middle_cpu_over', 'download_mb_s']\n\
        aims = [{ figure = 'middle_cpu_over', labels = { transport = 'quic' }, at_most = 0.5, source = 'half' },\n\
                { figure = 'middle_cpu_over', labels = { transport = 'tls' }, at_most = 0.5, source = 'half' }]\n\
        [[row]]\ntitle = 'cost'\nmeasurement = 'bench'\nfigure = 'middle_cpu_over'\n\
        heddle = { transport = 'quic' }\n";
    fs::write(dir.join("README.md"), "before\n<!-- results -->\nold\n<!-- /results -->\nafter\n").unwrap();
    Book::parse(text, "small.toml").unwrap()
}

fn figure(name: &str, transport: &str, mean: f64, ci95: Option<[f64; 2]>) -> Figure {
    let labels = labels([("transport", transport)]);
    let unit = "×".to_owned();
    Figure { name: name.to_owned(), labels, unit, n: 3, mean, ci95, p50: mean, p90: mean, p99: mean }
}

/// What `heddle bench` would have left.
fn measured(dir: &Path, valid: bool) {
    let summary = Summary {
        plan: "bench".into(),
        commit: "0123456789abcdef".into(),
        tor: "0.4.9.11".into(),
        runs_wanted: 3,
        seeds: vec![0; 3],
        valid,
        reasons: if valid { Vec::new() } else { vec!["a | reason".into()] },
        figures: vec![
            figure("middle_cpu_over", "quic", 0.456_789_1, Some([0.4, 0.49])),
            figure("middle_cpu_over", "tls", 0.7, Some([0.6, 0.8])),
            figure("download_mb_s", "stock", 70.0, None),
        ],
        ..Summary::default()
    };
    summary.write(&dir.join("bench/summary.json")).unwrap();
    RunSamples::default().write(&dir.join("bench")).unwrap();
}

#[test]
fn an_aim_that_was_set_afterwards_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let (root, mut book) = (dir.path(), small(dir.path()));
    let made = root.join("made");
    measured(&made, true);
    let page = |book: &Book| {
        collect(book, &made, root).unwrap();
        draw(book, root).unwrap();
        fs::read_to_string(root.join(PAGE)).unwrap()
    };
    // Nobody knows when those of older records were set.
    assert!(!page(&book).contains("set after"));
    let [first, second] = book.measurements[0].aims.clone().try_into().unwrap();
    record::note_aims(&made.join("bench"), &[first, second.clone()]).unwrap();
    assert!(!page(&book).contains("set after"));
    // What was noted first stays.
    let lower = Target { at_most: Some(0.9), ..second };
    record::note_aims(&made.join("bench"), std::slice::from_ref(&lower)).unwrap();
    book.measurements[0].aims[1] = lower;
    let told = page(&book);
    assert_eq!(told.matches("(an aim set after it was measured)").count(), 1, "{told}");
    assert!(told.contains("| met (an aim set after it was measured) | half |"), "{told}");
}

#[test]
fn pages_say_what_was_measured_and_what_became_of_each_aim() {
    let dir = tempfile::tempdir().unwrap();
    let (root, book) = (dir.path(), small(dir.path()));
    assert_eq!(stale(&book, root).unwrap().len(), 3);
    draw(&book, root).unwrap();
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    assert!(read(PAGE).contains("**Not measured** yet: `heddle bench --rounds 3`"));
    assert!(read("README.md").contains("| not measured |"));

    measured(&root.join("made"), true);
    assert_eq!(collect(&book, &root.join("made"), root).unwrap(), 1);
    assert!(!stale(&book, root).unwrap().is_empty());
    draw(&book, root).unwrap();
    assert!(stale(&book, root).unwrap().is_empty());
    let page = read(PAGE);
    assert!(
        page.contains("0.457 (0.4 to 0.49) | met | half |")
            || page.contains("0.457 (0.400 to 0.490) | met | half |"),
        "{page}"
    );
    assert!(page.contains("| **missed** | half |") && page.contains("commit 0123456"), "{page}");
    let readme = read("README.md");
    assert!(
        readme.starts_with("before\n<!-- results -->\n") && readme.ends_with("<!-- /results -->\nafter\n")
    );
    assert!(readme.contains("cost (aim 0.500: met)") && !readme.contains("old"), "{readme}");

    // Somebody writes a better number by hand.
    fs::write(root.join(PAGE), page.replace("0.457", "0.357")).unwrap();
    assert_eq!(stale(&book, root).unwrap(), [root.join(PAGE)]);
}

#[test]
fn of_what_must_not_be_trusted_no_aim_is_met() {
    let dir = tempfile::tempdir().unwrap();
    let (root, book) = (dir.path(), small(dir.path()));
    measured(&root.join("made"), false);
    collect(&book, &root.join("made"), root).unwrap();
    draw(&book, root).unwrap();
    let page = fs::read_to_string(root.join(PAGE)).unwrap();
    assert!(page.contains("**Not valid**") && page.contains("a | reason"), "{page}");
    assert!(page.contains("| **open** | half |") && !page.contains("| met |"), "{page}");
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    assert!(
        readme.contains("**Not valid: bench.**")
            && readme.contains("(**not valid**)")
            && readme.contains("cost (aim 0.500: **open**)"),
        "{readme}"
    );
}

/// A bench whose time was short has fewer rounds than were wanted.
#[test]
fn with_fewer_rounds_than_wanted_no_aim_is_met() {
    let dir = tempfile::tempdir().unwrap();
    let (root, book) = (dir.path(), small(dir.path()));
    measured(&root.join("made"), true);
    let made = root.join("made/bench");
    let summary = Summary { seeds: vec![0; 2], ..Summary::read(&made).unwrap() };
    summary.write(&made.join("summary.json")).unwrap();
    collect(&book, &root.join("made"), root).unwrap();
    draw(&book, root).unwrap();
    let page = fs::read_to_string(root.join(PAGE)).unwrap();
    assert!(page.contains("| **open** | half |") && !page.contains("| met |"), "{page}");
}

/// What the book says was drawn: nothing else lies beside its pages and records.
#[test]
fn results_have_no_pages_made_by_hand() {
    let book = Book::shipped().unwrap();
    let pages = book.pages.iter().map(|page| format!("{}.md", page.name));
    let records = book.measurements.iter().map(|wanted| format!("{}.json", wanted.name));
    let known: BTreeSet<String> = pages.chain(records).chain(["README.md".to_owned()]).collect();
    let there = fs::read_dir(root().join(DOCS)).unwrap();
    let there: BTreeSet<String> =
        there.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(there.difference(&known).collect::<Vec<_>>(), Vec::<&String>::new());
}

/// What is measured stands in the README's table alone, which is drawn. Minutes tell how long commands take.
#[test]
fn the_readme_has_no_figures_outside_its_table() {
    const UNITS: [&str; 14] = [
        "ms", "s", "µs", "seconds", "KB", "MB", "GB", "KB/s", "MB/s", "Mbit/s", "%", "×", "times", "percent",
    ];
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let (before, rest) = readme.split_once("<!-- results -->").unwrap();
    let (_, after) = rest.split_once("<!-- /results -->").unwrap();
    for text in [before, after] {
        let words: Vec<&str> = text
            .split_whitespace()
            .map(|word| word.trim_matches(['(', ')', ',', '.', ';', ':', '*']))
            .collect();
        for pair in words.windows(2) {
            let is_number = pair[0].starts_with(|c: char| c.is_ascii_digit());
            assert!(!(is_number && UNITS.contains(&pair[1])), "{} {}", pair[0], pair[1]);
        }
    }
}

#[test]
fn a_record_comes_back_as_it_was_written_with_a_line_for_each_figure() {
    let dir = tempfile::tempdir().unwrap();
    let (root, book) = (dir.path(), small(dir.path()));
    measured(&root.join("made"), true);
    let mut record = Record::of(book.wanted("bench").unwrap(), &root.join("made/bench")).unwrap();
    record.targets.push(Judgement {
        figure: "download_mb_s".into(),
        labels: BTreeMap::new(),
        unit: "MB/s".into(),
        at_most: None,
        at_least: Some(1.0),
        source: "a \"paper\"".into(),
        ours: Some(70.0),
        ci95: None,
        runs: 1,
        runs_due: 1,
        outcome: Outcome::Open,
    });
    record.write(root).unwrap();
    assert_eq!(Record::read(root, "bench").unwrap().as_ref(), Some(&record));
    assert_eq!(Record::read(root, "other").unwrap(), None);
    let text = fs::read_to_string(root.join("bench.json")).unwrap();
    assert_eq!(text.lines().filter(|line| line.trim_start().starts_with("{\"")).count(), 4, "{text}");
    assert!(text.contains("0.45679"));
    fs::write(root.join("bad.json"), "{").unwrap();
    assert!(Record::read(root, "bad").unwrap_err().to_string().contains("bad.json"));
}

/// The program that is called here leaves the summary whose turn it is, as a plan without room for all runs does.
#[test]
fn a_measurement_that_its_budget_cuts_short_goes_on_until_all_runs_are_made() {
    let dir = tempfile::tempdir().unwrap();
    let called = |name: &str, files: &str, why: &str, left: &[usize]| {
        let place = dir.path().join(name);
        fs::create_dir_all(&place).unwrap();
        for (turn, runs) in left.iter().enumerate() {
            let reasons =
                if *runs < 3 { vec![format!("{NOT_COMPLETED}: {runs} of 3 {why}")] } else { Vec::new() };
            let summary = Summary { runs_wanted: 3, seeds: vec![0; *runs], reasons, ..Summary::default() };
            summary.write(&place.join(format!("{}.json", turn + 1))).unwrap();
        }
        let script = place.join("heddle");
        let text = format!(
            "#!/bin/sh\ncd \"$(dirname \"$0\")\"\necho called >> calls\nmkdir -p \"$5\"\n\
             cp \"$(wc -l < calls).json\" \"$5/summary.json\"\n{files}\n"
        );
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let book = small(dir.path());
        let out = place.join("out");
        make_all(book.wanted("bench").unwrap(), &script, &out.join("bench")).unwrap();
        let attempts = fs::read_to_string(out.join("bench.attempts.json")).unwrap();
        assert_eq!(
            attempts.matches("began").count(),
            fs::read_to_string(place.join("calls")).unwrap().lines().count()
        );
        attempts.matches("began").count()
    };
    let plan = "touch \"$5/plan.toml\"";
    assert_eq!(called("one", plan, OUT_OF_TIME, &[3]), 1);
    assert_eq!(called("two", plan, OUT_OF_TIME, &[1, 3]), 2);
    assert_eq!(called("three", plan, OUT_OF_TIME, &[1, 1, 3]), 2, "no run more came of the second");
    assert_eq!(called("four", plan, OUT_OF_TIME, &[0, 1, 2, 3]), 1, "none came of the first");
    assert_eq!(called("five", plan, "runs: a relay ended", &[1, 3]), 1, "it was not for want of time");
    assert_eq!(called("six", "", OUT_OF_TIME, &[1, 3]), 1, "nothing can be added to it");
}
