//! A `DataDirectory` serves Heddle and stock Tor alike, and keeps its identity between them.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a real Tor has real sockets and time"
)]

mod stock;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use base64ct::{Base64Unpadded, Encoding};
use heddle_dir::bandwidth::BandwidthHistory;
use heddle_dir::files::Disk;
use heddle_dir::keys::{
    DataDirectoryLock, KeyError, KeyOptions, OnionKeyLifetimes, RelayKeys, SigningRenewal,
};
use heddle_seam::rng::{Rng, Seed};
use stock::{Scratch, list_fingerprint, start_and_stop};

const DAY_S: u64 = 86_400;

fn now_unix_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_secs()
}

fn rng(number: u64) -> Rng {
    Seed::from_number(number).rng()
}

fn load(path: &Path, now_unix_s: u64, seed: u64) -> Result<RelayKeys, KeyError> {
    RelayKeys::load_or_create(KeyOptions::new(path, "heddle"), now_unix_s, &mut rng(seed))
}

/// Every file of the key directory with its bytes.
fn key_files(path: &Path) -> BTreeMap<String, Vec<u8>> {
    fs::read_dir(path.join("keys"))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect()
}

#[test]
fn stock_tor_takes_up_what_heddle_made() {
    let scratch = Scratch::new("made-by-heddle");
    let keys = load(scratch.path(), now_unix_s(), 1).unwrap();
    let before = key_files(scratch.path());
    assert_eq!(before.len(), 7);
    assert_eq!(list_fingerprint(scratch.path(), "heddle", "rsa"), keys.fingerprint());
    assert_eq!(
        list_fingerprint(scratch.path(), "heddle", "ed25519"),
        Base64Unpadded::encode_string(&keys.ed25519_id())
    );
    assert_eq!(key_files(scratch.path()), before, "stock tor replaced a key");
}

#[test]
fn heddle_takes_up_what_stock_tor_made() {
    let scratch = Scratch::new("made-by-stock");
    let fingerprint = list_fingerprint(scratch.path(), "heddle", "rsa");
    let ed25519 = list_fingerprint(scratch.path(), "heddle", "ed25519");
    let before = key_files(scratch.path());
    let files = ["fingerprint", "fingerprint-ed25519"];
    let shown = files.map(|name| fs::read(scratch.path().join(name)).unwrap());

    let keys = load(scratch.path(), now_unix_s(), 2).unwrap();
    assert_eq!(keys.fingerprint(), fingerprint);
    assert_eq!(Base64Unpadded::encode_string(&keys.ed25519_id()), ed25519);
    assert_eq!(key_files(scratch.path()), before, "Heddle replaced a key");

    for name in files {
        fs::remove_file(scratch.path().join(name)).unwrap();
    }
    load(scratch.path(), now_unix_s(), 3).unwrap();
    assert_eq!(files.map(|name| fs::read(scratch.path().join(name)).unwrap()), shown);
}

#[test]
fn what_was_carried_goes_to_stock_tor_and_back() {
    let scratch = Scratch::new("history");
    load(scratch.path(), now_unix_s(), 9).unwrap();
    let start = now_unix_s() - 3600;
    let mut history = BandwidthHistory::new(start);
    for second in 1..=60 {
        history.sample(start + second, 102_400 * second, 204_800 * second);
    }
    history.save(&Disk, scratch.path()).unwrap();

    start_and_stop(scratch.path());
    let state = fs::read_to_string(scratch.path().join("state")).unwrap();
    assert!(state.contains("TorVersion Tor 0.4"), "stock tor wrote it: {state}");
    let back = BandwidthHistory::load(&Disk, scratch.path(), now_unix_s()).unwrap();
    assert_eq!((back.observed(), history.observed()), (102_400, 102_400), "{state}");
}

