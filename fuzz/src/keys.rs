//! A `DataDirectory` with keys of which one file has been spoilt, or begins well: it is refused, or the relay is who it
//! was.

use heddle_dir::files::{Files, InMemory};
use heddle_dir::keys::{KeyError, KeyOptions, RelayKeys};
use heddle_seam::rng::Seed;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// When the keys were made.
const NOW_UNIX_S: u64 = 1_795_202_540;
/// No input is longer, so that all files can be read back.
const FILE_BYTES_MAX: usize = 1 << 24;
/// A file that there need not be, and the one that it once was.
const FORMER: &str = "/data/keys/secret_onion_key_ntor.old";
const NTOR: &str = "/data/keys/secret_onion_key_ntor";

/// A file and its bytes.
type Saved = (PathBuf, Vec<u8>);

/// The files of a relay, made once because RSA keys take long to make.
fn saved() -> &'static [Saved] {
    static SAVED: OnceLock<Vec<Saved>> = OnceLock::new();
    SAVED.get_or_init(|| {
        let made = |seed: u64| {
            let files = Arc::new(InMemory::default());
            load(&files, seed).expect("there is nothing yet");
            read_all(&files)
        };
        let mut saved = made(1);
        let of_another = made(2).into_iter().find(|(path, _)| path == Path::new(NTOR));
        saved.push((PathBuf::from(FORMER), of_another.expect("it was made").1));
        saved
    })
}

fn load(files: &Arc<InMemory>, seed: u64) -> Result<RelayKeys, KeyError> {
    let options = KeyOptions { files: files.clone(), ..KeyOptions::new("/data", "heddle") };
    RelayKeys::load_or_create(options, NOW_UNIX_S, &mut Seed::from_number(seed).rng())
}

fn read_all(files: &InMemory) -> Vec<Saved> {
    let read = |path: PathBuf| {
        let bytes = files.read(&path, FILE_BYTES_MAX).expect("it is short");
        (path, bytes.map_or_else(Vec::new, |bytes| bytes.to_vec()))
    };
    files.paths().into_iter().map(read).collect()
}

/// Who it is, and what it answers onionskins with.
fn who(keys: &RelayKeys) -> ([u8; 20], [u8; 32], Vec<[u8; 32]>) {
    (keys.rsa_id(), keys.ed25519_id(), keys.ntor_keys().iter().map(|key| key.public).collect())
}

/// Which file, how many of its bytes stay, and what is behind them.
pub fn run(data: &[u8]) {
    let [which, high, low, rest @ ..] = data else { return };
    let (path, bytes) = &saved()[usize::from(*which) % saved().len()];
    let kept = usize::from(u16::from_be_bytes([*high, *low])) % (bytes.len() + 1);
    let spoilt = [&bytes[..kept], rest].concat();
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    // An empty file is none, and a key would be made, which takes long.
    if spoilt.is_empty() && matches!(name, "secret_id_key" | "secret_onion_key") {
        return;
    }
    let files = Arc::new(InMemory::default());
    files.create_private_dir(Path::new("/data/keys")).expect("memory has room");
    let is_former = |path: &Path| path == Path::new(FORMER);
    for (other, bytes) in saved().iter().filter(|(other, _)| other != path && !is_former(other)) {
        files.write(other, bytes).expect("memory has room");
    }
    files.write(path, &spoilt).expect("memory has room");
    match load(&files, 1) {
        Ok(keys) => {
            let again = load(&files, 1).expect("what was taken is taken again");
            assert_eq!(who(&keys), who(&again));
            assert!((1..=2).contains(&keys.ntor_keys().len()));
            assert_eq!(keys.ed25519_id(), identity(), "nobody else signed");
            assert!(name == "secret_id_key" || keys.rsa_id() == rsa_identity());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    // What was there of the long-lived secrets is there still, good or bad.
    let after = read_all(&files);
    let is_kept = |name: &str| name.starts_with("secret_") || name == "ed25519_master_id_secret_key";
    let before = saved().iter().filter(|(other, _)| other != path && !is_former(other));
    let before = before.map(|saved| (&saved.0, &saved.1)).chain([(path, &spoilt)]);
    for (path, bytes) in before.filter(|(_, bytes)| !bytes.is_empty()) {
        if path.file_name().and_then(|name| name.to_str()).is_some_and(is_kept) {
            assert!(after.iter().any(|(other, now)| other == path && now == bytes), "{}", path.display());
        }
    }
}

fn good() -> &'static ([u8; 20], [u8; 32]) {
    static GOOD: OnceLock<([u8; 20], [u8; 32])> = OnceLock::new();
    GOOD.get_or_init(|| {
        let files = Arc::new(InMemory::default());
        files.create_private_dir(Path::new("/data/keys")).expect("memory has room");
        saved().iter().for_each(|(path, bytes)| files.write(path, bytes).expect("memory has room"));
        let keys = load(&files, 1).expect("they are as they were made");
        (keys.rsa_id(), keys.ed25519_id())
    })
}

fn rsa_identity() -> [u8; 20] {
    good().0
}

fn identity() -> [u8; 32] {
    good().1
}

pub fn seeds() -> Vec<Vec<u8>> {
    let whole = (0..).zip(saved()).map(|(which, (_, bytes))| [&[which, 0, 0][..], bytes].concat());
    let state = (0..).zip(saved()).find(|(_, (path, _))| path.ends_with("state"));
    let state = state.map_or(0, |(which, _)| which);
    let rotated = b"LastRotatedOnionKey 2026-11-20 12:00:00\nLastRotatedOnionKey 9999-99-99 00:00:00\n";
    whole.chain([[&[state, 0, 0][..], rotated].concat(), vec![state, 0, 9]]).collect()
}
