//! What a library shows to everybody though nobody else uses it.

use crate::source;
use crate::tokens::{self, Token};
use crate::tree::File;
use std::collections::{BTreeMap, BTreeSet};

/// Names that are shown because readers and lints expect them beside others: `is_empty` beside `len`.
const EXPECTED: &[&str] = &["new", "default", "is_empty"];

/// A Rust file and the words of its code. All crates are held against all files, so these are read once.
pub struct Words<'a> {
    file: &'a File,
    words: BTreeSet<&'a str>,
}

impl<'a> Words<'a> {
    /// Those of all Rust files among these.
    pub fn read(files: &'a [File]) -> Vec<Self> {
        let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
        rust.map(|file| Words { file, words: words(&file.text).collect() }).collect()
    }
}

/// The types, traits, functions, methods, constants and statics of a crate, tests apart, that are `pub` and whose names
/// no other file has as a word of its code, as `file:line: name`. Types that others get or give without naming them,
/// because another public item has them in its declaration, count as used. `source` is the directory of the crate's
/// library, with a slash. Its `main.rs` and what its documentation shows as code count as others. Methods of a type
/// that is not `pub` itself are left out: nobody else can call them, and the compiler finds those that are called
/// nowhere.
pub fn unused(files: &[Words<'_>], source: &str) -> Vec<String> {
    let library = files.iter().filter(|file| is_in(file, source) && !source::is_test_file(&file.file.path));
    let library: Vec<_> =
        library.map(|file| (file.file, tokens::without_tests(&tokens::tokens(&file.file.text)))).collect();
    let shown_as_code: BTreeSet<&str> =
        library.iter().flat_map(|(file, _)| examples(&file.text)).flat_map(words).collect();
    let is_used = |name: &str| {
        let elsewhere = || files.iter().any(|file| !is_in(file, source) && file.words.contains(name));
        EXPECTED.contains(&name) || shown_as_code.contains(name) || elsewhere()
    };
    let types: BTreeSet<&str> = library.iter().flat_map(|(_, code)| shown_types(code)).collect();
    let traits: BTreeSet<&str> = library.iter().flat_map(|(_, code)| shown_traits(code)).collect();
    let declared: BTreeSet<&str> = library.iter().flat_map(|(_, code)| declared(code, &types)).collect();
    let mut found = Vec::new();
    for (file, code) in &library {
        let shown = shown(code, &types);
        let is_declared =
            |name: &str| (types.contains(name) || traits.contains(name)) && declared.contains(name);
        let unused = shown.iter().filter(|name| !is_used(name.text) && !is_declared(name.text));
        found.extend(unused.map(|name| format!("{}:{}: {}", file.path, name.line, name.text)));
    }
    found
}

/// How often each word stands in code that is no test.
pub fn counts(files: &[File]) -> BTreeMap<&str, usize> {
    let is_test =
        |path: &str| source::is_test_file(path) || path.contains("/benches/") || path.starts_with("fuzz/");
    let mut counts = BTreeMap::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs") && !is_test(&file.path)) {
        let code = tokens::without_tests(&tokens::tokens(&file.text));
        for word in code.iter().filter(|token| token.is_word()) {
            *counts.entry(word.text).or_default() += 1;
        }
    }
    counts
}

/// What a crate shows that stands in no code but in its declaration and in tests, as [`unused`] tells it. `counts` are
/// those of all files.
pub fn only_tested(files: &[Words<'_>], counts: &BTreeMap<&str, usize>, source: &str) -> Vec<String> {
    let library = files.iter().filter(|file| is_in(file, source) && !source::is_test_file(&file.file.path));
    let mut found = Vec::new();
    for Words { file, .. } in library {
        let code = tokens::without_tests(&tokens::tokens(&file.text));
        let shown_as_code: BTreeSet<&str> = examples(&file.text).flat_map(words).collect();
        let types: BTreeSet<&str> = code.iter().map(|token| token.text).collect();
        let names = shown(&code, &types).into_iter().filter(|name| {
            counts.get(name.text) == Some(&1)
                && !EXPECTED.contains(&name.text)
                && !shown_as_code.contains(name.text)
        });
        found.extend(names.map(|name| format!("{}:{}: {}", file.path, name.line, name.text)));
    }
    found
}

/// Whether a file is of the library with this directory.
fn is_in(file: &Words<'_>, source: &str) -> bool {
    file.file.path.strip_prefix(source).is_some_and(|path| path != "main.rs")
}

/// The names of the types that are `pub` without a limit.
fn shown_types<'a>(code: &[Token<'a>]) -> impl Iterator<Item = &'a str> {
    shown_behind(code, &["struct", "enum", "union", "type"])
}

