//! Licence expressions (SPDX) and which of them a program under MIT or Apache-2.0 can be built with.

/// The licences a dependency may ask for. All of them let the program keep its own.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "OpenSSL",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

/// Whether an expression such as `(MIT OR LGPL-2.1) AND ISC` can be met with allowed licences alone.
pub fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    either(&mut rest) && rest.is_empty()
}

fn either(words: &mut &[&str]) -> bool {
    let mut allowed = both(words);
    while let ["OR", after @ ..] = words {
        *words = after;
        allowed |= both(words);
    }
    allowed
}

fn both(words: &mut &[&str]) -> bool {
    let mut allowed = term(words);
    while let ["AND", after @ ..] = words {
        *words = after;
        allowed &= term(words);
    }
    allowed
}

/// One licence or an expression in parentheses. An exception (`WITH`) only adds rights.
fn term(words: &mut &[&str]) -> bool {
    match *words {
        ["(", after @ ..] => {
            *words = after;
            let allowed = either(words);
            *words = words.strip_prefix(&[")"]).unwrap_or(words);
            allowed
        }
        [name, "WITH", _, after @ ..] | [name, after @ ..] => {
            *words = after;
            ALLOWED.contains(name)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_weighed() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "(MIT OR GPL-3.0) AND ISC",
            "Apache-2.0 WITH LLVM-exception",
            "GPL-2.0 OR MIT AND ISC",
        ] {
            assert!(is_allowed(good), "{good}");
        }
        for bad in ["", "GPL-3.0-only", "MIT AND AGPL-3.0", "(MIT OR ISC) AND GPL-2.0", "MIT ISC"] {
            assert!(!is_allowed(bad), "{bad}");
        }
    }
}
