//! What a Markdown file links to and names, and which anchors others may link to.

use std::collections::BTreeMap;

/// A link into the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link<'a> {
    /// The path that it names, relative to the file's directory; empty for a link within the file.
    pub path: &'a str,
    /// The anchor behind the path, without its `#`.
    pub anchor: Option<&'a str>,
}

/// The links of a Markdown file that lead into the repository. What stands in code is none.
pub fn local_links(text: &str) -> Vec<Link<'_>> {
    let rests = prose(text).flat_map(|span| span.split("](").skip(1));
    let targets = rests.filter_map(|rest| rest.split([')', ' ']).next());
    let local = targets
        .filter(|target| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:"));
    local
        .map(|target| match target.split_once('#') {
            Some((path, anchor)) => Link { path, anchor: Some(anchor) },
            None => Link { path: target, anchor: None },
        })
        .collect()
}

/// The anchors of a Markdown file's headings, as GitHub makes them: lower case, spaces as hyphens, without punctuation;
/// a heading that comes again has a number behind it.
pub fn anchors(text: &str) -> Vec<String> {
    let mut seen = BTreeMap::new();
    let headings = lines(text).filter_map(|line| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len()).then(|| title.strip_prefix(' ')).flatten()
    });
    headings
        .map(|title| {
            let kept = title.trim().to_lowercase();
            let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
            let times = seen.entry(anchor.clone()).or_insert(0);
            *times += 1;
            if *times == 1 { anchor } else { format!("{anchor}-{}", *times - 1) }
        })
        .collect()
}

/// What stands in backticks, line by line.
pub fn quoted(text: &str) -> impl Iterator<Item = &str> {
    spans(text).into_iter().filter(|(is_code, _)| *is_code).map(|(_, span)| span)
}

/// The first cells of the rows of the first table behind a heading, without backticks and without the table's head.
pub fn first_column<'a>(text: &'a str, heading: &str) -> Vec<&'a str> {
    let below = lines(text).skip_while(|line| *line != heading);
    let rows = below.skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    rows.skip(2).filter_map(|row| row.split('|').nth(1)).map(|cell| cell.trim().trim_matches('`')).collect()
}

/// Which of these phrases stand in the prose of a Markdown file, as whole words in whichever case.
pub fn phrases<'a>(text: &str, phrases: &[&'a str]) -> Vec<&'a str> {
    // Signs end a phrase, but those that only say how a word looks.
    let words = |text: &str| {
        let signs = |c: char| match c {
            '*' | '_' => String::new(),
            c if c.is_alphanumeric() || c == '-' || c.is_whitespace() => c.to_lowercase().to_string(),
            _ => " . ".to_owned(),
        };
        let plain: String = text.chars().map(signs).collect();
        format!(" {} ", plain.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    // Paragraphs and code end a phrase.
    let mut paragraphs = vec![String::new()];
    for line in text.lines() {
        match line.trim().is_empty() || line.starts_with(['#', '|']) {
            true => paragraphs.push(line.to_owned()),
            false => {
                let last = paragraphs.last_mut().expect("there is one at first");
                last.push(' ');
                last.push_str(line);
            }
        }
    }
    let said: Vec<String> = paragraphs.iter().flat_map(|paragraph| prose(paragraph)).map(words).collect();
    phrases.iter().copied().filter(|phrase| said.iter().any(|said| said.contains(&words(phrase)))).collect()
}

/// The lines outside fenced blocks of code.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// What stands outside code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    spans(text).into_iter().filter(|(is_code, _)| !is_code).map(|(_, span)| span)
}

/// The parts of lines that stand outside backticks, and inside of them (true). Code may go on in the next line of its
/// paragraph.
fn spans(text: &str) -> Vec<(bool, &str)> {
    let mut in_code = false;
    let mut found = Vec::new();
    for line in lines(text) {
        in_code &= !line.trim().is_empty();
        for (index, span) in line.split('`').enumerate() {
            in_code ^= index > 0;
            found.push((in_code, span));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_into_the_repository_are_found() {
        let text = "[a](b.md#c) [d](https://example.org) `[e](f)\nm` [g](#h)\n```\n[i](j)\n```\n[k](../l)";
        let link = |path, anchor| Link { path, anchor };
        assert_eq!(local_links(text), [link("b.md", Some("c")), link("", Some("h")), link("../l", None)]);
    }

    #[test]
    fn anchors_are_those_of_the_host() {
        let text =
            "# A, `b_c` and (d)\n```\n# no heading\n```\n## 2.5 e-f\n## Where it is\n#hash\n## Where it is\n";
        assert_eq!(anchors(text), ["a-b_c-and-d", "25-e-f", "where-it-is", "where-it-is-1"]);
    }

    #[test]
    fn columns_and_quotes_are_read() {
        let text = "| x |\n\n## A\n\n| b | c |\n|---|---|\n| `d` | `e` |\n| f | g |\n\n| h |\n";
        assert_eq!(first_column(text, "## A"), ["d", "f"]);
        assert_eq!(quoted("a `b c\nd` e `f`\n").collect::<Vec<_>>(), ["b c", "d", "f"]);
    }

    #[test]
    fn phrases_are_found_across_lines_and_not_in_code() {
        let text = "An *Onion*\nrouter. `exit node`\n\nexit\n\nnode, exit, node\n| back | pressure |\n";
        assert_eq!(phrases(text, &["onion router", "exit node", "back pressure", "on"]), ["onion router"]);
    }
}
