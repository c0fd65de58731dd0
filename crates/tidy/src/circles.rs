//! Circles of files: those of a crate of which each uses the next and the last uses the first.

use crate::modules::{self, Use};
use crate::tree::File;

/// Files that use one another all around, and by what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Circle {
    /// The paths of its files.
    pub files: Vec<String>,
    /// Where one of them uses another: `file:line: uses path`.
    pub uses: Vec<String>,
}

/// The circles of a crate whose source is below a directory, which ends in a slash.
pub fn circles(files: &[File], source: &str) -> Vec<Circle> {
    let modules = modules::modules(files, source);
    let uses = modules::uses(&modules);
    let paths: Vec<&str> = modules.iter().map(|module| module.path).collect();
    among(&paths, &uses)
}

/// The circles among files, by what each uses of the others.
pub(crate) fn among(paths: &[&str], uses: &[Vec<Use>]) -> Vec<Circle> {
    let reached: Vec<Vec<bool>> = (0..paths.len()).map(|from| reached(uses, from)).collect();
    let mut found = Vec::new();
    for (first, from_first) in reached.iter().enumerate() {
        let circle: Vec<usize> =
            (0..paths.len()).filter(|other| from_first[*other] && reached[*other][first]).collect();
        // A circle is told once, by the first of its files. A file that is in none does not reach itself.
        if circle.first() != Some(&first) {
            continue;
        }
        let within = circle.iter().flat_map(|from| {
            let inside = uses[*from].iter().filter(|used| circle.contains(&used.of));
            inside.map(|used| format!("{}:{}: uses {}", paths[*from], used.line, used.path))
        });
        let names = circle.iter().map(|index| paths[*index].to_owned());
        found.push(Circle { files: names.collect(), uses: within.collect() });
    }
    found
}

/// The files that a file uses, and those that they use, all the way.
fn reached(uses: &[Vec<Use>], from: usize) -> Vec<bool> {
    let mut reached = vec![false; uses.len()];
    let mut ahead = vec![from];
    while let Some(next) = ahead.pop() {
        for used in &uses[next] {
            if !reached[used.of] {
                reached[used.of] = true;
                ahead.push(used.of);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Vec<File> {
        let file = |(path, text): &(&str, &str)| File { path: format!("a/{path}"), text: (*text).to_owned() };
        files.iter().map(file).collect()
    }

    #[test]
    fn circles_are_found_through_re_exports_and_nested_uses() {
        let files = tree(&[
            ("lib.rs", "mod b;\nmod c;\nmod d;\npub use c::{E, F};\n"),
            ("b.rs", "use crate::{E, d::G};\n"),
            ("c.rs", "pub struct E;\npub struct F;\nmod h;\n"),
            ("c/h.rs", "use super::E;\n"),
            (
                "d.rs",
                "mod i {\n    use super::super::c;\n    fn j() { c::h::k() }\n}\nfn l() { crate::b::m() }\n",
            ),
        ]);
        let circle = Circle {
            files: vec!["a/b.rs".into(), "a/d.rs".into()],
            uses: vec!["a/b.rs:1: uses crate::d::G".into(), "a/d.rs:5: uses crate::b::m".into()],
        };
        assert_eq!(circles(&files, "a/"), [circle]);
    }

    #[test]
    fn a_folder_and_its_children_make_no_circle_of_themselves() {
        let files = tree(&[
            ("lib.rs", "mod b;\nmod e;\npub struct Z;\n"),
            ("b.rs", "mod c;\nmod d;\nuse c::C;\npub struct B;\nfn f() { d::g() }\n"),
            (
                "b/c.rs",
                "use super::{B, d::D};\nuse crate::Z;\n#[cfg(test)]\nmod tests { use super::super::B; }\n",
            ),
            ("b/d.rs", "use super::*;\n#[cfg(test)]\nuse super::c::C;\n#[cfg(test)]\nmod made_up;\n"),
            ("b/d/made_up.rs", "use crate::b::c::C;\n"),
            ("b/tests.rs", "use crate::e::E;\n"),
            ("e.rs", "// crate::b::B\npub use heddle_seam::time::Instant;\npub use crate::b::B;\n"),
        ]);
        assert_eq!(circles(&files, "a/"), []);
    }

    #[test]
    fn a_folder_is_in_a_circle_with_a_child_that_goes_around_by_another_folder() {
        let files = tree(&[
            ("lib.rs", "mod b;\nmod e;\n"),
            ("b.rs", "mod c;\npub use c::C;\npub struct B;\nfn f(_: c::C) {}\n"),
            ("b/c.rs", "use crate::e::E;\n"),
            ("e.rs", "use crate::b::{self, C};\npub struct E;\nfn f(_: b::B) {}\n"),
        ]);
        let found = circles(&files, "a/");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].files, ["a/b.rs", "a/b/c.rs", "a/e.rs"]);
        assert!(found[0].uses.contains(&"a/e.rs:3: uses b::B".to_owned()), "{:?}", found[0].uses);
    }
}
