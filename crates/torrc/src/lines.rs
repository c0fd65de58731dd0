//! From the text of a torrc to its lines: comments, quotes, continuation and `%include`.
//!
//! The format is stock Tor's (tor(1), "THE CONFIGURATION FILE FORMAT"), with one difference: an error
//! names its file and line.

use std::fs;
use std::path::{Path, PathBuf};

use super::TorrcError;

/// How a line changes an option that has been set before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// `Option value`: replaces what an earlier file said.
    Set,
    /// `+Option value`: adds to what an earlier file said.
    Append,
    /// `/Option`: forgets what was said.
    Clear,
}

/// Where something was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: PathBuf,
    pub(super) line: usize,
}

/// One option's line, after joining continued lines and undoing quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) place: Place,
    pub(super) command: Command,
    pub(super) name: String,
    pub(super) value: String,
}

/// How many files deep includes may go, as in stock Tor.
const INCLUDE_DEPTH_MAX: usize = 31;

/// How many lines a configuration may have with everything it includes. A directory that includes itself
/// twice would otherwise double with each level.
const LINES_MAX: usize = 1_000_000;

/// Reads a file and everything it includes.
pub(super) fn read(path: &Path) -> Result<Vec<Line>, TorrcError> {
    let mut lines = Vec::new();
    read_into(path, 0, &mut lines)?;
    Ok(lines)
}

fn read_into(path: &Path, depth: usize, lines: &mut Vec<Line>) -> Result<(), TorrcError> {
    let whole_file = Place { file: path.to_owned(), line: 0 };
    let bytes = fs::read(path).map_err(|error| {
        TorrcError::at(&whole_file, format!("the file cannot be read ({error}); mend its path or mode"))
    })?;
    // Stock Tor takes bytes as they come and asks for UTF-8 only where it matters, in ContactInfo.
    let text = String::from_utf8_lossy(&bytes);
    for line in parse(&text, path)? {
        if lines.len() >= LINES_MAX {
            return Err(TorrcError::at(
                &line.place,
                format!("the configuration has more than {LINES_MAX} lines"),
            ));
        }
        if line.name == "%include" {
            include(&line, depth, lines)?;
        } else {
            lines.push(line);
        }
    }
    Ok(())
}

/// Reads what an `%include` names: a file, every plain file of a directory that does not begin with a dot, or
/// all of those that match a pattern, in the order of their names.
fn include(line: &Line, depth: usize, lines: &mut Vec<Line>) -> Result<(), TorrcError> {
    if depth >= INCLUDE_DEPTH_MAX {
        return Err(TorrcError::at(
            &line.place,
            format!(
                "includes are nested more than {INCLUDE_DEPTH_MAX} deep; a file probably includes itself"
            ),
        ));
    }
    let cannot_read = |path: &Path, error: std::io::Error| {
        TorrcError::at(
            &line.place,
            format!("`{}` cannot be included ({error}); mend its path or mode", path.display()),
        )
    };
    for path in expand_pattern(Path::new(&line.value)) {
        if !fs::metadata(&path).map_err(|error| cannot_read(&path, error))?.is_dir() {
            read_into(&path, depth + 1, lines)?;
            continue;
        }
        for file in plain_files(&path).map_err(|error| cannot_read(&path, error))? {
            read_into(&file, depth + 1, lines)?;
        }
    }
    Ok(())
}

fn plain_files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !hidden && fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_file()) {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// The paths a pattern with `*` and `?` stands for, sorted; a path without them stands for itself. Nothing may
/// match, which is no error, as in stock Tor.
fn expand_pattern(pattern: &Path) -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::new()];
    for part in pattern.components() {
        let part = part.as_os_str();
        let text = part.to_string_lossy();
        if !text.contains(['*', '?']) {
            for path in &mut paths {
                path.push(part);
            }
            continue;
        }
        paths = paths.iter().flat_map(|parent| matching_children(parent, &text)).collect();
        paths.sort();
    }
    if pattern.to_string_lossy().contains(['*', '?']) {
        paths.retain(|path| path.exists());
    }
    paths
}

fn matching_children(parent: &Path, pattern: &str) -> Vec<PathBuf> {
    let listed = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let Ok(entries) = fs::read_dir(listed) else {
        return Vec::new();
    };
    entries
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|name| {
            let name = name.to_string_lossy();
            name.starts_with('.') == pattern.starts_with('.') && matches(pattern.as_bytes(), name.as_bytes())
        })
        .map(|name| parent.join(name))
        .collect()
}

