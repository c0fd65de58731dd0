//! A plan's text: the values of `--set` in it, and the lines that messages name.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::{Error, Result};

/// A plan's text, for messages that name a line of it.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// An error at a byte of the text.
    pub(super) fn error(self, at: usize, what: impl std::fmt::Display) -> Error {
        let before = self.text.as_bytes().get(..at).unwrap_or(self.text.as_bytes());
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Error::Options(format!("{}:{line}: {what}", self.file))
    }

    pub(super) fn toml_error(self, error: &toml::de::Error) -> Error {
        let at = error.span().map_or(0, |span| span.start);
        self.error(at, error.message().trim().replace('\n', "; "))
    }
}

/// Replaces `${key}` by the value of `--set` or the plan's own. Lines stay where they are.
pub(super) fn substitute(source: Source<'_>, set: &BTreeMap<String, String>) -> Result<String> {
    #[derive(Deserialize)]
    struct Head {
        #[serde(default)]
        set: BTreeMap<String, String>,
    }
    // Before the values are known, anything that is a number and a part of a text will do.
    let draft = replace_keys(source, |_| Some("0"))?;
    let head: Head = toml::from_str(&draft).map_err(|error| source.toml_error(&error))?;
    let mut values = head.set;
    let known: Vec<String> = values.keys().cloned().collect();
    for (key, value) in set {
        if value.contains(['"', '\\', '$']) || value.contains(char::is_control) {
            return Err(Error::Options(format!("--set {key}: {value:?} has characters that no value has")));
        }
        let slot = values.get_mut(key).ok_or_else(|| {
            let known = if known.is_empty() { "nothing".to_owned() } else { known.join(", ") };
            Error::Options(format!("--set {key}: the plan has no such value; it lets you set {known}"))
        })?;
        slot.clone_from(value);
    }
    replace_keys(source, |key| values.get(key).map(String::as_str))
}

/// The text with every `${key}` replaced.
fn replace_keys<'a>(source: Source<'_>, value: impl Fn(&str) -> Option<&'a str>) -> Result<String> {
    let mut text = String::new();
    let mut rest = source.text;
    while let Some(start) = rest.find("${") {
        let at = source.text.len() - rest.len() + start;
        let inside = &rest[start + 2..];
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = inside.find(|c| !plain(c)).unwrap_or(inside.len());
        let (key, after) = inside.split_at(end);
        let after = after
            .strip_prefix('}')
            .ok_or_else(|| source.error(at, "`${` without a name and `}` after it"))?;
        text.push_str(&rest[..start]);
        text.push_str(value(key).ok_or_else(|| source.error(at, format!("[set] has no value {key:?}")))?);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}
