//! The body of a fuzz target: what name servers say, as the library reads it, and what clients are told of that.

use super::answers::{Answers, Found};
use super::{NAME_LEN_MAX, addresses_found, name_found};
use heddle_seam::node::{Query, Resolution, ResolveError};
use heddle_seam::rng::Seed;
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{self, DnsResponse};
use hickory_resolver::proto::rr::{Name, RecordType};
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// Times to live that clients may be told.
const TOLD_S: RangeInclusive<u32> = 60..=3840;

/// An answer to each of two questions. No client is told more than fits, nor of IPv6 where IPv4 was asked for; and what
/// the first one is told all others are.
pub fn fuzz_answers(to_first: &[u8], to_second: &[u8]) {
    if let Some(v4) = read(to_first, RecordType::A) {
        let query = || Query::Forward(String::from("a.test"));
        let asked_once = addresses_found(v4.clone(), None);
        if let Ok(Resolution::Addresses(addresses)) = &asked_once.answer {
            assert!(addresses.iter().all(|(address, _)| address.is_ipv4()));
        }
        check(query, asked_once);
        check(query, addresses_found(v4, read(to_second, RecordType::AAAA)));
    }
    if let Some(name) = read(to_first, RecordType::PTR) {
        check(|| Query::Reverse(IpAddr::from([192, 0, 2, 1])), name_found(name));
    }
}

/// As the library does, but for names that stand for others; nothing where it takes the bytes for no answer.
fn read(bytes: &[u8], kind: RecordType) -> Option<Result<Lookup, NetError>> {
    let response = DnsResponse::from_buffer(bytes.to_vec()).ok()?;
    let response = match DnsError::from_response(response) {
        Ok(response) => response,
        Err(error) => return Some(Err(error.into())),
    };
    let question = op::Query::query(Name::root(), kind);
    Some(Ok(Lookup::new_with_max_ttl(question, response.into_message().answers)))
}

fn check(query: impl Fn() -> Query, found: Found) {
    match &found.answer {
        Ok(Resolution::Addresses(addresses)) => {
            assert!((1..=Resolution::MAX_ANSWERS).contains(&addresses.len()));
            assert!(addresses.is_sorted_by_key(|(address, _)| address.is_ipv6()), "IPv4 comes first");
        }
        Ok(Resolution::Name(name, _)) => assert!((1..=NAME_LEN_MAX).contains(&name.len())),
        Err(_) => {}
    }
    let answers = Answers::new(1);
    let told = answers.put(query(), found, &mut Seed::from_number(1).rng());
    match &told {
        Ok(Resolution::Addresses(addresses)) => {
            assert!(addresses.iter().all(|(_, ttl_s)| TOLD_S.contains(ttl_s)));
        }
        Ok(Resolution::Name(_, ttl_s)) => assert!(TOLD_S.contains(ttl_s)),
        Err(_) => {}
    }
    let is_kept = told != Err(ResolveError::Transient);
    assert_eq!(answers.get(&query()), is_kept.then_some(told));
}
