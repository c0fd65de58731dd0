//! Name servers that lie: that have an address for names which nobody registered, as those of some providers do to show
//! advertisements. Stock Tor looks for them, too, with other numbers (`dns_launch_correctness_checks`).
//!
//! 1. Twelve names that nobody has are asked for. An address that three of them are given is a liar's.
//! 2. From then on an answer of such addresses alone means that there is no such name.
//! 3. When there are any, names that everybody knows are asked for. If most of them are given liars' addresses alone,
//!    nothing can be resolved.

use super::answers::Found;
use heddle_seam::node::{Resolution, ResolveError};
use heddle_seam::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How names end that nobody has. Some servers lie about one of these and not about others.
const ENDINGS: [&str; 4] = ["", ".com", ".net", ".org"];
/// How many names with each of them are asked for.
const NAMES_EACH: usize = 3;
/// How many names a liar's address is given to, at least: two of one somebody could have registered.
const NAMES_OF_A_LIAR: usize = 3;
/// Liars' addresses that are known at once. A look finds no more: twelve names have at most 16 each, and a liar's has
/// three.
const ADDRESSES_MAX: usize = 64;
/// How many of the twelve must be answered, before servers count as honest that gave no liar's address.
const ANSWERS_ENOUGH: usize = 9;

/// What is known of lies.
#[derive(Debug, Default)]
pub(super) struct Liars(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// At most [`ADDRESSES_MAX`].
    addresses: BTreeSet<IpAddr>,
    nothing_is_true: bool,
}

impl Liars {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether even names that everybody knows are lied about.
    pub(super) fn are_all_there_is(&self) -> bool {
        self.lock().nothing_is_true
    }

    /// What is left of an answer without lies.
    pub(super) fn left_of(&self, mut found: Found) -> Found {
        let known = self.lock();
        if let Ok(Resolution::Addresses(addresses)) = &mut found.answer {
            addresses.retain(|(address, _)| !known.addresses.contains(address));
            if addresses.is_empty() {
                found.answer = Err(ResolveError::NotFound);
            }
        }
        found
    }

    /// Looks for lies, and asks one question after the other. `ask` finds what the servers say about a name,
    /// `well_known` are names that everybody knows. What is known stays where too few answers come.
    pub(super) async fn look<A: Future<Output = Found>>(
        &self,
        well_known: &[String],
        rng: &mut Rng,
        ask: impl Fn(String) -> A,
    ) -> Looked {
        let mut answered = 0;
        let mut given: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for ending in ENDINGS.iter().flat_map(|ending| [*ending; NAMES_EACH]) {
            let found = ask(nobodys_name(ending, rng)).await;
            answered += usize::from(is_final(&found));
            addresses(&found).into_iter().for_each(|address| *given.entry(address).or_default() += 1);
        }
        let is_whole = answered >= ANSWERS_ENOUGH;
        let lies = given.into_iter().filter(|(_, names)| *names >= NAMES_OF_A_LIAR);
        let mut lies: BTreeSet<IpAddr> = lies.map(|(address, _)| address).collect();
        if !is_whole {
            let room = ADDRESSES_MAX.saturating_sub(lies.len());
            lies.extend(self.lock().addresses.iter().take(room));
        }
        let (mut untrue, mut unheard) = (0, 0);
        for name in well_known.iter().filter(|_| !lies.is_empty()) {
            let found = ask(name.clone()).await;
            let told = addresses(&found);
            untrue += usize::from(!told.is_empty() && told.is_subset(&lies));
            unheard += usize::from(!is_final(&found));
        }
        let heard = well_known.len() - unheard;
        let is_heard = 2 * heard > well_known.len() || well_known.is_empty();
        let nothing_is_true = if is_heard { 2 * untrue > heard } else { self.are_all_there_is() };
        let is_news = self.note(lies, nothing_is_true);
        Looked { is_news, is_whole: is_whole && is_heard }
    }

