//! The checksum of SCTP (RFC 9260, appendix A): Castagnoli's polynomial, reflected.
//!
//! It takes eight bytes a step, by eight tables that are made when this is compiled. Where an association may leave it
//! out, it is computed for a handful of packets alone, so the processor's own instruction would gain nothing.

const POLYNOMIAL: u32 = 0x82f6_3b78;

static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = (sum >> 1) ^ (POLYNOMIAL & (0_u32.wrapping_sub(sum & 1)));
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The checksum of these bytes, one part behind the other.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    !parts.iter().fold(!0, |sum, part| update(sum, part))
}

fn update(mut sum: u32, bytes: &[u8]) -> u32 {
    let mut eights = bytes.chunks_exact(8);
    for eight in &mut eights {
        let low = sum ^ u32::from_le_bytes([eight[0], eight[1], eight[2], eight[3]]);
        let of = |table: usize, byte: u32| TABLES[table][(byte & 0xff) as usize];
        sum = of(7, low)
            ^ of(6, low >> 8)
            ^ of(5, low >> 16)
            ^ of(4, low >> 24)
            ^ of(3, eight[4].into())
            ^ of(2, eight[5].into())
            ^ of(1, eight[6].into())
            ^ of(0, eight[7].into());
    }
    for byte in eights.remainder() {
        sum = (sum >> 8) ^ TABLES[0][((sum ^ u32::from(*byte)) & 0xff) as usize];
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, appendix B.4.
    #[test]
    fn it_is_the_one_of_the_rfcs() {
        let rising: Vec<u8> = (0..32).collect();
        let falling: Vec<u8> = (0..32).rev().collect();
        let vectors: [(&[u8], u32); 5] = [
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&rising, 0x46dd_794e),
            (&falling, 0x113f_db5c),
            (b"123456789", 0xe306_9283),
        ];
        for (bytes, sum) in vectors {
            assert_eq!(crc32c(&[bytes]), sum);
            for at in 0..bytes.len() {
                assert_eq!(crc32c(&[&bytes[..at], &bytes[at..]]), sum);
            }
        }
    }
}
