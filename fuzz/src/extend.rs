//! EXTEND2 and EXTENDED2.

use heddle_proto::cell::extend::{Extend2, Extended2};

pub fn run(data: &[u8]) {
    if let Ok(extend) = Extend2::parse(data) {
        let mut body = Vec::new();
        extend.encode(&mut body);
        assert!(data.starts_with(&body));
        if let Ok(target) = extend.target() {
            let canonical = Extend2 { specs: target.specs(), ..extend };
            assert_eq!(canonical.target(), Ok(target));
        }
    }
    if let Ok(extended) = Extended2::parse(data) {
        let mut body = Vec::new();
        extended.encode(&mut body);
        assert!(body.len() <= 498 && data.starts_with(&body));
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut full = vec![5, 0, 6, 127, 0, 0, 1, 0x13, 0x88, 2, 20];
    full.extend_from_slice(&[3; 20]);
    full.extend_from_slice(&[3, 32]);
    full.extend_from_slice(&[4; 32]);
    full.extend_from_slice(&[1, 18]);
    full.extend_from_slice(&[5; 18]);
    full.extend_from_slice(&[99, 2, 1, 2]);
    full.extend_from_slice(&[0, 2, 0, 84]);
    full.extend_from_slice(&[6; 84]);
    let mut extended = vec![0, 64];
    extended.extend_from_slice(&[7; 64]);
    vec![full, extended]
}
