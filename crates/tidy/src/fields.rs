//! Structs that change by verbs and show their fields all the same, so that others may pass the verbs by.

use crate::public::{implemented, implemented_for};
use crate::source;
use crate::tokens::{self, Token};
use crate::tree::File;
use std::collections::BTreeSet;

/// A struct with methods that take `&mut self` and a field that more than its own file sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub path: String,
    pub line: usize,
    /// The struct's name.
    pub name: String,
}

/// Those below `folder`, tests apart.
pub fn shown(files: &[File], folder: &str) -> Vec<Shown> {
    let is_code = |file: &&File| {
        file.path.starts_with(folder) && file.path.ends_with(".rs") && !source::is_test_file(&file.path)
    };
    let code: Vec<_> = files
        .iter()
        .filter(is_code)
        .map(|file| (file, tokens::without_tests(&tokens::tokens(&file.text))))
        .collect();
    let changed: BTreeSet<&str> = code.iter().flat_map(|(_, code)| changed_by_verbs(code)).collect();
    let of_file = |(file, code): &(&File, Vec<Token<'_>>)| {
        let showing = with_shown_fields(code).into_iter().filter(|name| changed.contains(name.text));
        let shown = showing.map(|name| Shown {
            path: file.path.clone(),
            line: name.line,
            name: name.text.to_owned(),
        });
        shown.collect::<Vec<_>>()
    };
    code.iter().flat_map(of_file).collect()
}

/// The types that have methods of their own which take `&mut self`.
fn changed_by_verbs<'a>(code: &[Token<'a>]) -> Vec<&'a str> {
    let impls = (0..code.len()).filter(|index| code[*index].text == "impl");
    let own = impls.map(|index| &code[index + 1..]).filter(|behind| implemented_for(behind).is_empty());
    let changing = own.filter(|behind| {
        let text: Vec<_> = body(behind).iter().map(|token| token.text).collect();
        // A lifetime may stand between.
        text.windows(4).any(|part| matches!(part, ["&", "mut", "self", _] | ["&", _, "mut", "self"]))
    });
    changing.map(implemented).collect()
}

/// The names of structs of which a field is `pub`, with whatever limit.
fn with_shown_fields<'a>(code: &[Token<'a>]) -> Vec<Token<'a>> {
    let structs = (0..code.len()).filter(|index| code[*index].text == "struct");
    let showing = structs.filter(|index| {
        let behind = &code[index + 1..];
        let end = behind.iter().position(|token| token.text == ";").unwrap_or(behind.len());
        let is_tuple = behind[..end].iter().all(|token| token.text != "{");
        let fields = if is_tuple { &behind[..end] } else { body(behind) };
        fields.iter().any(|token| token.text == "pub")
    });
    showing.filter_map(|index| code.get(index + 1).copied()).collect()
}

/// What stands between the first brace and the one that closes it.
fn body<'t, 'a>(code: &'t [Token<'a>]) -> &'t [Token<'a>] {
    let Some(open) = code.iter().position(|token| token.text == "{") else { return &[] };
    let mut depth = 0_usize;
    let close = code[open..].iter().position(|token| {
        match token.text {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    &code[open..close.map_or(code.len(), |close| open + close)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_changed_by_verbs_and_by_others_is_found() {
        let texts = [
            ("a/b.rs", "pub struct A {\n    c: u8,\n    pub(super) d: u8,\n}\nstruct E { f: u8 }\n"),
            (
                "a/g.rs",
                "impl<'a, T: Fn() -> u8> A<T> { fn h(&'a mut self) {} }\nimpl E { fn i(&mut self) {} }\n",
            ),
            ("a/j.rs", "struct K(pub u8);\nstruct L<T>(pub T);\nimpl L<u8> { fn m(&mut self) {} }\n"),
            ("a/n.rs", "struct O;\npub struct P { pub q: u8 }\nimpl R for P { fn s(&mut self) {} }\n"),
            ("a/t.rs", "struct U { pub v: u8 }\n#[cfg(test)]\nimpl U { fn w(&mut self) {} }\n"),
            ("x/y.rs", "struct Z { pub a: u8 }\nimpl Z { fn b(&mut self) {} }\n"),
        ];
        let files = texts.map(|(path, text)| File { path: path.to_owned(), text: text.to_owned() });
        let found: Vec<_> =
            shown(&files, "a/").into_iter().map(|shown| (shown.path, shown.line, shown.name)).collect();
        let expected = [("a/b.rs", 1, "A"), ("a/j.rs", 2, "L")];
        assert_eq!(found, expected.map(|(path, line, name)| (path.to_owned(), line, name.to_owned())));
    }
}
