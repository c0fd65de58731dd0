//! Captures of wires, one for each, in the format of draft-ietf-opsawg-pcapng, as bytes for whoever writes them.
//!
//! A wire's capture has two interfaces for its ends, named by their hosts: what a host sent is outbound at its end
//! before anything happened to it, what reached a host is inbound at its end. A third one, `dropped`, has what was
//! lost, when it was lost, with a comment that says why. So every packet is in it twice. Packets are as long as on the
//! wire.

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
/// Packets begin with their IP header (LINKTYPE_RAW).
const LINKTYPE_RAW: u16 = 101;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
const COMMENT: u16 = 1;
/// The name of the interface of what did not arrive, and its number behind those of the two ends.
const DROPPED: (&str, u32) = ("dropped", 2);

/// At which end of a wire, and which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Leaving the host that sent it.
    Sent,
    /// Reaching the host that it was for.
    Arrived,
    /// The same, though the other end never sent it: somebody on the path made it.
    Forged,
    /// Nowhere any more, for this reason.
    Dropped(&'static str),
}

/// A packet, or its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// What is kept of it, from its IP header on.
    pub bytes: &'a [u8],
    /// How long it was.
    pub len_bytes: usize,
}

impl<'a> Captured<'a> {
    /// All of a packet.
    pub fn whole(bytes: &'a [u8]) -> Self {
        Captured { bytes, len_bytes: bytes.len() }
    }
}

/// What the file of the wire between two hosts is called: what could be a path is replaced.
pub fn file_name(hosts: [&str; 2]) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let safely = |host: &str| host.chars().map(|c| if safe(c) { c } else { '_' }).collect::<String>();
    format!("{}.pcapng", hosts.map(safely).join("-"))
}

/// Appends what the capture of the wire between two hosts begins with.
pub fn begin(hosts: [&str; 2], out: &mut Vec<u8>) {
    let mut body = Vec::new();
    body.extend(0x1a2b_3c4d_u32.to_le_bytes());
    body.extend(1u16.to_le_bytes());
    body.extend(0u16.to_le_bytes());
    body.extend((-1i64).to_le_bytes());
    block(SECTION_HEADER, &body, out);
    let [one, other] = hosts;
    interface(one, &format!("the wire of {one} and {other}, at {one}"), out);
    interface(other, &format!("the wire of {one} and {other}, at {other}"), out);
    interface(DROPPED.0, &format!("what did not arrive on the wire of {one} and {other}"), out);
}

fn interface(name: &str, about: &str, out: &mut Vec<u8>) {
    let mut body = Vec::new();
    body.extend(u32::from(LINKTYPE_RAW).to_le_bytes());
    body.extend(0u32.to_le_bytes());
    option(IF_NAME, name.as_bytes(), &mut body);
    option(IF_DESCRIPTION, about.as_bytes(), &mut body);
    // Times count nanoseconds.
    option(IF_TSRESOL, &[9], &mut body);
    option(0, &[], &mut body);
    block(INTERFACE_DESCRIPTION, &body, out);
}

/// Appends a packet that the second of the two hosts sent, or the first, at this time.
pub fn packet(place: Place, is_of_second: bool, time_ns: u64, packet: Captured<'_>, out: &mut Vec<u8>) {
    let number = match place {
        Place::Sent => u32::from(is_of_second),
        Place::Arrived | Place::Forged => u32::from(!is_of_second),
        Place::Dropped(_) => DROPPED.1,
    };
    let Captured { bytes, len_bytes } = packet;
    let mut body = Vec::with_capacity(bytes.len() + 40);
    let (time_high, time_low) = ((time_ns >> 32) as u32, time_ns as u32);
    for word in [number, time_high, time_low, bytes.len() as u32, len_bytes as u32] {
        body.extend(word.to_le_bytes());
    }
    body.extend(bytes);
    pad(&mut body);
    match place {
        Place::Sent => option(EPB_FLAGS, &OUTBOUND.to_le_bytes(), &mut body),
        Place::Arrived | Place::Forged => option(EPB_FLAGS, &INBOUND.to_le_bytes(), &mut body),
        Place::Dropped(_) => {}
    }
    match place {
        Place::Dropped(reason) => option(COMMENT, reason.as_bytes(), &mut body),
        Place::Forged => option(COMMENT, b"forged", &mut body),
        Place::Sent | Place::Arrived => {}
    }
    option(0, &[], &mut body);
    block(ENHANCED_PACKET, &body, out);
}

fn block(kind: u32, body: &[u8], out: &mut Vec<u8>) {
    let len = (body.len() as u32 + 12).to_le_bytes();
    out.extend(kind.to_le_bytes());
    out.extend(len);
    out.extend(body);
    out.extend(len);
}

fn option(code: u16, value: &[u8], body: &mut Vec<u8>) {
    // Whoever names hosts may name them at any length.
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad(body);
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_say_their_length_at_both_ends() {
        let mut out = Vec::new();
        begin(["a", "bb"], &mut out);
        let beginning = Captured { bytes: &[0x45, 0, 0], len_bytes: 9 };
        packet(Place::Arrived, false, 0x1_0000_0002, beginning, &mut out);
        let mut rest = &out[..];
        let mut kinds = Vec::new();
        while !rest.is_empty() {
            let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
            let len = word(4) as usize;
            assert_eq!(word(len - 4) as usize, len);
            kinds.push(word(0));
            if word(0) == ENHANCED_PACKET {
                assert_eq!((1..6).map(|n| word(4 + 4 * n)).collect::<Vec<_>>(), [1, 1, 2, 3, 9]);
                assert_eq!(rest[28..32], [0x45, 0, 0, 0]);
            }
            rest = &rest[len..];
        }
        let before = out.len();
        packet(Place::Dropped("loss"), true, 0, Captured::whole(&[0x45]), &mut out);
        assert_eq!(out[before + 8], 2);
        assert_eq!(out[before + 32..before + 40], *b"\x01\0\x04\0loss");
        let interfaces = [INTERFACE_DESCRIPTION; 3];
        assert_eq!(kinds, [&[SECTION_HEADER], &interfaces[..], &[ENHANCED_PACKET]].concat());
    }

    #[test]
    fn packets_are_at_the_end_of_who_sent_or_got_them() {
        let at = |place, is_of_second| {
            let mut out = Vec::new();
            packet(place, is_of_second, 0, Captured::whole(&[0x45]), &mut out);
            out[8]
        };
        assert_eq!([at(Place::Sent, false), at(Place::Sent, true)], [0, 1]);
        assert_eq!([at(Place::Arrived, false), at(Place::Forged, true)], [1, 0]);
    }

    #[test]
    fn no_name_leads_out_of_the_directory() {
        assert_eq!(file_name(["a", "../b"]), "a-.._b.pcapng");
    }
}