#[test]
fn files_are_private_and_the_directory_is_locked() {
    let scratch = Scratch::new("private");
    let data = scratch.path().join("data");
    let _lock = DataDirectoryLock::take(&data).unwrap();
    load(&data, now_unix_s(), 4).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data), 0o700);
    assert_eq!(mode(&data.join("keys")), 0o700);
    for name in key_files(&data).keys() {
        assert_eq!(mode(&data.join("keys").join(name)), 0o600, "{name}");
    }
    let error = DataDirectoryLock::take(&data).unwrap_err().to_string();
    assert!(error.contains("lock is held by another process"), "{error}");
}

#[test]
fn the_master_secret_may_be_away() {
    let scratch = Scratch::new("offline");
    let now = now_unix_s();
    let first = load(scratch.path(), now, 5).unwrap();
    let secret = scratch.path().join("keys/ed25519_master_id_secret_key");
    let kept = fs::read(&secret).unwrap();
    fs::remove_file(&secret).unwrap();

    let mut keys = load(scratch.path(), now, 6).unwrap();
    assert_eq!(keys.ed25519_id(), first.ed25519_id());
    assert_eq!(
        list_fingerprint(scratch.path(), "heddle", "ed25519"),
        Base64Unpadded::encode_string(&keys.ed25519_id())
    );
    let lifetimes = OnionKeyLifetimes::default();
    let renew = |keys: &mut RelayKeys, days| keys.renew(now + days * DAY_S, lifetimes, &mut rng(7)).signing;
    assert_eq!(renew(&mut keys, 22).unwrap(), SigningRenewal::NotDue);
    assert_eq!(renew(&mut keys, 24).unwrap(), SigningRenewal::MasterKeyAbsent);
    assert_eq!(renew(&mut keys, 30).unwrap(), SigningRenewal::MasterKeyAbsent);
    let error = renew(&mut keys, 31).unwrap_err().to_string();
    assert!(error.contains("tor --keygen"), "{error}");
    let error = load(scratch.path(), now + 31 * DAY_S, 8).unwrap_err();
    assert!(matches!(error, KeyError::MasterKeyAbsent { .. }), "{error}");

    fs::write(&secret, kept).unwrap();
    assert_eq!(renew(&mut keys, 31).unwrap(), SigningRenewal::Renewed);
    assert_eq!(keys.ed25519_id(), first.ed25519_id());
    assert!(keys.signing_expires_unix_s() >= now + 61 * DAY_S);
}

/// Whoever is asked for a signing key a week before the end need not wait six days for it to be taken.
#[test]
fn a_signing_key_that_is_brought_is_taken_within_the_week() {
    let scratch = Scratch::new("brought");
    let now = now_unix_s();
    let first = load(scratch.path(), now, 5).unwrap();
    let keys_dir = scratch.path().join("keys");
    let signing = ["ed25519_signing_secret_key", "ed25519_signing_cert"];
    let old = signing.map(|name| fs::read(keys_dir.join(name)).unwrap());
    // What the operator makes elsewhere, on the day on which it is asked for.
    for name in signing {
        fs::remove_file(keys_dir.join(name)).unwrap();
    }
    load(scratch.path(), now + 24 * DAY_S, 6).unwrap();
    let new = signing.map(|name| fs::read(keys_dir.join(name)).unwrap());
    let write = |files: &[Vec<u8>; 2]| {
        signing.iter().zip(files).for_each(|(name, bytes)| fs::write(keys_dir.join(name), bytes).unwrap());
    };
    write(&old);
    fs::remove_file(keys_dir.join("ed25519_master_id_secret_key")).unwrap();
    let mut keys = load(scratch.path(), now + 23 * DAY_S, 7).unwrap();
    let lifetimes = OnionKeyLifetimes::default();
    let mut renew = |days| keys.renew(now + days * DAY_S, lifetimes, &mut rng(8)).signing.unwrap();
    assert_eq!(renew(24), SigningRenewal::MasterKeyAbsent);
    write(&new);
    assert_eq!(renew(24), SigningRenewal::Renewed);
    assert_eq!(renew(24), SigningRenewal::NotDue);
    assert_eq!(keys.ed25519_id(), first.ed25519_id());
    assert!(keys.signing_expires_unix_s() > now + 50 * DAY_S);
}

