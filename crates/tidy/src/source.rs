//! What one Rust file shows: its length, its functions and its panics.

/// A function and how many lines it takes from its `fn` to its closing brace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The line of its `fn`, from 1.
    pub line: usize,
    /// Its length in lines.
    pub lines: usize,
}

/// Whether a whole file is tests: it lies in a `tests` directory or is named like one.
pub fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs")
}

/// The part of a file before its test module, which by habit comes last.
pub fn without_tests(text: &str) -> &str {
    let mut length = 0;
    for (attribute, module) in text.split_inclusive('\n').zip(text.split_inclusive('\n').skip(1)) {
        if attribute == "#[cfg(test)]\n" && module.ends_with("mod tests {\n") {
            return &text[..length];
        }
        length += attribute.len();
    }
    text
}

/// What a line of Rust says to readers: its comment, if it has one.
pub fn comment(line: &str) -> &str {
    // What names a place on the network has a colon before its slashes.
    let begins = line.match_indices("//").find(|(at, _)| !line[..*at].ends_with(':'));
    begins.map_or("", |(at, _)| &line[at..])
}

/// The columns that a line takes beside what is in quotes, which may have its line. Text that goes on in the next line
/// may be broken anywhere, so it counts, and so does a comment.
pub fn columns(line: &str) -> usize {
    let all = line.chars().count();
    if line.trim_start().starts_with("//") || line.ends_with('\\') {
        return all;
    }
    let line = line.replace("\\\"", "");
    let outside: usize = line.split('"').step_by(2).map(|piece| piece.chars().count()).sum();
    // One that begins or ends within quotes has an odd number of them, and shows not which part is text.
    if line.matches('"').count().is_multiple_of(2) { outside } else { 0 }
}

/// The functions of a formatted file. A function ends at the brace that stands under its `fn`.
pub fn functions(text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        if !begins_function(line.trim_start()) || line.ends_with('}') {
            continue;
        }
        let mut after = lines[start..].iter().enumerate().skip(usize::from(!line.ends_with(';')));
        let end = after.find(|(_, other)| {
            let at_indent = other.len() > indent
                && !other[indent..].starts_with(' ')
                && other[..indent].trim().is_empty();
            at_indent && (other.ends_with(';') || other[indent..].starts_with('}'))
        });
        if let Some((length, end)) = end
            && end.trim() == "}"
        {
            found.push(Function { line: start + 1, lines: length + 1 });
        }
    }
    found
}

fn begins_function(line: &str) -> bool {
    let mut words = line.split(' ').skip_while(|word| {
        word.starts_with("pub") || matches!(*word, "const" | "async" | "unsafe" | "extern" | "\"C\"")
    });
    words.next() == Some("fn")
}

/// The lines, from 1, that call `unwrap` outside comments.
pub fn unwraps(text: &str) -> Vec<usize> {
    let call = concat!(".unwrap", "()");
    let code = |line: &str| line.split("//").next().is_some_and(|code| code.contains(call));
    text.lines().enumerate().filter(|(_, line)| code(line)).map(|(index, _)| index + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured() {
        let text = "impl A {\n    pub fn a(\n        b: u8,\n    ) -> u8 {\n        b\n    }\n    fn c() {}\n}\n\ntrait T {\n    fn d(\n        e: u8,\n    );\n    fn f();\n}\n";
        assert_eq!(functions(text), [Function { line: 2, lines: 5 }]);
    }

    #[test]
    fn comments_are_told_from_code() {
        assert_eq!(comment("    let a = b; // because"), "// because");
        assert_eq!((comment("f(a, since, b)"), comment("let url = \"http://a\";")), ("", ""));
    }

    #[test]
    fn text_in_quotes_takes_no_columns_unless_it_may_be_broken() {
        assert_eq!(columns("let a = \"b \\\"c\\\" d\";"), "let a = ;".len());
        assert_eq!(columns("\"a b \\"), 6);
        assert_eq!((columns("// a \"b\""), columns("a b\", c);")), (8, 0));
    }

    #[test]
    fn tests_are_left_out() {
        for module in ["mod", "pub(super) mod"] {
            let text = format!("fn a() {{}}\n#[cfg(test)]\n{module} tests {{\n}}\n");
            assert_eq!(without_tests(&text), "fn a() {}\n");
        }
        assert!(is_test_file("crates/a/tests/b.rs") && is_test_file("crates/a/src/b/tests.rs"));
        assert!(!is_test_file("crates/a/src/b.rs"));
    }

    #[test]
    fn unwraps_are_found_in_code_only() {
        let call = concat!(".unwrap", "()");
        let text = format!("a{call};\n// a{call}\nb.unwrap_or(c)\n");
        assert_eq!(unwraps(&text), [1]);
    }
}
