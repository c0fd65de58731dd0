//! The modules of a crate that are files, and what the paths in their code lead to.

use crate::tokens::Token;
use crate::tree::File;
use crate::{source, tokens};
use std::collections::BTreeMap;

/// How many re-exports one path may go through, so that those in a ring end.
const HOPS_MAX: usize = 16;

/// A file of a crate.
pub struct Module<'a> {
    /// Its path below the root of the repository.
    pub path: &'a str,
    /// The names from the crate to it.
    name: Vec<&'a str>,
    /// The paths in its code, each with its line. Those of `use` declarations are among them.
    paths: Vec<Path<'a>>,
    /// What `use` declarations call by a name.
    bindings: BTreeMap<&'a str, Vec<&'a str>>,
    /// What `use` declarations take whole.
    globs: Vec<Vec<&'a str>>,
    /// What it defines at its top.
    items: Vec<&'a str>,
}

/// A path in code, relative to the module of the file.
struct Path<'a> {
    segments: Vec<&'a str>,
    line: usize,
}

/// What a file uses of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// The index of the other file.
    pub of: usize,
    /// The line.
    pub line: usize,
    /// The path as it is written there.
    pub path: String,
}

/// The files of one crate without its tests, from all files of the repository. `source` is its directory, with a slash.
pub(crate) fn modules<'a>(files: &'a [File], source: &str) -> Vec<Module<'a>> {
    let is_ours = |file: &&File| {
        file.path.starts_with(source) && file.path.ends_with(".rs") && !source::is_test_file(&file.path)
    };
    let has_library = files.iter().any(|file| file.path == format!("{source}lib.rs"));
    let mut found = Vec::new();
    let mut tests: Vec<Vec<&str>> = Vec::new();
    for file in files.iter().filter(is_ours) {
        let mut name: Vec<&str> = file.path[source.len()..].trim_end_matches(".rs").split('/').collect();
        match name.last() {
            Some(&"main") if has_library => continue,
            Some(&("mod" | "lib" | "main")) => drop(name.pop()),
            _ => {}
        }
        let all = tokens::tokens(&file.text);
        let code = tokens::without_tests(&all);
        let kept = children(&code);
        let only_in_tests = children(&all).into_iter().filter(|child| !kept.contains(child));
        tests.extend(only_in_tests.map(|child| name.iter().copied().chain([child]).collect()));
        found.push(Module::read(&file.path, name, &code));
    }
    found.retain(|module| !tests.iter().any(|name| module.name.starts_with(name)));
    found
}

/// The modules that are files of their own.
fn children<'a>(code: &[Token<'a>]) -> Vec<&'a str> {
    let declarations = code.windows(3).filter(|part| part[0].text == "mod" && part[2].text == ";");
    declarations.map(|part| part[1].text).collect()
}