/// Whether a name matches a pattern in which `*` is any bytes and `?` is one byte. Only the last star
/// is ever tried again, so the work is at most the product of the lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, n));
            p += 1;
        } else if pattern.get(p).is_some_and(|byte| *byte == b'?' || *byte == name[n]) {
            p += 1;
            n += 1;
        } else if let Some((star_p, star_n)) = star {
            star = Some((star_p, star_n + 1));
            p = star_p + 1;
            n = star_n + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// Splits a file's text into lines. `path` is only for errors.
pub(super) fn parse(text: &str, path: &Path) -> Result<Vec<Line>, TorrcError> {
    let mut lines = Vec::new();
    let mut rows = text.split('\n').enumerate();
    while let Some((index, row)) = rows.next() {
        let place = Place { file: path.to_owned(), line: index + 1 };
        let row = row.trim_start();
        if row.is_empty() || row.starts_with('#') {
            continue;
        }
        let name_end = row.find(|c: char| c.is_ascii_whitespace() || c == '#').unwrap_or(row.len());
        // A name may be continued on the next line too: a backslash at its end belongs to the value.
        let name_end = if name_end == row.len() && row.ends_with('\\') { name_end - 1 } else { name_end };
        let (name, rest) = row.split_at(name_end);
        let rest = rest.trim_start();
        let value = if rest.starts_with('"') {
            unquote(rest).map_err(|reason| TorrcError::at(&place, reason))?
        } else {
            join_continued(rest, &mut rows)
        };
        let (command, name) = match name.as_bytes() {
            [b'+', ..] => (Command::Append, &name[1..]),
            [b'/', ..] => (Command::Clear, &name[1..]),
            _ => (Command::Set, name),
        };
        lines.push(Line {
            place,
            command,
            name: name.to_owned(),
            value: if command == Command::Clear { String::new() } else { value },
        });
    }
    Ok(lines)
}

/// Joins a value with the lines it is continued on by backslashes. Between continued lines, comment lines are
/// left out.
fn join_continued<'a>(first: &str, rows: &mut impl Iterator<Item = (usize, &'a str)>) -> String {
    let mut value = String::new();
    let mut row = first;
    let mut continued = false;
    loop {
        let code = row.split('#').next().unwrap_or("");
        let has_comment = code.len() < row.len();
        let next_is_joined = if has_comment { continued } else { code.ends_with('\\') };
        value.push_str(if has_comment { code } else { code.strip_suffix('\\').unwrap_or(code) });
        continued |= next_is_joined;
        match rows_if(next_is_joined, rows) {
            Some(next) => row = next,
            None => return value.trim_end().to_owned(),
        }
    }
}

fn rows_if<'a>(wanted: bool, rows: &mut impl Iterator<Item = (usize, &'a str)>) -> Option<&'a str> {
    if wanted { rows.next().map(|(_, row)| row) } else { None }
}

/// Undoes a quoted value with C's escapes; only a comment may follow it.
fn unquote(text: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut rest = &text.as_bytes()[1..];
    loop {
        match rest {
            [b'"', after @ ..] => {
                let tail = after.trim_ascii_start();
                if !tail.is_empty() && tail[0] != b'#' {
                    return Err(
                        "something follows the closing quote; quote the whole value or nothing".to_owned()
                    );
                }
                return Ok(String::from_utf8_lossy(&bytes).into_owned());
            }
            [b'\\', escape @ ..] => {
                let (byte, length) = unescape(escape)
                    .ok_or("the quoted value has an unknown escape; write \\\\ for a backslash")?;
                bytes.push(byte);
                rest = &escape[length..];
            }
            [byte, after @ ..] => {
                bytes.push(*byte);
                rest = after;
            }
            [] => return Err("the closing quote is missing".to_owned()),
        }
    }
}

/// The byte an escape stands for and the length of what follows its backslash.
fn unescape(text: &[u8]) -> Option<(u8, usize)> {
    let simple = |byte| Some((byte, 1));
    match *text.first()? {
        b'n' => simple(b'\n'),
        b'r' => simple(b'\r'),
        b't' => simple(b'\t'),
        byte @ (b'"' | b'\'' | b'\\') => simple(byte),
        b'x' | b'X' => {
            let digit = |index: usize| (*text.get(index)? as char).to_digit(16);
            Some(((digit(1)? * 16 + digit(2)?) as u8, 3))
        }
        b'0'..=b'7' => {
            let length = text.iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
            let value = text[..length].iter().fold(0u32, |value, byte| value * 8 + u32::from(byte - b'0'));
            Some((u8::try_from(value).ok()?, length))
        }
        _ => None,
    }
}
