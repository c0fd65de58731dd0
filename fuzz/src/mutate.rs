//! Random and mutated inputs without a fuzzer, the same for every run of a seed: what plain tests
//! throw at the bodies.

/// The longest input, in bytes, that is made from nothing.
const RANDOM_LEN_MAX: u64 = 1200;

/// Runs `body` on each of `seeds`, then on `rounds` inputs that are random or mutated seeds.
pub fn throw(body: fn(&[u8]), seeds: &[Vec<u8>], rounds: u64) {
    seeds.iter().for_each(|seed| body(seed));
    let mut draws = Draws(0x4845_4444_4C45);
    for round in 0..rounds {
        let mut input = match seeds.get(draws.below(seeds.len() as u64 + 1) as usize) {
            Some(seed) => seed.clone(),
            None => {
                let len = draws.below(RANDOM_LEN_MAX);
                (0..len).map(|_| draws.byte()).collect()
            }
        };
        for _ in 0..draws.below(round % 7 + 1) {
            mutate(&mut input, seeds, &mut draws);
        }
        body(&input);
    }
}

/// One small change, of the kinds that parsers get wrong: bits, lengths, cuts, repeats, splices.
fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], draws: &mut Draws) {
    let at = draws.below(input.len() as u64 + 1) as usize;
    match draws.below(7) {
        0 => input.truncate(at),
        1 => input.insert(at, draws.byte()),
        2 => input.extend_from_within(at..),
        3 => {
            let other = &seeds[draws.below(seeds.len() as u64) as usize];
            let from = draws.below(other.len() as u64 + 1) as usize;
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        4 if at < input.len() => {
            input.remove(at);
        }
        5 if at < input.len() => input[at] = [0, 1, 0x7F, 0x80, 0xFF][draws.below(5) as usize],
        _ if at < input.len() => input[at] ^= 1 << draws.below(8),
        _ => {}
    }
}

/// SplitMix64, which is all the randomness that this needs.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }
}
