//! Who is in the consensus, read through a control port.

use crate::control::Control;
use crate::error::Result;

/// One relay's entry in a consensus (dir-spec 3.4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Its nickname.
    pub nickname: String,
    /// Its RSA identity's fingerprint, 40 upper-case hexadecimal digits.
    pub fingerprint: String,
    /// Its flags, such as `Running`.
    pub flags: Vec<String>,
}

impl Listing {
    /// Whether a client may build circuits over it.
    pub fn usable(&self) -> bool {
        ["Running", "Valid"].iter().all(|wanted| self.flags.iter().any(|flag| flag == wanted))
    }
}

/// The entries of the consensus that this Tor has; none when it has no consensus.
pub(super) fn listings(control: &mut Control) -> Result<Vec<Listing>> {
    Ok(parse(&control.get_info("ns/all")?))
}

fn parse(text: &str) -> Vec<Listing> {
    let mut listings: Vec<Listing> = Vec::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        match words.next() {
            Some("r") => {
                let nickname = words.next().unwrap_or_default().to_owned();
                let fingerprint = words.next().and_then(hex_of_base64).unwrap_or_default();
                listings.push(Listing { nickname, fingerprint, flags: Vec::new() });
            }
            Some("s") => {
                let flags = words.map(str::to_owned).collect();
                if let Some(listing) = listings.last_mut() {
                    listing.flags = flags;
                }
            }
            _ => {}
        }
    }
    listings
}

/// A SHA-1 digest in base64 without padding as upper-case hexadecimal, or `None` if it is not one.
fn hex_of_base64(text: &str) -> Option<String> {
    let mut bits: u32 = 0;
    let mut pending = 0;
    let mut hex = String::with_capacity(40);
    for symbol in text.bytes() {
        let value = match symbol {
            b'A'..=b'Z' => symbol - b'A',
            b'a'..=b'z' => symbol - b'a' + 26,
            b'0'..=b'9' => symbol - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        pending += 6;
        if pending >= 8 {
            pending -= 8;
            hex += &format!("{:02X}", bits >> pending & 0xFF);
        }
    }
    (text.len() == 27).then_some(hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_fingerprints_and_flags() {
        let text = "r exit1 AAECAwQFBgcICQoLDA0ODxAREhM zzzzzzzzzzzzzzzzzzzzzzzzzzz 2038-01-01 00:00:00 \
                    127.0.0.1 10005 0\n\
                    s Exit Fast Running Valid\nw Bandwidth=0\nr bad !! x\ns Valid";
        let listings = parse(text);
        assert_eq!(listings[0].nickname, "exit1");
        assert_eq!(listings[0].fingerprint, "000102030405060708090A0B0C0D0E0F10111213");
        assert!(listings[0].usable());
        assert_eq!((&*listings[1].fingerprint, listings[1].usable()), ("", false));
    }
}