    fn note(&self, lies: BTreeSet<IpAddr>, nothing_is_true: bool) -> bool {
        let mut known = self.lock();
        for address in lies.difference(&known.addresses) {
            log::warn!(
                "The name servers have the address {address} for names that do not exist, so it counts as no answer"
            );
        }
        if nothing_is_true && !known.nothing_is_true {
            log::warn!(
                "The name servers have such addresses for well-known names, too (ServerDNSTestAddresses), so the relay \
                 is no exit until others are in /etc/resolv.conf, or in what ServerDNSResolvConfFile names"
            );
        }
        let is_news = known.addresses != lies || known.nothing_is_true != nothing_is_true;
        *known = Known { addresses: lies, nothing_is_true };
        is_news
    }
}

/// What a look gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Looked {
    /// Whether anything has changed.
    pub(super) is_news: bool,
    /// Whether enough answers came.
    pub(super) is_whole: bool,
}

/// Whether the servers said something, and be it that there is no such name.
fn is_final(found: &Found) -> bool {
    !matches!(found.answer, Err(ResolveError::Transient))
}

/// A name of 8 to 16 random letters, which nobody has registered.
fn nobodys_name(ending: &str, rng: &mut Rng) -> String {
    let len = 8 + rng.below(9);
    let letters = (0..len).map(|_| char::from(b'a' + rng.below(26) as u8));
    letters.chain(ending.chars()).collect()
}

