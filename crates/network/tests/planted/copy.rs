//! The copy of the sources with the bugs in it.

use crate::table::{PLANTED, Planted};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Names the bug that is there, by its number; there is none of number zero.
pub const VARIABLE: &str = "HEDDLE_PLANTED";
/// What the copy's program is called, so that it does not take the place of the sources' own.
const PROGRAM: &str = "planted_swarm";
/// What the copy's crates are, so that their artefacts do not take the place of the sources' either: cargo names those
/// of a workspace by name and version.
const VERSIONS: [&str; 2] = ["version = \"0.1.0\"", "version = \"0.1.0-planted\""];

/// Says which bug is there.
const SWITCH: &str = "
/// Whether the bug of this number is there.
#[doc(hidden)]
pub fn planted(number: usize) -> bool {
    static WHICH: std::sync::LazyLock<usize> =
        std::sync::LazyLock::new(|| std::env::var(\"HEDDLE_PLANTED\").map_or(0, |which| which.parse().unwrap()));
    *WHICH == number
}
";

/// Makes the copy and builds it, once; returns its program.
pub fn build() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build_now).clone()
}

fn build_now() -> PathBuf {
    let house = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (copy, target) =
        (temporary.join("planted"), temporary.parent().expect("it is in the target directory"));
    copy_house(&house, &copy);
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--locked",
            "--offline",
            "--quiet",
            "--package",
            "heddle-network",
            "--example",
            PROGRAM,
        ])
        .arg("--manifest-path")
        .arg(copy.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "the copy in {} does not build: {said}", copy.display());
    target.join("debug/examples").join(PROGRAM)
}

/// Copies the workspace, with the bugs.
fn copy_house(house: &Path, copy: &Path) {
    let renamed = |name: &str| {
        let text = fs::read_to_string(house.join(name)).expect("it can be read");
        put(&copy.join(name), rename(&text).as_bytes());
    };
    ["Cargo.toml", "Cargo.lock"].into_iter().for_each(renamed);
    let mut bugs = bugs_by_file();
    copy_folder(house, copy, Path::new("crates"), &mut bugs);
    assert!(bugs.is_empty(), "there are no such files: {:?}", bugs.keys());
    let examples = copy.join("crates/network/examples");
    let example = fs::read(examples.join("swarm.rs")).expect("it was copied");
    put(&examples.join(format!("{PROGRAM}.rs")), &example);
}

/// Gives the house's own crates another version, in a manifest or in the lock file.
fn rename(text: &str) -> String {
    let mut ours = true;
    let line = |line: &str| {
        if line.starts_with("name = ") {
            ours = line.starts_with("name = \"heddle");
        }
        if ours { line.replace(VERSIONS[0], VERSIONS[1]) } else { line.to_owned() }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Copies the files of a folder, each with its bugs, which are taken out of `bugs`.
fn copy_folder(house: &Path, copy: &Path, folder: &Path, bugs: &mut BTreeMap<&str, Vec<usize>>) {
    for entry in fs::read_dir(house.join(folder)).expect("the folder can be read") {
        let entry = entry.expect("it can be read");
        let path = folder.join(entry.file_name());
        if entry.file_type().expect("it has one").is_dir() {
            copy_folder(house, copy, &path, bugs);
            continue;
        }
        let bytes = fs::read(house.join(&path)).expect("it can be read");
        let name = path.strip_prefix("crates").ok().and_then(Path::to_str).expect("names are plain");
        let bytes = match (bugs.remove(name), name) {
            (None, "seam/src/lib.rs") => [&bytes[..], SWITCH.as_bytes()].concat(),
            (None, _) => bytes,
            (Some(numbers), _) => {
                plant(&String::from_utf8(bytes).expect("it is text"), &numbers).into_bytes()
            }
        };
        put(&copy.join(&path), &bytes);
    }
}

/// Writes a file, unless it is so already: what is as it was is not built again.
fn put(path: &Path, bytes: &[u8]) {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return;
    }
    fs::create_dir_all(path.parent().expect("it is in a folder")).expect("there is room");
    fs::write(path, bytes).expect("there is room");
}

fn bugs_by_file() -> BTreeMap<&'static str, Vec<usize>> {
    let mut files: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, bug) in PLANTED.iter().enumerate() {
        files.entry(bug.file).or_default().push(index);
    }
    files
}

/// Puts bugs beside what is right, which is chosen when none of them is there.
fn plant(text: &str, bugs: &[usize]) -> String {
    let mut by_place: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for index in bugs {
        by_place.entry(find(text, &PLANTED[*index])).or_default().push(*index);
    }
    let (mut planted, mut done) = (String::new(), 0);
    for ((from, to), bugs) in by_place {
        assert!(from >= done, "{}: stands where another does", PLANTED[bugs[0]].name);
        let good = &text[from..to];
        let crate_name = if PLANTED[bugs[0]].file.starts_with("seam/") { "crate" } else { "heddle_seam" };
        let choice = |index: &usize| {
            format!("if {crate_name}::planted({}) {{ {} }} else ", index + 1, PLANTED[*index].bad)
        };
        let choices = format!("{}{{ {good} }}", bugs.iter().map(choice).collect::<String>());
        // Of an expression, which may be a part of another.
        let is_value = !good.ends_with([';', '}']);
        planted.push_str(&text[done..from]);
        planted.push_str(&if is_value { format!("({choices})") } else { choices });
        done = to;
    }
    planted + &text[done..]
}

/// Where the text is that a bug takes the place of, however that is broken into lines.
fn find(text: &str, bug: &Planted) -> (usize, usize) {
    let (before, rest) = bug.good.split_once("[[").unwrap_or(("", bug.good));
    let (good, after) = rest.split_once("]]").unwrap_or((rest, ""));
    let whole = [before, good, after].concat();
    let starts =
        text.char_indices().map(|(at, _)| at).filter(|at| !text[*at..].starts_with(char::is_whitespace));
    let mut found = starts.filter(|at| matched(&text[*at..], &whole).is_some());
    let first = found.next().unwrap_or_else(|| panic!("{}: `{whole}` stands nowhere", bug.name));
    assert!(found.next().is_none(), "{}: `{whole}` stands there twice", bug.name);
    let from = first + matched(&text[first..], before).expect("it was found");
    let from = text.len() - text[from..].trim_start().len();
    (from, from + matched(&text[from..], good).expect("it was found"))
}

/// How much of the text `wanted` is, if it begins with it, but for what is between words.
fn matched(text: &str, wanted: &str) -> Option<usize> {
    let mut at = 0;
    for letter in wanted.chars().filter(|letter| !letter.is_whitespace()) {
        let rest = text[at..].trim_start();
        at = text.len() - rest.len() + rest.strip_prefix(letter).map(|_| letter.len_utf8())?;
    }
    Some(at)
}