#[test]
fn onion_keys_rotate_and_the_former_are_kept_a_while() {
    let scratch = Scratch::new("rotate");
    let now = 1_700_000_000;
    let lifetimes = OnionKeyLifetimes::default();
    let mut keys = load(scratch.path(), now, 9).unwrap();
    let [first] = &keys.ntor_keys()[..] else { panic!("one key at first") };
    let first = first.public;

    let renewal = keys.renew(now + 27 * DAY_S, lifetimes, &mut rng(10));
    assert!(!renewal.onion_rotated.unwrap() && !renewal.onion_expired.unwrap());
    let rotated = now + 28 * DAY_S;
    assert!(keys.renew(rotated, lifetimes, &mut rng(11)).onion_rotated.unwrap());
    let publics =
        |keys: &RelayKeys| -> Vec<[u8; 32]> { keys.ntor_keys().iter().map(|key| key.public).collect() };
    let second = publics(&keys)[0];
    assert_eq!(publics(&keys), [second, first]);

    // A restart keeps both keys and the time.
    let mut keys = load(scratch.path(), rotated + DAY_S, 12).unwrap();
    assert_eq!(publics(&keys), [second, first]);
    assert!(scratch.path().join("keys/secret_onion_key.old").exists());
    let renewal = keys.renew(rotated + 7 * DAY_S, lifetimes, &mut rng(13));
    assert!(renewal.onion_expired.unwrap() && !renewal.onion_rotated.unwrap());
    assert_eq!(publics(&keys), [second]);
    assert_eq!(key_files(scratch.path()).len(), 7);
}

#[test]
fn onion_keys_rotate_after_a_clock_that_was_ahead_was_set_back() {
    let scratch = Scratch::new("clock-set-back");
    let (ahead, now) = (1_800_000_000, 1_700_000_000);
    let lifetimes = OnionKeyLifetimes::default();
    let mut keys = load(scratch.path(), ahead, 16).unwrap();
    assert!(!keys.renew(now, lifetimes, &mut rng(17)).onion_rotated.unwrap());
    assert!(!keys.renew(now + 27 * DAY_S, lifetimes, &mut rng(18)).onion_rotated.unwrap());
    assert!(keys.renew(now + 28 * DAY_S, lifetimes, &mut rng(19)).onion_rotated.unwrap());
}

#[test]
fn a_broken_file_is_named_with_what_mends_it() {
    let scratch = Scratch::new("broken");
    let now = now_unix_s();
    let identity = load(scratch.path(), now, 14).unwrap().ed25519_id();
    let whole = key_files(scratch.path());
    let file = |name: &str| scratch.path().join("keys").join(name);
    for (name, kept) in &whole {
        let mut flipped = kept.clone();
        flipped[kept.len() / 2] ^= 0xff;
        for broken in [&kept[..40], &[&kept[..], &[0; 10_000]].concat(), &flipped] {
            for (name, bytes) in &whole {
                fs::write(file(name), bytes).unwrap();
            }
            fs::write(file(name), broken).unwrap();
            let found = match &name[..] {
                // It is not read before a new signing key needs it.
                "ed25519_master_id_secret_key" => {
                    assert_eq!(load(scratch.path(), now, 15).unwrap().ed25519_id(), identity);
                    assert_eq!(fs::read(file(name)).unwrap(), broken, "nothing writes a new one");
                    load(scratch.path(), now + 31 * DAY_S, 15)
                }
                _ => load(scratch.path(), now, 15),
            };
            if name == "ed25519_signing_secret_key" && broken == flipped {
                // A good key that its certificate does not name: the master key certifies a new one.
                assert_eq!(found.unwrap().ed25519_id(), identity);
                assert!(![kept, &flipped].contains(&&fs::read(file(name)).unwrap()));
                assert_ne!(fs::read(file("ed25519_signing_cert")).unwrap(), whole["ed25519_signing_cert"]);
                continue;
            }
            let error = found.expect_err(name).to_string();
            assert!(error.contains(&format!("keys/{name}")) && error.ends_with('.'), "{name}: {error}");
        }
    }
}
