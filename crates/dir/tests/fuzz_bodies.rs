//! The fuzz targets of this crate without a fuzzer: the same bodies, on seeded inputs. How to add
//! one is in `fuzz/README.md`.

#[path = "../../../fuzz/src/directory.rs"]
mod directory;
#[path = "../../../fuzz/src/keys.rs"]
mod keys;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;

/// Inputs that come of short seeds alone.
const SHORT_ROUNDS: u64 = 20_000;
/// Inputs that come of all seeds. A third are documents of directories, which cost 0.5 ms each in a debug build,
/// fifty times as much as the others.
const ROUNDS: u64 = 5_000;
/// And of key files. The keys of each are read twice, and RSA keys are checked then.
const KEY_ROUNDS: u64 = 2_000;
/// Kinds of seeds that are documents: consensuses, microdescriptors and certificates.
const DOCUMENTS: [u8; 4] = [1, 2, 6, 7];

#[test]
fn directory_stands() {
    let seeds = directory::seeds();
    let short: Vec<_> = seeds.iter().filter(|seed| !DOCUMENTS.contains(&seed[0])).cloned().collect();
    mutate::throw(directory::run, &short, SHORT_ROUNDS);
    mutate::throw(directory::run, &seeds, ROUNDS);
}

#[test]
fn keys_stand() {
    mutate::throw(keys::run, &keys::seeds(), KEY_ROUNDS);
}
