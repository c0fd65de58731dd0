//! Keeps the repository tidy. Every failure lists all places at once.

use heddle_tidy::circles::{self, Circle};
use heddle_tidy::fields::{self, Shown};
use heddle_tidy::graph::Graph;
use heddle_tidy::methods::{self, Home};
use heddle_tidy::public::{self, Words};
use heddle_tidy::tree::{self, File};
use heddle_tidy::{licence, markdown, source, tokens};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The most lines of a source file without its tests.
const FILE_LINES_MAX: usize = 600;

/// The most lines of a function.
const FUNCTION_LINES_MAX: usize = 70;

/// Files that are longer, with the length they must not pass. Entries only shrink and go away.
const LONG_FILES: &[(&str, usize)] = &[];

/// Functions that are longer, by file, with the length the longest must not pass. Entries only shrink and go away.
const LONG_FUNCTIONS: &[(&str, usize)] = &[];

/// Crates some of whose files are in circles, with how many at most. Entries only shrink and go away.
const CIRCLES: &[(&str, usize)] = &[];

/// Crates that show functions, methods and constants to everybody though nobody else uses them, with how many at most.
/// Entries only shrink and go away.
const SHOWN_TO_NOBODY: &[(&str, usize)] = &[];

/// Crates that tests use as much as programs do.
const FOR_TESTS: &[&str] = &["lab", "network", "sim", "tidy"];

/// What other crates show though only tests use it, with the reason.
const ONLY_TESTED: &[(&str, &str)] = &[
    ("RSA_ID_X509", "one of a list of a format's values"),
    ("RSA_ID_V_IDENTITY", "one of a list of a format's values"),
    ("parse_unverified", "what a fuzzer can reach of the consensus"),
    ("sojourn_mean_ns", "a figure of a queue for whoever uses `netem` by itself"),
    ("session_stats", "what an end sees of its TCP, for whoever uses `client` by itself"),
    ("is_ended", "the end of an association, for whoever uses `sctp` by itself"),
    ("packets_mean", "a figure of a queue for whoever uses `netem` by itself"),
];

/// Crates without sockets, clocks, threads or the system's randomness.
const CORE: &[&str] = &[
    "heddle-seam",
    "heddle-proto",
    "heddle-client",
    "heddle-forwarding",
    "heddle-relay",
    "heddle-esp",
    "heddle-utcp",
    "heddle-sctp",
    "heddle-netem",
];

/// What the core must not be linked with, however far down.
const DENIED_IN_CORE: &[&str] = &[
    "getrandom",
    "hickory-resolver",
    "libc",
    "mio",
    "polling",
    "quinn-udp",
    "rand",
    "rustix",
    "signal-hook",
    "socket2",
    "tempfile",
    "time",
    "tokio",
];

/// Crates whose source must not call `unwrap`: strangers reach them.
const NO_UNWRAP: &[&str] = &[
    "crates/seam/",
    "crates/proto/",
    "crates/client/",
    "crates/forwarding/",
    "crates/relay/",
    "crates/transport/",
    "crates/esp/",
    "crates/utcp/",
    "crates/sctp/",
    "crates/netem/",
    "crates/net/",
    "crates/dir/",
    "crates/control/",
];

/// Long names in documents of what is not here: parameters of the consensus that Heddle does not know, fields of the
/// kernel.
const NAMES_OF_OTHERS: &[&str] = &["dos_num_circ_max_outq", "tcpi_rcv_rtt"];

/// The most columns of a line of Rust.
const COLUMNS_MAX: usize = 120;

/// The relay's sources, and where among them its core is: what sees the relay's parts together.
const RELAY: &str = "crates/relay/src/";
const RELAYS_CORE: &str = "crates/relay/src/core/";
const RELAYS_SHARD: &str = "crates/relay/src/shard/";

/// Structs of the relay that have verbs and show a field: where, which, and why.
const SHOWN_FIELDS: &[(&str, &str, &str)] = &[
    ("crates/relay/src/admission/mod.rs", "Granted", "figures, which can only be added up"),
    ("crates/relay/src/stats.rs", "RelayStats", "figures, which can only be added up"),
    ("crates/relay/src/stats.rs", "TransportStats", "figures, which can only be added up"),
    ("crates/relay/src/stats.rs", "DelayHistogram", "figures, which can only be added up"),
    ("crates/relay/src/table/circuit.rs", "Circuit", "its lanes: the table changes them with the links' ids"),
    (
        "crates/relay/src/table/ids.rs",
        "LinkIds",
        "the table's half of a lane, which changes with the circuit's",
    ),
    (
        "crates/relay/src/exit/stream.rs",
        "Stream",
        "its turn: the order of streams keeps it there, with itself",
    ),
    ("crates/relay/src/rates/queue.rs", "Waiting", "who waits in one direction, of `Rates` alone"),
];

