//! Methods of one type that stand in many files: which files those are, and whether they call one another in a circle.
//! No path shows such calls, because each file names the type alone.

use crate::circles::{self, Circle};
use crate::modules::Use;
use crate::source;
use crate::tokens::{self, Token};
use crate::tree::File;
use std::collections::BTreeMap;

/// Where files below `folder` have methods of a type, or name it, as `file:line: what`, but for those below `allowed`.
/// Tests are left out.
pub fn outside(files: &[File], folder: &str, name: &str, allowed: &[Home<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| is_code(file, folder)) {
        let home = allowed.iter().find(|home| file.path.starts_with(home.path));
        let code = tokens::without_tests(&tokens::tokens(&file.text));
        for (index, token) in code.iter().enumerate().filter(|(_, token)| token.text == name) {
            let has_methods = code.get(index.wrapping_sub(1)).is_some_and(|before| before.text == "impl")
                && code.get(index + 1).is_some_and(|behind| behind.text == "{");
            let what = match (has_methods, home) {
                (true, None | Some(Home { has_methods: false, .. })) => "has methods of",
                (false, None) => "names",
                _ => continue,
            };
            found.push(format!("{}:{}: {what} {name}", file.path, token.line));
        }
    }
    found
}

/// Files that may name a type.
#[derive(Clone, Copy, Debug)]
pub struct Home<'a> {
    /// What their paths begin with.
    pub path: &'a str,
    /// Whether they may have methods of it.
    pub has_methods: bool,
}

/// The circles in which files below `folder` call methods of a type that others of them define. A call counts whose
/// receiver is `self`, the type itself, or a variable of its name. Unlike for paths what a file calls of those above it
/// counts, because a method below and one above may well call each other.
pub fn circles(files: &[File], folder: &str, name: &str) -> Vec<Circle> {
    let files: Vec<&File> = files.iter().filter(|file| is_code(file, folder)).collect();
    let code: Vec<_> = files.iter().map(|file| tokens::without_tests(&tokens::tokens(&file.text))).collect();
    let mut homes: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, code) in code.iter().enumerate() {
        homes.extend(methods(code, name).into_iter().map(|method| (method, index)));
    }
    let uses: Vec<Vec<Use>> = code
        .iter()
        .enumerate()
        .map(|(from, code)| {
            let calls = calls(code, name).into_iter().filter_map(|method| {
                let of = *homes.get(method.text)?;
                (of != from).then(|| Use { of, line: method.line, path: method.text.to_owned() })
            });
            calls.collect()
        })
        .collect();
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    circles::among(&paths, &uses)
}

fn is_code(file: &File, folder: &str) -> bool {
    file.path.starts_with(folder) && file.path.ends_with(".rs") && !source::is_test_file(&file.path)
}

/// The names of a type's methods in a file.
fn methods<'a>(code: &[Token<'a>], name: &str) -> Vec<&'a str> {
    let (mut found, mut depth, mut of_type) = (Vec::new(), 0_usize, None);
    for (index, token) in code.iter().enumerate() {
        let behind = |count: usize| code.get(index + count).map_or("", |token| token.text);
        match token.text {
            "impl" if behind(1) == name && behind(2) == "{" => of_type = Some(depth),
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                of_type = of_type.filter(|outside| *outside < depth);
            }
            "fn" if of_type.is_some_and(|outside| depth == outside + 1) => {
                found.extend(code.get(index + 1).map(|name| name.text));
            }
            _ => {}
        }
    }
    found
}

/// The methods that a file calls of `self`, of the type by its name, or of a variable that is named as the type is.
fn calls<'a>(code: &[Token<'a>], name: &str) -> Vec<Token<'a>> {
    let variable = name.to_lowercase();
    let is_call = |part: &[Token<'_>]| {
        let [before, receiver, sign, _, open] = part else { return false };
        let of_value =
            (receiver.text == "self" || receiver.text == variable) && sign.text == "." && before.text != ".";
        let of_type = (receiver.text == "Self" || receiver.text == name) && sign.text == "::";
        (of_value || of_type) && open.text == "("
    };
    code.windows(5).filter(|part| is_call(part)).map(|part| part[3]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Vec<File> {
        let file = |(path, text): &(&str, &str)| File { path: format!("a/{path}"), text: (*text).to_owned() };
        files.iter().map(file).collect()
    }

    #[test]
    fn who_has_methods_of_a_type_or_names_it_is_told() {
        let files = tree(&[
            ("core/mod.rs", "struct C;\nimpl C {}\n"),
            ("core/b.rs", "impl C { fn d(&self) {} }\n"),
            ("shard.rs", "use core::C;\nimpl C {}\nimpl E for C {}\n"),
            ("part.rs", "// C\nuse core::C;\nfn f(_: &C) {}\n#[cfg(test)]\nmod tests { use core::C; }\n"),
        ]);
        let allowed =
            [Home { path: "a/core/", has_methods: true }, Home { path: "a/shard.rs", has_methods: false }];
        let found = outside(&files, "a/", "C", &allowed);
        let expected = ["a/shard.rs:2: has methods of C", "a/part.rs:2: names C", "a/part.rs:3: names C"];
        assert_eq!(found, expected);
    }

    #[test]
    fn calls_of_methods_make_circles() {
        let files = tree(&[
            ("mod.rs", "impl C { fn above(&self) {} }\n"),
            ("b.rs", "impl C {\n    fn b(&self) { self.d(); self.part.e() }\n}\n"),
            ("d.rs", "impl C {\n    fn d(&self) { self.above(); self.e() }\n}\n"),
            ("e.rs", "impl C {\n    fn e(&self) { C::b(self) }\n    fn g(&self) { fn h() {} }\n}\n"),
            ("f.rs", "impl F {\n    fn b(&self) { self.g(); self.h() }\n}\n"),
        ]);
        let circle = Circle {
            files: ["a/b.rs", "a/d.rs", "a/e.rs"].map(str::to_owned).to_vec(),
            uses: ["a/b.rs:2: uses d", "a/d.rs:2: uses e", "a/e.rs:2: uses b"].map(str::to_owned).to_vec(),
        };
        assert_eq!(circles(&files, "a/", "C"), [circle]);
    }
}