fn addresses(found: &Found) -> BTreeSet<IpAddr> {
    match &found.answer {
        Ok(Resolution::Addresses(addresses)) => addresses.iter().map(|(address, _)| *address).collect(),
        Ok(Resolution::Name(..)) | Err(_) => BTreeSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_seam::rng::Seed;
    use tokio::runtime::Builder;

    const WELL_KNOWN: [&str; 3] = ["one.example", "two.example", "three.example"];

    fn answer(last: &[u8]) -> Found {
        let addresses: Vec<_> = last.iter().map(|last| (IpAddr::from([192, 0, 2, *last]), 60)).collect();
        let answer = match addresses.is_empty() {
            true => Err(ResolveError::NotFound),
            false => Ok(Resolution::Addresses(addresses)),
        };
        Found { answer, ttls_s: vec![60] }
    }

    /// Looks where servers say this, and all answers come; returns whether that was news.
    fn look(liars: &Liars, says: impl Fn(&str) -> Found) -> bool {
        let Looked { is_news, is_whole } = look_once(liars, says);
        assert!(is_whole);
        is_news
    }

    fn look_once(liars: &Liars, says: impl Fn(&str) -> Found) -> Looked {
        let runtime = Builder::new_current_thread().build().unwrap();
        let mut rng = Seed::from_number(1).rng();
        let ask = |name: String| std::future::ready(says(&name));
        runtime.block_on(liars.look(&WELL_KNOWN.map(str::to_owned), &mut rng, ask))
    }

    #[test]
    fn honest_servers_change_nothing() {
        let liars = Liars::default();
        let says = |name: &str| answer(if WELL_KNOWN.contains(&name) { &[1] } else { &[] });
        assert!(!look(&liars, says));
        assert_eq!(liars.left_of(answer(&[1])), answer(&[1]));
        assert!(!liars.are_all_there_is());
    }

    #[test]
    fn an_address_of_names_that_nobody_has_is_no_answer() {
        // About all names, or about those with one ending, with one address or with the other.
        let all = |_: &str| answer(&[7, 8]);
        let com = |name: &str| answer(if name.ends_with(".com") { &[7, 8] } else { &[] });
        let lies: [&dyn Fn(&str) -> Found; 2] = [&all, &com];
        for lie in lies {
            let liars = Liars::default();
            let says = |name: &str| if WELL_KNOWN.contains(&name) { answer(&[1]) } else { lie(name) };
            assert!(look(&liars, says) && !look(&liars, says));
            assert_eq!(liars.left_of(answer(&[8])), answer(&[]));
            assert_eq!(liars.left_of(answer(&[7, 1])), answer(&[1]));
            assert!(!liars.are_all_there_is());
            // They were mended.
            assert!(look(&liars, |_| answer(&[])));
            assert_eq!(liars.left_of(answer(&[8])), answer(&[8]));
        }
    }

    #[test]
    fn servers_that_lie_about_most_of_what_everybody_knows_have_no_answers() {
        for (lied_about, broken) in [(1, false), (2, true)] {
            let liars = Liars::default();
            let says = |name: &str| {
                let is_true = WELL_KNOWN[lied_about..].contains(&name);
                answer(if is_true { &[1] } else { &[7] })
            };
            assert!(look(&liars, says));
            assert_eq!(liars.are_all_there_is(), broken);
        }
    }

    /// A name server that cannot be reached is no honest one.
    #[test]
    fn silence_acquits_nobody() {
        let liars = Liars::default();
        let silent = |_: &str| Found::transient();
        assert_eq!(look_once(&liars, silent), Looked { is_news: false, is_whole: false });
        assert!(look(&liars, |_| answer(&[7])));
        assert!(liars.are_all_there_is());
        assert_eq!(look_once(&liars, silent), Looked { is_news: false, is_whole: false });
        assert!(liars.are_all_there_is());
        assert_eq!(liars.left_of(answer(&[7])), answer(&[]));
        // It answers about well-known names again, and about two endings of others.
        let half = |name: &str| match name {
            name if WELL_KNOWN.contains(&name) => answer(&[1]),
            name if name.ends_with(".com") || name.ends_with(".net") => answer(&[]),
            _ => Found::transient(),
        };
        assert_eq!(look_once(&liars, half), Looked { is_news: true, is_whole: false });
        assert!(!liars.are_all_there_is());
        assert_eq!(liars.left_of(answer(&[7])), answer(&[]));
    }

    #[test]
    fn well_known_names_are_judged_by_what_is_heard_of_most() {
        // Of four: so many lies, so many silent, and what is known afterwards, if lies about all were known before.
        for (untrue, silent, broken, is_whole) in
            [(2, 2, true, false), (2, 1, true, true), (1, 1, false, true), (0, 2, true, false)]
        {
            let liars = Liars::default();
            let names = ["a.example", "b.example", "c.example", "d.example"].map(str::to_owned);
            let look = |says: &dyn Fn(&str) -> Found| {
                let runtime = Builder::new_current_thread().build().unwrap();
                let ask = |name: String| std::future::ready(says(&name));
                runtime.block_on(liars.look(&names, &mut Seed::from_number(3).rng(), ask))
            };
            assert!(look(&|_| answer(&[7])).is_news && liars.are_all_there_is());
            let looked = look(&|name| match names.iter().position(|known| known == name) {
                Some(place) if place >= untrue + silent => answer(&[1]),
                Some(place) if place >= untrue => Found::transient(),
                _ => answer(&[7]),
            });
            assert_eq!((liars.are_all_there_is(), looked.is_whole), (broken, is_whole), "{untrue} {silent}");
        }
    }

    #[test]
    fn no_more_addresses_are_known_than_one_look_finds() {
        let liars = Liars::default();
        for look in 0..100 {
            let says = |name: &str| match name.ends_with(".com") {
                true => answer(&[2 * look, 2 * look + 1]),
                false => Found::transient(),
            };
            look_once(&liars, says);
            assert!(liars.lock().addresses.len() <= ADDRESSES_MAX);
        }
    }

    #[test]
    fn names_that_nobody_has_are_plain_and_differ() {
        let mut rng = Seed::from_number(2).rng();
        let names: BTreeSet<String> = (0..100).map(|_| nobodys_name(".com", &mut rng)).collect();
        assert_eq!(names.len(), 100);
        for name in names {
            let label = name.strip_suffix(".com").unwrap();
            assert!((8..=16).contains(&label.len()) && label.bytes().all(|byte| byte.is_ascii_lowercase()));
        }
    }
}
