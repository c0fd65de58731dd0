//! Instructions and calls as callgrind counts them, of the functions with one word in their names and of all that they
//! call.

use core::cmp::Ordering;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::Command;

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    pub instructions: u64,
    /// Blocks of memory that were asked for, those that grew or shrank included.
    pub allocations: u64,
    /// Calls of what copies bytes.
    pub copies: u64,
    /// Instructions by the library that has the function. What the compiler put into another's function counts there.
    pub by_library: BTreeMap<String, u64>,
}

/// What a program said, and what it did in functions whose names have the word `of`, in parts that end before functions
/// whose names have the word `end`. What came after the last end is left out.
///
/// # Errors
/// When there is no valgrind, or it or the program fails.
pub fn count(program: &Path, args: &[&str], of: &str, end: &str) -> io::Result<(String, Vec<Counted>)> {
    let directory = std::env::temp_dir().join(format!("heddle-cells-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let counted = count_in(&directory, program, args, (of, end));
    std::fs::remove_dir_all(&directory)?;
    counted
}

fn count_in(
    directory: &Path,
    program: &Path,
    args: &[&str],
    (of, end): (&str, &str),
) -> io::Result<(String, Vec<Counted>)> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--dump-line=no", "--dump-instr=yes", "--compress-pos=no", "--quiet"]);
    command.args([format!("--toggle-collect=*{of}*"), format!("--dump-before=*{end}*")]);
    command.arg(format!("--callgrind-out-file={}", directory.join("part").display()));
    command.arg(program).args(args);
    // The allocator gives memory back by the clock, which would make counts differ from run to run.
    command.env("MIMALLOC_PURGE_DELAY", "-1");
    let output = command.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => io::Error::other(LACKING),
        _ => error,
    })?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("the program failed under valgrind: {why}")));
    }
    let mut parts = Vec::new();
    #[expect(clippy::disallowed_methods, reason = "callgrind tells it in files")]
    while let Ok(text) = std::fs::read_to_string(directory.join(format!("part.{}", parts.len() + 1))) {
        parts.push(
            read(&text).ok_or_else(|| io::Error::other("callgrind's files are not as they used to be"))?,
        );
    }
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), parts))
}

/// What is said where there is no valgrind.
pub const LACKING: &str =
    "there is no valgrind, which counts instructions; `apt-get install valgrind` brings it";

/// Reads callgrind's file, whose lines are an instruction's place and how often it ran. The calls that it tells are of
/// no use, because they include those from elsewhere: a function was called as often as its first instruction ran.
fn read(text: &str) -> Option<Counted> {
    let mut counted = Counted::default();
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    let mut first: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let (mut function, mut is_of_callee) = ("", false);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            function = full(&mut names, name)?;
        } else if let Some(name) = line.strip_prefix("cfn=") {
            full(&mut names, name)?;
        } else if line.starts_with("calls=") {
            is_of_callee = true;
        } else if let Some((place, count)) = line.strip_prefix("0x").and_then(|line| line.split_once(' ')) {
            let (place, count) = (u64::from_str_radix(place, 16).ok()?, count.trim().parse::<u64>().ok()?);
            if !core::mem::take(&mut is_of_callee) {
                counted.instructions += count;
                *counted.by_library.entry(library(function).to_owned()).or_default() += count;
                let lowest = first.entry(function).or_insert((place, 0));
                *lowest = match place.cmp(&lowest.0) {
                    Ordering::Less => (place, count),
                    Ordering::Equal => (place, lowest.1 + count),
                    Ordering::Greater => *lowest,
                };
            }
        }
    }
    let calls = |is_it: fn(&str) -> bool| {
        first.iter().filter(move |(name, _)| is_it(name)).map(|(_, (_, count))| count)
    };
    (counted.allocations, counted.copies) = (calls(is_allocation).sum(), calls(is_copy).sum());
    (counted.instructions > 0).then_some(counted)
}

/// A name, which stands with its number once and is named by the number then.
fn full<'a>(names: &mut BTreeMap<&'a str, &'a str>, name: &'a str) -> Option<&'a str> {
    let (number, rest) = name.split_once(')')?;
    if !rest.is_empty() {
        names.insert(number, rest.trim_start());
    }
    names.get(number).copied()
}

/// What a program calls for memory. Functions that these call have other names.
fn is_allocation(function: &str) -> bool {
    let of_c = function.strip_prefix("mi_").unwrap_or(function);
    ["malloc", "calloc", "zalloc", "realloc", "malloc_aligned", "zalloc_aligned", "realloc_aligned"]
        .contains(&of_c)
}

fn is_copy(function: &str) -> bool {
    ["memcpy", "memmove", "__memcpy", "__memmove"].iter().any(|name| function.starts_with(name))
}

/// The library that a function is of, by its name.
fn library(function: &str) -> &str {
    if is_copy(function) {
        return "copies";
    }
    if function.starts_with("mi_") || function.starts_with("_mi_") || is_allocation(function) {
        return "allocator";
    }
    if !function.contains("::") {
        return "C and assembly";
    }
    let name = function.trim_start_matches(['<', '&', '*', '[', '(']);
    let name = ["dyn ", "mut ", "const "].iter().fold(name, |name, word| name.trim_start_matches(word));
    name.split("::").next().unwrap_or(name)
}