/// The names of the traits that are.
fn shown_traits<'a>(code: &[Token<'a>]) -> impl Iterator<Item = &'a str> {
    shown_behind(code, &["trait"])
}

fn shown_behind<'a>(code: &[Token<'a>], keywords: &'static [&'static str]) -> impl Iterator<Item = &'a str> {
    let declarations = code.windows(3).filter(|part| part[0].text == "pub");
    declarations.filter(|part| keywords.contains(&part[1].text)).map(|part| part[2].text)
}

/// The names of what is `pub` without a limit, but for what belongs to other types than these.
fn shown<'a>(code: &[Token<'a>], types: &BTreeSet<&str>) -> Vec<Token<'a>> {
    let (mut found, mut depth, mut is_of_hidden) = (Vec::new(), 0, false);
    for (index, token) in code.iter().enumerate() {
        match token.text {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                is_of_hidden &= depth > 0;
            }
            "impl" if depth == 0 => is_of_hidden = !types.contains(implemented(&code[index + 1..])),
            "pub" if depth == 0 || !is_of_hidden => found.extend(shown_name(&code[index + 1..])),
            _ => {}
        }
    }
    found
}

/// The type that an `impl` is of.
pub(crate) fn implemented<'a>(behind: &[Token<'a>]) -> &'a str {
    let mut depth = 0;
    for (index, token) in behind.iter().enumerate() {
        match token.text {
            "<" => depth += 1,
            // The arrow of a function's type closes nothing.
            ">" if index == 0 || behind[index - 1].text != "-" => depth -= 1,
            name if depth == 0 && token.is_word() => return name,
            _ => {}
        }
    }
    ""
}

fn is_type(keyword: &str) -> bool {
    matches!(keyword, "struct" | "enum" | "union" | "trait" | "type")
}

/// The words of public declarations, apart from the names that they declare: signatures, fields, variants, what traits
/// want and what they name a type for.
fn declared<'a>(code: &[Token<'a>], types: &BTreeSet<&str>) -> Vec<&'a str> {
    let (mut found, mut depth, mut is_of_hidden) = (Vec::<&Token<'a>>::new(), 0, false);
    for (index, token) in code.iter().enumerate() {
        let behind = &code[index + 1..];
        match token.text {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                is_of_hidden &= depth > 0;
            }
            "impl" if depth == 0 => {
                is_of_hidden = !types.contains(implemented(behind));
                // What a trait of others is implemented with is public as the type is.
                let is_shown = types.contains(implemented_for(behind));
                found.extend(behind.iter().take_while(|token| is_shown && token.text != "{"));
            }
            // Associated types.
            "type" if depth == 1 && (index == 0 || code[index - 1].text != "pub") => {
                found.extend(behind.iter().skip(1).take_while(|token| token.text != ";"));
            }
            "pub" if depth == 0 || !is_of_hidden => found.extend(declaration(behind)),
            _ => {}
        }
    }
    found.into_iter().filter(|token| token.is_word()).map(|token| token.text).collect()
}

/// The type that a trait is implemented for, if one is.
pub(crate) fn implemented_for<'a>(behind: &[Token<'a>]) -> &'a str {
    let mut head =
        behind.iter().take_while(|token| token.text != "{").skip_while(|token| token.text != "for");
    head.next().and_then(|_| head.find(|token| token.is_word())).map_or("", |token| token.text)
}

/// What is declared behind a `pub`, without its name and without a function's body.
fn declaration<'t, 'a>(behind: &'t [Token<'a>]) -> &'t [Token<'a>] {
    let modifiers =
        behind.iter().take_while(|token| matches!(token.text, "async" | "unsafe" | "extern")).count();
    let behind = &behind[modifiers..];
    let Some(keyword) = behind.first() else { return &[] };
    // A limit, as of `pub(crate)`, shows nothing.
    if matches!(keyword.text, "(" | "mod" | "use") {
        return &[];
    }
    let has_whole_body = matches!(keyword.text, "enum" | "trait");
    let is_value = matches!(keyword.text, "const" | "static");
    let (mut depth, mut before) = (0_usize, "");
    let end = behind.iter().position(|token| {
        let is_arrow = core::mem::replace(&mut before, token.text) == "-";
        match token.text {
            // Fields of a tuple are shown one by one.
            "(" if depth == 0 && keyword.text == "struct" => return true,
            "(" | "[" | "<" => depth += 1,
            ">" if !is_arrow => depth -= 1,
            ")" | "]" | "}" if depth == 0 => return true,
            ")" | "]" => depth -= 1,
            "{" if has_whole_body => depth += 1,
            "}" => {
                depth -= 1;
                return depth == 0;
            }
            "{" | ";" if depth == 0 => return true,
            "=" if depth == 0 && is_value => return true,
            // The end of a field.
            "," if depth == 0 && !is_item(keyword.text) => return true,
            _ => {}
        }
        false
    });
    let is_named = is_item(keyword.text) || behind.get(1).is_some_and(|token| token.text == ":");
    behind.get(if is_named { 2 } else { 0 }..end.unwrap_or(behind.len())).unwrap_or_default()
}