impl<'a> Module<'a> {
    fn read(path: &'a str, name: Vec<&'a str>, code: &[Token<'a>]) -> Self {
        let (paths, bindings, globs) = Default::default();
        let mut module = Module { path, name, paths, bindings, globs, items: Vec::new() };
        // The modules within the file, each with the depth of its braces.
        let (mut within, mut depth, mut at) = (Vec::new(), 0, 0);
        while let Some(token) = code.get(at) {
            let behind = |count: usize| code.get(at + count).map_or("", |token| token.text);
            match token.text {
                "mod" if behind(2) == "{" => within.push((behind(1), depth)),
                "use" => {
                    let prefix = within.iter().map(|(name, _)| *name).collect();
                    at += 1 + module.read_use(&code[at + 1..], prefix, within.is_empty());
                    continue;
                }
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    within.pop_if(|(_, outside)| *outside == depth);
                }
                "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" if depth == 0 => {
                    module.items.push(behind(1));
                }
                _ if token.is_word() && (at == 0 || !matches!(code[at - 1].text, "::" | ".")) => {
                    let prefix = within.iter().map(|(name, _)| *name).collect();
                    at += module.read_path(&code[at..], prefix);
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        module
    }

    /// Reads a path in code, and says how many tokens it takes.
    fn read_path(&mut self, code: &[Token<'a>], within: Vec<&'a str>) -> usize {
        let mut length = 1;
        let is_further = |length: usize| {
            code.get(length).is_some_and(|token| token.text == "::")
                && code.get(length + 1).is_some_and(Token::is_word)
        };
        while is_further(length) {
            length += 2;
        }
        if length > 1 {
            let written = code[..length].iter().step_by(2).map(|token| token.text).collect();
            self.paths.push(Path { segments: from_file(&within, written), line: code[0].line });
        }
        length
    }

    /// Reads a declaration behind its `use`, and says how many tokens it takes.
    fn read_use(&mut self, code: &[Token<'a>], within: Vec<&'a str>, binds: bool) -> usize {
        let (mut outer, mut path): (Vec<usize>, Vec<&str>) = Default::default();
        let (mut alias, mut is_renamed, mut at) = (None, false, 0);
        while let Some(token) = code.get(at) {
            match token.text {
                "{" => outer.push(path.len()),
                "," | "}" | ";" => {
                    if path.len() > outer.last().copied().unwrap_or(0) {
                        let segments = from_file(&within, path.clone());
                        self.declare(segments, alias.take(), token.line, binds);
                    }
                    if token.text == "}" {
                        // What stood in the braces is declared; what is before them is none by itself.
                        outer.pop();
                    }
                    path.truncate(outer.last().copied().unwrap_or(0));
                    if token.text == ";" {
                        return at + 1;
                    }
                }
                "as" => is_renamed = true,
                "::" => {}
                name if is_renamed => (alias, is_renamed) = (Some(name), false),
                name => path.push(name),
            }
            at += 1;
        }
        at
    }

    fn declare(&mut self, mut segments: Vec<&'a str>, alias: Option<&'a str>, line: usize, binds: bool) {
        if segments.last() == Some(&"self") && segments.len() > 1 {
            segments.pop();
        }
        match segments.last() {
            Some(&"*") if binds => {
                segments.pop();
                self.globs.push(segments);
            }
            Some(name) if binds => {
                self.bindings.insert(alias.unwrap_or(name), segments.clone());
                self.paths.push(Path { segments, line });
            }
            _ => self.paths.push(Path { segments, line }),
        }
    }

    /// Whether this module is above another, which may use its private parts.
    fn is_above(&self, other: &Module<'_>) -> bool {
        other.name.len() > self.name.len() && other.name.starts_with(&self.name)
    }
}

/// A path as one of the file's own module: within modules in the file, `super` may lead to no other file.
fn from_file<'a>(within: &[&'a str], mut written: Vec<&'a str>) -> Vec<&'a str> {
    for _ in within {
        match written.first() {
            Some(&"super") => drop(written.remove(0)),
            _ => break,
        }
    }
    written
}

/// What the files of a crate use of one another. What a file uses of those above it is left out.
pub fn uses(modules: &[Module<'_>]) -> Vec<Vec<Use>> {
    let of_module = |from: usize| {
        let module = &modules[from];
        let mut found: Vec<Use> = Vec::new();
        for path in &module.paths {
            // What goes on from an item that a `use` binds was counted there.
            let bound = path.segments.first().and_then(|first| module.bindings.get(first));
            let was_counted = bound.is_some_and(|bound| {
                *bound != path.segments && resolve(modules, from, bound, HOPS_MAX).is_some()
            });
            if was_counted {
                continue;
            }
            let target = resolve(modules, from, &path.segments, HOPS_MAX);
            if let Some(of) = target.filter(|of| *of != from && !modules[*of].is_above(module)) {
                found.push(Use { of, line: path.line, path: path.segments.join("::") });
            }
        }
        found
    };
    (0..modules.len()).map(of_module).collect()
}

/// The file that defines what a path in a file names, if this crate does. A module alone is no item: what is used of
/// it has paths of its own.
fn resolve(modules: &[Module<'_>], from: usize, path: &[&str], hops: usize) -> Option<usize> {
    let (first, rest) = path.split_first()?;
    let find = |name: &[&str]| modules.iter().position(|module| module.name == name);
    let mut at = from;
    let mut rest = rest;
    match *first {
        "crate" => at = find(&[])?,
        "self" => {}
        "super" => {
            at = find(modules[at].name.split_last()?.1)?;
            while let Some((&"super", further)) = rest.split_first() {
                at = find(modules[at].name.split_last()?.1)?;
                rest = further;
            }
        }
        name => {
            let known = modules[at].bindings.contains_key(name) || child(modules, at, name).is_some();
            // A `use` of the same name as its first segment leads out of the crate.
            let leads_out = modules[at].bindings.get(name).is_some_and(|bound| bound.first() == Some(&name));
            if !known || (leads_out && child(modules, at, name).is_none()) {
                return None;
            }
            rest = path;
        }
    }
    walk(modules, at, rest, hops)
}

/// Goes on from a module.
fn walk(modules: &[Module<'_>], at: usize, path: &[&str], hops: usize) -> Option<usize> {
    let (name, rest) = path.split_first()?;
    if let Some(child) = child(modules, at, name) {
        return walk(modules, child, rest, hops);
    }
    let module = &modules[at];
    if hops == 0 || module.items.contains(name) {
        return Some(at);
    }
    if let Some(bound) = module.bindings.get(name) {
        let further: Vec<&str> = bound.iter().chain(rest).copied().collect();
        // A module that is bound and named alone is no item; what another crate defines is this module's to give.
        let is_module = rest.is_empty() && leads_to_module(modules, at, bound);
        return resolve(modules, at, &further, hops - 1).or((!is_module).then_some(at));
    }
    let of_glob = module.globs.iter().find_map(|glob| {
        let further: Vec<&str> = glob.iter().chain(path).copied().collect();
        let found = resolve(modules, at, &further, hops - 1)?;
        modules[found].items.contains(name).then_some(found)
    });
    Some(of_glob.unwrap_or(at))
}

fn leads_to_module(modules: &[Module<'_>], at: usize, path: &[&str]) -> bool {
    let named: Vec<&str> = path.iter().copied().chain(["*"]).collect();
    let plain = resolve(modules, at, path, HOPS_MAX);
    plain.is_none() && resolve(modules, at, &named, HOPS_MAX).is_some()
}

fn child(modules: &[Module<'_>], at: usize, name: &str) -> Option<usize> {
    let parent = &modules[at].name;
    modules.iter().position(|module| {
        module.name.split_last().is_some_and(|(last, above)| *last == name && above == parent)
    })
}
