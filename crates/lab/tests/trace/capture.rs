//! Reads captures.

use heddle_utcp::wire::parse;

/// What a capture has.
pub struct Capture {
    /// The names of its interfaces, and what is said of them.
    pub interfaces: Vec<(String, String)>,
    pub packets: Vec<Packet>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub interface: usize,
    pub time_ns: u64,
    pub bytes: Vec<u8>,
    pub len: usize,
    pub flags: Option<u32>,
    pub comment: Option<String>,
}

impl Packet {
    /// Whether all of it is there and its checksums are good.
    pub fn is_good(&self) -> bool {
        let udp = || {
            let sum = |bytes: &[u8]| -> u64 {
                bytes
                    .chunks(2)
                    .map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0)))
                    .sum()
            };
            let folded = |mut sum: u64| {
                while sum > 0xffff {
                    sum = (sum & 0xffff) + (sum >> 16);
                }
                sum
            };
            let (header, datagram) = self.bytes.split_at(20);
            let pseudo = sum(&header[12..]) + 17 + datagram.len() as u64;
            folded(sum(header)) == 0xffff && folded(pseudo + sum(datagram)) == 0xffff
        };
        self.bytes.len() == self.len && (parse(&self.bytes).is_ok() || self.bytes[9] == 17 && udp())
    }
}

impl Capture {
    /// Reads a file of which each block is whole.
    pub fn read(file: &[u8]) -> Capture {
        let mut capture = Capture { interfaces: Vec::new(), packets: Vec::new() };
        let mut rest = file;
        while !rest.is_empty() {
            let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
            let (kind, len) = (word(0), word(4) as usize);
            assert_eq!(word(len - 4) as usize, len);
            let body = &rest[8..len - 4];
            match kind {
                0x0a0d_0d0a => assert_eq!(word(8), 0x1a2b_3c4d, "a section begins so"),
                1 => {
                    assert_eq!(word(8) & 0xffff, 101, "packets begin with their IP header");
                    let options = options(&body[8..]);
                    let text = |code: u16| {
                        let found = options.iter().find(|(of, _)| *of == code).unwrap();
                        String::from_utf8(found.1.clone()).unwrap()
                    };
                    assert!(options.contains(&(9, vec![9])), "times are nanoseconds");
                    capture.interfaces.push((text(2), text(3)));
                }
                6 => {
                    let kept = word(20) as usize;
                    let options = options(&body[20 + kept.next_multiple_of(4)..]);
                    let find = |code: u16| options.iter().find(|(of, _)| *of == code).map(|(_, value)| value);
                    capture.packets.push(Packet {
                        interface: word(8) as usize,
                        time_ns: u64::from(word(12)) << 32 | u64::from(word(16)),
                        bytes: body[20..20 + kept].to_vec(),
                        len: word(24) as usize,
                        flags: find(2).map(|value| u32::from_le_bytes(value[..].try_into().unwrap())),
                        comment: find(1).map(|value| String::from_utf8(value.clone()).unwrap()),
                    });
                }
                kind => panic!("a block of kind {kind}"),
            }
            rest = &rest[len..];
        }
        capture
    }
}

fn options(mut rest: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut found = Vec::new();
    loop {
        let half = |at: usize| u16::from_le_bytes(rest[at..at + 2].try_into().unwrap());
        let (code, len) = (half(0), usize::from(half(2)));
        if code == 0 {
            return found;
        }
        found.push((code, rest[4..4 + len].to_vec()));
        rest = &rest[4 + len.next_multiple_of(4)..];
    }
}