fn is_item(keyword: &str) -> bool {
    is_type(keyword) || matches!(keyword, "fn" | "const" | "static")
}

/// The name of the item that is declared behind a `pub`.
fn shown_name<'a>(behind: &[Token<'a>]) -> Option<Token<'a>> {
    let mut behind = behind.iter().copied();
    let kind = behind.find(|token| !matches!(token.text, "async" | "unsafe" | "extern"))?;
    match kind.text {
        "fn" | "struct" | "enum" | "union" | "trait" | "type" => behind.next(),
        "const" | "static" => behind.find(|token| !matches!(token.text, "mut" | "unsafe" | "fn")),
        _ => None,
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    tokens::tokens(text).into_iter().filter(Token::is_word).map(|token| token.text)
}

/// The lines of code in a file's documentation.
fn examples(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("//!").or_else(|| line.strip_prefix("///"))
    });
    let mut is_code = false;
    lines.filter(move |line| {
        is_code ^= line.trim_start().starts_with("```");
        is_code
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn what_nobody_else_names_is_found() {
        let library = "//! ```\n//! k();\n//! ```\npub fn a() { b() }\npub(crate) fn b() {}\n\
                       pub struct C;\nimpl<T: Fn() -> u8> C<T> {\n    pub const fn d(self) {}\n\
                       \x20   pub const E: u8 = 1;\n    pub fn new() {}\n}\n\
                       pub async fn f() {}\npub fn k() {}\npub static G: u8 = 1;\n\
                       struct L;\nimpl L { pub fn l() {} }\npub mod m { pub fn n() {} }\n\
                       #[cfg(test)]\nmod tests { pub fn h() {} }\n";
        let files = [
            file("crates/i/src/lib.rs", library),
            file("crates/i/src/main.rs", "fn main() { i::a() }"),
            file("crates/i/tests/j.rs", "// d\nconst J: u8 = i::G;"),
            file("crates/i/notes.md", "E"),
        ];
        let found = unused(&Words::read(&files), "crates/i/src/");
        let expected =
            ["6: C", "8: d", "9: E", "12: f", "17: n"].map(|place| format!("crates/i/src/lib.rs:{place}"));
        assert_eq!(found, expected);
    }

    #[test]
    fn what_stands_in_tests_alone_is_found() {
        let library = "pub fn a() { b() }\npub fn b() {}\npub(crate) fn c() {}\npub fn d() {}\n\
                       #[cfg(test)]\nmod tests { fn e() { a(); c(); d() } }\n";
        let files = [
            file("crates/i/src/lib.rs", library),
            file("crates/i/benches/f.rs", "fn main() { i::d() }"),
            file("crates/j/src/lib.rs", "fn g() { i::a() }"),
        ];
        let found = only_tested(&Words::read(&files), &counts(&files), "crates/i/src/");
        assert_eq!(found, ["crates/i/src/lib.rs:4: d"]);
    }

    #[test]
    fn types_that_others_get_count_as_used() {
        let library = "pub struct A { pub b: Map<u8, B>, c: C }\npub struct B;\npub struct C;\npub enum D { E(F) }\n\
                       pub struct F;\npub trait G { fn g(&self, h: H) -> Self; }\npub type H = u8;\n\
                       impl A { pub fn i(&self) -> Option<J> { K } fn l(&self, m: M) {} }\npub struct J;\n\
                       pub struct K;\npub struct M;\nimpl Iterator for A { type Item = N; }\npub enum N {}\n\
                       impl From<O> for A {}\npub struct O(P);\npub struct P;\npub(crate) fn q(r: R) {}\n\
                       pub struct R;\n";
        let files = [
            file("crates/i/src/lib.rs", library),
            file("crates/j/src/lib.rs", "use i::{A, D, G};\nfn i() {}"),
        ];
        let found = unused(&Words::read(&files), "crates/i/src/");
        let expected =
            ["3: C", "10: K", "11: M", "16: P", "18: R"].map(|place| format!("crates/i/src/lib.rs:{place}"));
        assert_eq!(found, expected);
    }
}
