//! The words and signs of Rust code, without comments and without what is in quotes.

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// A word, `::`, or a sign of one character.
    pub text: &'a str,
    /// Its line, from 1.
    pub line: usize,
}

impl Token<'_> {
    /// Whether it is a name or a keyword.
    pub(crate) fn is_word(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// The tokens of a file.
pub fn tokens(text: &str) -> Vec<Token<'_>> {
    let (mut found, mut rest, mut line) = (Vec::new(), text, 1);
    while let Some(first) = rest.chars().next() {
        let (length, counts) = first_token(rest, first);
        let (token, behind) = rest.split_at(length);
        if counts {
            found.push(Token { text: token, line });
        }
        line += token.matches('\n').count();
        rest = behind;
    }
    found
}

/// The tokens of a file that are not under `#[cfg(test)]`.
pub fn without_tests<'a>(all: &[Token<'a>]) -> Vec<Token<'a>> {
    const ATTRIBUTE: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut found, mut at) = (Vec::new(), 0);
    while at < all.len() {
        if all[at..].iter().map(|token| token.text).take(ATTRIBUTE.len()).eq(ATTRIBUTE) {
            at += ATTRIBUTE.len();
            at += item_length(&all[at..]);
        } else {
            found.push(all[at]);
            at += 1;
        }
    }
    found
}

/// The lines of `use` declarations that take all of a module, but for those of a `prelude`, which is made for that.
pub fn globs(code: &[Token<'_>]) -> Vec<usize> {
    let stars = code.windows(3).filter(|part| part[1].text == "::" && part[2].text == "*");
    stars.filter(|part| part[0].text != "prelude").map(|part| part[2].line).collect()
}

/// How many tokens an item takes: until its semicolon or comma, or until its braces close.
fn item_length(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 0 => return index,
            "}" if depth == 1 => return index + 1,
            ")" | "]" | "}" => depth -= 1,
            ";" | "," if depth == 0 => return index + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// The length of what a text begins with, and whether it is a token.
fn first_token(text: &str, first: char) -> (usize, bool) {
    if text.starts_with("//") {
        (text.find('\n').unwrap_or(text.len()), false)
    } else if text.starts_with("/*") {
        (block_comment(text), false)
    } else if let Some(length) = raw_string(text) {
        (length, false)
    } else if first == '"' || text.starts_with("b\"") || text.starts_with("c\"") {
        (string(text), false)
    } else if first == '\'' || text.starts_with("b'") {
        (character_or_lifetime(text), false)
    } else if first.is_alphanumeric() || first == '_' {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        (text.find(|c| !is_part(c)).unwrap_or(text.len()), !first.is_ascii_digit())
    } else if text.starts_with("::") {
        (2, true)
    } else {
        (first.len_utf8(), !first.is_whitespace())
    }
}

/// Comments in blocks may be within one another.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let (step, change) = match text.as_bytes()[at..] {
            [b'/', b'*', ..] => (2, 1),
            [b'*', b'/', ..] => (2, -1),
            _ => (1, 0),
        };
        (at, depth) = (at + step, depth + change);
        if depth == 0 {
            break;
        }
    }
    at
}

fn raw_string(text: &str) -> Option<usize> {
    let prefix = if text.starts_with("br") || text.starts_with("cr") { 2 } else { 1 };
    let behind = text.get(prefix..).filter(|_| prefix == 2 || text.starts_with('r'))?;
    let hashes = behind.len() - behind.trim_start_matches('#').len();
    let content = behind[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = content.find(&end).map_or(content.len(), |at| at + end.len());
    Some(text.len() - content.len() + length)
}

fn string(text: &str) -> usize {
    let opening = text.find('"').unwrap_or(0) + 1;
    let mut is_escaped = false;
    for (index, c) in text[opening..].char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return opening + index + 1,
            _ => {}
        }
    }
    text.len()
}

/// A quote before one character and another quote is a character; before anything else it begins a lifetime.
fn character_or_lifetime(text: &str) -> usize {
    let opening = text.find('\'').unwrap_or(0) + 1;
    let mut behind = text[opening..].chars();
    match (behind.next(), behind.next()) {
        (Some('\\'), Some(escaped)) => {
            let at = opening + 1 + escaped.len_utf8();
            text[at..].find('\'').map_or(text.len(), |end| at + end + 1)
        }
        (Some(c), Some('\'')) => opening + c.len_utf8() + 1,
        _ => opening,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_quotes_are_no_tokens() {
        let text = "a::b /* c /* d */ e */ \"f \\\" g\" 'h' '\\'' <'i> br#\"j\" k\"# r2 // l\n5u8 m;";
        let found: Vec<&str> = tokens(text).iter().map(|token| token.text).collect();
        assert_eq!(found, ["a", "::", "b", "<", "i", ">", "r2", "m", ";"]);
        assert_eq!(tokens(text).last().map(|token| token.line), Some(2));
    }

    #[test]
    fn what_is_for_tests_is_left_out() {
        let text =
            "a; #[cfg(test)] use b; c #[cfg(test)] fn d(e: [u8; 2]) { f; } g { #[cfg(test)] h: i, j: k }";
        let found: Vec<&str> = without_tests(&tokens(text)).iter().map(|token| token.text).collect();
        assert_eq!(found.join(" "), "a ; c g { j : k }");
    }

    #[test]
    fn globs_are_found_but_of_preludes() {
        let text = "use a::*;\nuse b::prelude::*;\nuse c::{d, e::*};\nfn f() -> u8 { 2 * g::H }\n";
        assert_eq!(globs(&tokens(text)), [1, 3]);
    }
}