/// Who may name the core of the relay besides: the shard, by the core's verbs.
const CORES_HOMES: &[Home<'_>] =
    &[Home { path: RELAYS_CORE, has_methods: true }, Home { path: RELAYS_SHARD, has_methods: false }];

/// What is made from data alone.
const RESULTS: &str = "docs/results/";

/// Where the documents are whose names of sources must hold.
const REFERENCE: &str = "docs/reference/";

/// The page that lists the crates.
const ARCHITECTURE: &str = "docs/reference/architecture.md";

/// The page that says what words mean, and which are not used.
const README_LINES_MAX: usize = 100;
const GLOSSARY: &str = "docs/reference/glossary.md";

/// The floors of the house, from the top. A crate may use crates of lower floors only.
const FLOORS: &[(&str, u32)] = &[
    ("heddle", 9),
    ("heddle-lab", 8),
    ("heddle-network", 7),
    ("heddle-assembly", 6),
    ("heddle-control", 5),
    ("heddle-torrc", 5),
    ("heddle-sim", 3),
    ("heddle-net", 3),
    ("heddle-dir", 3),
    ("heddle-relay", 4),
    ("heddle-client", 3),
    ("heddle-forwarding", 2),
    ("heddle-transport", 3),
    ("heddle-nullcrypto", 4),
    ("heddle-sctp", 2),
    ("heddle-proto", 1),
    ("heddle-seam", 0),
    ("heddle-esp", 1),
    ("heddle-utcp", 1),
    ("heddle-netem", 1),
    ("heddle-spe", 0),
    ("heddle-tidy", 0),
];

#[test]
fn files_are_short() {
    let too_long = |file: &File| {
        let lines = source::without_tests(&file.text).lines().count();
        let max = allowance(LONG_FILES, &file.path).unwrap_or(FILE_LINES_MAX);
        (lines > max).then(|| format!("{}: {lines} lines, at most {max}", file.path))
    };
    expect_none(production_files().iter().filter_map(too_long));
}

#[test]
fn functions_are_short() {
    let too_long = |file: &File| {
        let max = allowance(LONG_FUNCTIONS, &file.path).unwrap_or(FUNCTION_LINES_MAX);
        let functions = source::functions(source::without_tests(&file.text));
        let long = functions.into_iter().filter(move |function| function.lines > max);
        let path = file.path.clone();
        long.map(move |function| format!("{path}:{}: {} lines, at most {max}", function.line, function.lines))
            .collect::<Vec<_>>()
    };
    expect_none(production_files().iter().flat_map(too_long));
}

#[test]
fn allowances_are_needed() {
    let files = production_files();
    let needless = LONG_FILES.iter().filter(|(path, max)| {
        let file = files.iter().find(|file| file.path == *path);
        file.is_none_or(|file| source::without_tests(&file.text).lines().count() < *max)
    });
    expect_none(needless.map(|(path, max)| format!("{path} no longer has {max} lines; lower its allowance")));
}

/// A file that is in a circle can be neither read nor changed without the others.
#[test]
fn files_of_a_crate_form_no_circle() {
    let files = tree::files(&tree::root());
    let found = crates(&files).into_iter().flat_map(|name| {
        let circles = circles::circles(&files, &format!("crates/{name}/src/"));
        let max = allowance(CIRCLES, name).unwrap_or(0);
        let told = circles.iter().map(move |circle| {
            format!("{name}: {} in a circle\n{}", circle.files.join(", "), circle.uses.join("\n"))
        });
        let is_over = files_in(&circles) > max;
        told.filter(|_| is_over).collect::<Vec<_>>()
    });
    expect_none(found);
}

#[test]
fn allowances_of_circles_are_needed() {
    let files = tree::files(&tree::root());
    let needless = CIRCLES
        .iter()
        .filter(|(name, max)| files_in(&circles::circles(&files, &format!("crates/{name}/src/"))) < *max);
    expect_none(needless.map(|(name, max)| format!("{name} no longer has {max} files in circles; lower it")));
}

/// Whoever could name the core could see all of the relay's parts by it.
#[test]
fn the_relays_core_alone_sees_its_parts() {
    let files = tree::files(&tree::root());
    expect_none(methods::outside(&files, RELAY, "Core", CORES_HOMES));
}

/// Methods of one type in many files hide from paths what these use of one another.
#[test]
fn files_of_the_relays_core_and_of_its_shard_form_no_circle() {
    let files = tree::files(&tree::root());
    let of_core = methods::circles(&files, RELAYS_CORE, "Core");
    let of_shard = methods::circles(&files, RELAYS_SHARD, "Relay");
    expect_none(of_core.iter().chain(&of_shard).map(|circle| {
        format!("{} call one another in a circle\n{}", circle.files.join(", "), circle.uses.join("\n"))
    }));
}

/// A part of the relay changes by its verbs alone, which others pass by where they see its fields.
#[test]
fn parts_of_the_relay_show_no_fields() {
    let shown = fields::shown(&tree::files(&tree::root()), RELAY);
    let is_needed = |(path, name, _): &&(&str, &str, &str)| {
        shown.iter().any(|shown| shown.path == *path && shown.name == *name)
    };
    let is_allowed =
        |shown: &Shown| SHOWN_FIELDS.iter().any(|(path, name, _)| shown.path == *path && shown.name == *name);
    let found = shown.iter().filter(|shown| !is_allowed(shown));
    let found = found.map(|Shown { path, line, name }| format!("{path}:{line}: {name} shows a field"));
    let needless = SHOWN_FIELDS.iter().filter(|allowed| !is_needed(allowed));
    let needless =
        needless.map(|(path, name, _)| format!("{path}: {name} shows no field; take its allowance away"));
    expect_none(found.chain(needless));
}

/// What is `pub` promises users outside; without any it is one crate's own affair, or nobody's.
#[test]
fn what_is_public_is_used_elsewhere() {
    let files = tree::files(&tree::root());
    let read = Words::read(&files);
    let found = crates(&files).into_iter().flat_map(|name| {
        let unused = public::unused(&read, &format!("crates/{name}/src/"));
        let is_over = unused.len() > allowance(SHOWN_TO_NOBODY, name).unwrap_or(0);
        unused.into_iter().filter(move |_| is_over).map(|place| format!("{place} is used by no other crate"))
    });
    expect_none(found);
}

#[test]
fn allowances_of_what_is_public_are_needed() {
    let files = tree::files(&tree::root());
    let read = Words::read(&files);
    let needless = SHOWN_TO_NOBODY
        .iter()
        .filter(|(name, max)| public::unused(&read, &format!("crates/{name}/src/")).len() < *max);
    expect_none(needless.map(|(name, max)| format!("{name} no longer shows {max} to nobody; lower it")));
}

/// What only tests call is not what they are to test, or not yet of use.
#[test]
fn what_is_public_is_used_outside_tests() {
    let files = tree::files(&tree::root());
    let (read, counts) = (Words::read(&files), public::counts(&files));
    let crates = crates(&files).into_iter().filter(|name| !FOR_TESTS.contains(name));
    let found: Vec<String> =
        crates.flat_map(|name| public::only_tested(&read, &counts, &format!("crates/{name}/src/"))).collect();
    // What fuzz targets call is for them.
    let is_for_them = |place: &String| place.contains("/fuzz.rs:") || place.contains("/fuzz_endpoint.rs:");
    let found: Vec<String> = found.into_iter().filter(|place| !is_for_them(place)).collect();
    let is_of = |place: &str, name: &str| place.ends_with(&format!(": {name}"));
    let needless = ONLY_TESTED.iter().filter(|(name, _)| !found.iter().any(|place| is_of(place, name)));
    let needless = needless.map(|(name, _)| format!("{name} is used outside tests; take its allowance away"));
    let over = found.iter().filter(|place| !ONLY_TESTED.iter().any(|(name, _)| is_of(place, name)));
    expect_none(over.map(|place| format!("{place} is used by tests alone")).chain(needless));
}

/// Where everything of a module is taken, a reader cannot tell where a name comes from.
#[test]
fn nothing_is_imported_whole() {
    let files = production_files().into_iter().filter(|file| !file.path.contains("/benches/"));
    let found = files.flat_map(|file| {
        let globs = tokens::globs(&tokens::without_tests(&tokens::tokens(&file.text)));
        globs.into_iter().map(|line| format!("{}:{line}: name what is used", file.path)).collect::<Vec<_>>()
    });
    expect_none(found);
}

#[test]
fn text_is_clean() {
    let machine_paths = [concat!("/wo", "rk/"), concat!("/tmp", "/ref"), concat!("/ho", "me/")];
    let mut found = Vec::new();
    for file in tree::files(&tree::root()) {
        let may_have_tabs = file.path == "Makefile";
        for (index, line) in file.text.lines().enumerate() {
            let place = format!("{}:{}", file.path, index + 1);
            if line.ends_with([' ', '\t']) && !file.path.ends_with(".md") {
                found.push(format!("{place}: the line ends in white space"));
            }
            if line.contains('\t') && !may_have_tabs {
                found.push(format!("{place}: a tab"));
            }
            if machine_paths.iter().any(|path| line.contains(path)) {
                found.push(format!("{place}: a path of one machine"));
            }
        }
    }
    expect_none(found);
}

/// `rustfmt` keeps code short, but neither comments nor what is in macros. Text that is quoted may have its line, but
/// where it goes on in the next one anyway.
#[test]
fn lines_are_short() {
    let found =
        tree::files(&tree::root()).into_iter().filter(|file| file.path.ends_with(".rs")).flat_map(|file| {
            let lines = file.text.lines().enumerate().map(|(index, line)| (index + 1, line));
            let long: Vec<_> = lines.filter(|(_, line)| source::columns(line) > COLUMNS_MAX).collect();
            let read = if long.is_empty() { Vec::new() } else { tokens::tokens(&file.text) };
            let has_code: BTreeSet<usize> = read.iter().map(|token| token.line).collect();
            let long = long.into_iter().filter(|(number, line)| {
                let is_row = line.trim_start().starts_with("//! |");
                // A line of a text that has several.
                let is_text = !has_code.contains(number)
                    && !line.trim_start().starts_with("//")
                    && !line.ends_with('\\');
                !is_row && !is_text
            });
            long.map(|(number, _)| format!("{}:{number}: over {COLUMNS_MAX} columns", file.path))
                .collect::<Vec<_>>()
        });
    expect_none(found);
}

/// "Since" tells of time. Behind a comma it would give a reason, for which the word is "because". Results are made of
/// data, with what was said in them at their commits.
#[test]
fn reasons_are_given_by_because() {
    let found = tree::files(&tree::root()).into_iter().filter(|file| !file.path.starts_with(RESULTS));
    let found = found.flat_map(|file| {
        let said = file.text.lines().enumerate().filter(|(_, line)| {
            let text = if file.path.ends_with(".rs") { source::comment(line) } else { line };
            format!("{text} ").contains(concat!(", sin", "ce "))
        });
        said.map(|(index, _)| format!("{}:{}: \"because\" gives reasons", file.path, index + 1))
            .collect::<Vec<_>>()
    });
    expect_none(found);
}

#[test]
fn strangers_cannot_reach_an_unwrap() {
    let reachable = |file: &&File| NO_UNWRAP.iter().any(|prefix| file.path.starts_with(prefix));
    let files = production_files();
    let found = files.iter().filter(reachable).flat_map(|file| {
        let lines = source::unwraps(source::without_tests(&file.text));
        lines.into_iter().map(|line| {
            format!("{}:{line}: unwrap; say why it holds with expect, or return an error", file.path)
        })
    });
    expect_none(found);
}

#[test]
fn the_core_does_no_io() {
    let root = tree::root();
    let found = CORE.iter().flat_map(|name| {
        let linked = Graph::linked_alone(&root, name);
        assert!(!linked.is_empty() || *name == "heddle-seam", "{name} is linked with nothing");
        let denied = DENIED_IN_CORE.iter().filter(move |denied| linked.contains(**denied));
        denied.map(move |denied| format!("{name} is linked with {denied}"))
    });
    expect_none(found.collect::<Vec<_>>());
}

#[test]
fn the_relay_alone_links_no_laboratory() {
    let root = tree::root();
    let (whole, alone) = (Graph::load(&root), Graph::load_without_defaults(&root));
    let (whole, linked) = (whole.linked_with("heddle"), alone.linked_with("heddle"));
    for name in ["heddle-lab", "heddle-netem", "heddle-network", "heddle-nullcrypto", "heddle-sim"] {
        assert!(whole.contains(name) && !linked.contains(name), "{name} is the laboratory's");
    }
    let document = std::fs::read_to_string(root.join("docs/reference/dependencies.md"))
        .expect("docs/reference/dependencies.md");
    let told = format!("`heddle-relay` links {} crates", linked.len());
    assert!(document.contains(&told), "docs/reference/dependencies.md does not say {told:?}");
}

#[test]
fn dependencies_point_down() {
    let graph = Graph::load(&tree::root());
    let floor = |name: &str| FLOORS.iter().find(|(member, _)| *member == name).map(|(_, floor)| *floor);
    let mut found = Vec::new();
    for member in graph.members() {
        let Some(from) = floor(&member.name) else {
            found.push(format!("{} has no floor; add it to FLOORS", member.name));
            continue;
        };
        let linked = graph.linked_with(&member.name);
        let upwards = linked.iter().filter(|name| floor(name).is_some_and(|to| to >= from));
        found.extend(upwards.map(|name| format!("{} uses {name}, which is not below it", member.name)));
    }
    expect_none(found);
}

#[test]
fn every_dependency_has_a_reason() {
    let root = tree::root();
    let document = std::fs::read_to_string(root.join("docs/reference/dependencies.md"))
        .expect("docs/reference/dependencies.md");
    let graph = Graph::load(&root);
    let ours: Vec<&str> = graph.members().map(|member| member.name.as_str()).collect();
    let has_reason = |name: &str| {
        let row = document.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        row.and_then(|row| row.split('|').nth(2)).is_some_and(|reason| reason.trim().len() > 10)
    };
    let mut names: Vec<&String> = graph.members().flat_map(|member| &member.dependencies).collect();
    names.sort();
    names.dedup();
    let missing = names.into_iter().filter(|name| !ours.contains(&name.as_str()) && !has_reason(name));
    expect_none(missing.map(|name| format!("docs/reference/dependencies.md has no reason for `{name}`")));
}

#[test]
fn licences_are_compatible() {
    let graph = Graph::load(&tree::root());
    let bad = graph.packages().filter(|package| !licence::is_allowed(&package.licence));
    expect_none(bad.map(|package| format!("{}: {:?}", package.name, package.licence)));
}

#[test]
fn links_resolve() {
    let root = tree::root();
    let mut found = Vec::new();
    for file in documents() {
        let directory = Path::new(&file.path).parent().expect("a file lies in a directory");
        for link in markdown::local_links(&file.text) {
            let is_within = link.path.is_empty();
            let path = if is_within { root.join(&file.path) } else { root.join(directory).join(link.path) };
            if !path.exists() {
                found.push(format!("{}: {} does not exist", file.path, link.path));
            } else if let Some(anchor) = link.anchor
                && !std::fs::read_to_string(&path)
                    .is_ok_and(|text| markdown::anchors(&text).iter().any(|known| known == anchor))
            {
                found.push(format!("{}: {}#{anchor} has no heading", file.path, link.path));
            }
        }
    }
    expect_none(found);
}

#[test]
fn documents_that_are_named_exist() {
    let root = tree::root();
    let found = tree::files(&root).into_iter().flat_map(|file| {
        let lines = file.text.lines().enumerate();
        let named =
            lines.flat_map(|(index, line)| tree::named_documents(line).map(move |name| (index, name)));
        let missing = named.filter(|(_, name)| !root.join(name).exists());
        missing
            .map(|(index, name)| format!("{}:{}: {name} does not exist", file.path, index + 1))
            .collect::<Vec<_>>()
    });
    expect_none(found);
}

#[test]
fn architecture_lists_every_crate() {
    let root = tree::root();
    let document =
        std::fs::read_to_string(root.join(ARCHITECTURE)).expect("the architecture page is in the repository");
    let listed: BTreeSet<String> =
        markdown::first_column(&document, "## The house").into_iter().map(str::to_owned).collect();
    let directories = std::fs::read_dir(root.join("crates")).expect("the crates are in the repository");
    let crates: BTreeSet<String> = directories
        .map(|entry| entry.expect("the crates can be listed"))
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    expect_none(listed.symmetric_difference(&crates).map(|name| {
        let why = if crates.contains(name) { "is not in its table of crates" } else { "is no crate" };
        format!("{ARCHITECTURE}: `{name}` {why}")
    }));
}

/// One word, one thing.
#[test]
fn words_are_defined_once_and_have_no_synonyms() {
    let documents = documents();
    let glossary =
        documents.iter().find(|file| file.path == GLOSSARY).expect("the glossary is in the repository");
    let words = markdown::first_column(&glossary.text, "# Glossary");
    let unused = markdown::first_column(&glossary.text, "## Words that are not used");
    let unused: Vec<&str> = unused.iter().flat_map(|words| words.split(", ")).collect();
    assert!(!words.is_empty() && !unused.is_empty(), "the glossary has its two tables");
    let plain = |word: &&str| word.trim_end_matches([' ', '★']).to_lowercase();
    let mut defined = BTreeSet::new();
    let twice =
        words.iter().map(plain).chain(unused.iter().map(plain)).filter(|word| !defined.insert(word.clone()));
    let mut found: Vec<String> = twice.map(|word| format!("{GLOSSARY}: {word} is there twice")).collect();
    for file in documents.iter().filter(|file| file.path.starts_with("docs/") && file.path != GLOSSARY) {
        let said = markdown::phrases(&file.text, &unused);
        found.extend(said.into_iter().map(|word| format!("{}: {word:?}; see {GLOSSARY}", file.path)));
    }
    expect_none(found);
}

#[test]
fn sources_that_documents_name_exist() {
    let root = tree::root();
    let mut found = Vec::new();
    for file in documents().iter().filter(|file| file.path.starts_with(REFERENCE)) {
        let paths = markdown::quoted(&file.text).filter(|name| tree::is_source_of_a_crate(name));
        // The fuzz targets are beside the crates.
        let exists = |path: &str| root.join("crates").join(path).exists() || root.join(path).exists();
        let missing = paths.filter(|path| !exists(path));
        found.extend(missing.map(|path| format!("{}: {path} does not exist", file.path)));
    }
    expect_none(found);
}

/// The end of a path is enough where it is told in which crate that is. Notes are about what was.
#[test]
fn files_that_are_named_by_the_end_of_their_path_exist() {
    let files = tree::files(&tree::root());
    let exists = |name: &str| {
        files.iter().any(|file| {
            file.path.strip_suffix(name).is_some_and(|above| above.is_empty() || above.ends_with('/'))
        })
    };
    let is_held = |file: &&File| file.path.ends_with(".rs") || file.path.starts_with(REFERENCE);
    let found = files.iter().filter(is_held).flat_map(|file| {
        let names = markdown::quoted(&file.text).filter(|name| tree::is_rust_file(name) && !exists(name));
        names.map(|name| format!("{}: no file's path ends in {name}", file.path))
    });
    expect_none(found);
}

/// Whoever reads it reads all of it.
#[test]
fn the_readme_is_short() {
    let readme = fs::read_to_string(tree::root().join("README.md")).expect("there is a README");
    let lines = readme.lines().count();
    assert!(lines <= README_LINES_MAX, "{lines} lines, at most {README_LINES_MAX}");
}

#[test]
fn names_in_documents_are_of_something() {
    let files = tree::files(&tree::root());
    let (documents, sources): (Vec<&File>, Vec<&File>) = files.iter().partition(|file| is_document(file));
    let words = sources.iter().flat_map(|file| tree::long_names(&file.text));
    let known: BTreeSet<&str> = words.chain(NAMES_OF_OTHERS.iter().copied()).collect();
    let found = documents.iter().flat_map(|file| {
        let unknown = tree::quoted_long_names(&file.text).filter(|name| !known.contains(name));
        unknown.map(|name| format!("{}: `{name}` is neither a test nor anything else here", file.path))
    });
    expect_none(found);
}

fn files_in(circles: &[Circle]) -> usize {
    circles.iter().map(|circle| circle.files.len()).sum()
}

/// The directories of the crates.
fn crates(files: &[File]) -> BTreeSet<&str> {
    let below = files.iter().filter_map(|file| file.path.strip_prefix("crates/"));
    below.filter_map(|path| path.split_once('/')).map(|(name, _)| name).collect()
}

/// The Rust files that are not tests.
fn production_files() -> Vec<File> {
    let is_production = |file: &File| file.path.ends_with(".rs") && !source::is_test_file(&file.path);
    tree::files(&tree::root()).into_iter().filter(is_production).collect()
}

/// The Markdown files.
fn documents() -> Vec<File> {
    tree::files(&tree::root()).into_iter().filter(is_document).collect()
}

fn is_document(file: &File) -> bool {
    file.path.ends_with(".md")
}

fn allowance(list: &[(&str, usize)], path: &str) -> Option<usize> {
    list.iter().find(|(file, _)| *file == path).map(|(_, max)| *max)
}

fn expect_none(found: impl IntoIterator<Item = String>) {
    let found: Vec<String> = found.into_iter().collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}
