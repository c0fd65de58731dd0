//! Links that do not encrypt, for simulations of many hosts: what TLS, QUIC and DTLS send is as long as ever and takes
//! as many round trips, but its bytes are copied, and its tag is a constant.
//!
//! Handshakes are real: keys are agreed on and signatures made and checked. Only what comes of the keys is not used.
//! Sealed bytes of anybody else are refused by their tag; whoever knows the constant may send whatever he likes.
//!
//! The program of a relay does not have this crate, and cannot be told to use it; a test of `tidy` and one of the
//! program's bytes hold that.

mod dtls;
mod quic;
mod tls;

use heddle_transport::Ciphers;

/// As many bytes as the tags have of all suites that links choose from (RFC 8446, section 5.2; RFC 9001, section 5.3;
/// RFC 9147, section 4.2.1).
const TAG_LEN: usize = 16;

/// Stands where a tag would.
const TAG: [u8; TAG_LEN] = *b"null cryptograph";

/// What links are given that are not to encrypt. Of a network all have it, or none.
pub fn ciphers() -> Ciphers {
    Ciphers { tls: tls::provider, dtls: dtls::provider }
}

/// How long what was sealed is without its tag; `None` if it is nothing of ours.
fn opened_len(sealed: &[u8]) -> Option<usize> {
    let len = sealed.len().checked_sub(TAG_LEN)?;
    (sealed[len..] == TAG).then_some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bears_no_tag_of_ours_is_refused() {
        let sealed = [b"cell", &TAG[..]].concat();
        assert_eq!(opened_len(&sealed), Some(4));
        assert_eq!(opened_len(&TAG), Some(0));
        assert_eq!(opened_len(&sealed[..sealed.len() - 1]), None);
        assert_eq!(opened_len(&TAG[1..]), None);
        assert_eq!(opened_len(&[]), None);
    }
}
