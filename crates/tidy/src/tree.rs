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

/// The targets of a Markdown file's links into the repository, without their anchors.
pub fn local_links(text: &str) -> Vec<&str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', '#', ' ']).next())
        .filter(|target| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:"))
        .collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_into_the_repository_are_found() {
        let text = "[a](b.md#c) [d](https://example.org) [e](#f) [g](../h)";
        assert_eq!(local_links(text), ["b.md", "../h"]);
    }

    #[test]
    fn long_names_are_told_from_other_words() {
        let text = "`a_b_c` and `d_e_f()` of `g_h`, `I_J_K`, l_m_n";
        assert_eq!(quoted_long_names(text).collect::<Vec<_>>(), ["a_b_c"]);
        assert_eq!(long_names(text).collect::<Vec<_>>(), ["a_b_c", "d_e_f", "l_m_n"]);
    }
}
