//! The files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

/// A text file of the repository.
#[derive(Clone, Debug)]
pub struct File {
    /// Its path below the root, with forward slashes.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// What is made by builds and runs, or is not ours to check. In a further worktree of git, `.git` is a file.
const SKIPPED: &[&str] = &[".git", "target", "corpus", "artifacts", "node_modules"];

/// The root of the repository, two levels above this crate.
pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("a crate lies two levels below the root").to_owned()
}

/// All text files below `root`, sorted by path. Files that are not UTF-8 are left out.
pub fn files(root: &Path) -> Vec<File> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let skipped = SKIPPED.iter().any(|name| entry.file_name() == *name);
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if skipped {
                continue;
            }
            if is_directory {
                directories.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                let path = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
                found.push(File { path, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// The pages below `docs/` that a line names by their whole path, in a comment or anywhere else.
pub fn named_documents(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-' | '.' | '/'));
    words
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| word.starts_with("docs/") && word.ends_with(".md"))
}

/// The names with two or more underscores that a text has, as tests do.
pub fn long_names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| is_long_name(word))
}

/// The same of those that stand in backticks by themselves in a Markdown file.
pub fn quoted_long_names(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').filter(|quoted| is_long_name(quoted))
}

fn is_long_name(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    word.matches('_').count() >= 2
        && word.chars().all(is_plain)
        && !word.starts_with('_')
        && !word.ends_with('_')
}

/// Whether text names a file or directory of a crate by its path below `crates/`, such as `proto/src/pool.rs`.
pub fn is_source_of_a_crate(text: &str) -> bool {
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let mut parts = text.split('/');
    let name = parts.next().unwrap_or_default();
    is_plain
        && !name.is_empty()
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        && matches!(parts.next(), Some("src" | "tests" | "plans"))
}

/// Whether it is a path of a Rust file, or the end of one with a folder.
pub fn is_rust_file(text: &str) -> bool {
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    is_plain && text.contains('/') && text.ends_with(".rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_found_by_their_path() {
        let line = "(DIR/a/b-c.md), `DIR/d.md`. target/DIR/e.md DIR/f DIR/g.md.".replace("DIR", "docs");
        let found = named_documents(&line).map(|name| name.split_once('/').map(|(_, name)| name));
        assert_eq!(found.collect::<Vec<_>>(), [Some("a/b-c.md"), Some("d.md"), Some("g.md")]);
    }

    #[test]
    fn sources_of_crates_are_told_from_other_paths() {
        let found =
            ["proto/src/pool.rs", "transport/tests/", "lab/plans/", "node.rs", "proto/node.rs", "a/src/b c"];
        assert_eq!(found.map(is_source_of_a_crate), [true, true, true, false, false, false]);
    }

    #[test]
    fn long_names_are_told_from_other_words() {
        let text = "`a_b_c` and `d_e_f()` of `g_h`, `I_J_K`, l_m_n";
        assert_eq!(quoted_long_names(text).collect::<Vec<_>>(), ["a_b_c"]);
        assert_eq!(long_names(text).collect::<Vec<_>>(), ["a_b_c", "d_e_f", "l_m_n"]);
    }
}
