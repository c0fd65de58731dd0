//! What somebody asks who observes the relay, and what he has it load: any line, and any bytes as a module.

use heddle_spe::{LINE_BYTES_MAX, MODULE_BYTES_MAX, Observer, RECORD_MAX, Request, Row};

/// The first byte chooses.
pub fn run(data: &[u8]) {
    let Some((which, data)) = data.split_first() else { return };
    match which % 2 {
        0 => request(&String::from_utf8_lossy(data)),
        // What the module does depends on nothing but what it is shown.
        _ => assert_eq!(looks(data), looks(data)),
    }
}

fn request(line: &str) {
    match line.parse::<Request>() {
        Ok(request) => {
            assert!(line.len() <= LINE_BYTES_MAX);
            assert!(!matches!(request, Request::Load { bytes, .. } if bytes > MODULE_BYTES_MAX));
            assert_eq!(request.to_string().parse::<Request>(), Ok(request));
        }
        // It is told in a line.
        Err(unclear) => assert!(!unclear.to_string().is_empty() && !unclear.to_string().contains('\n')),
    }
}

/// What a module records of some looks, up to the first that ends it.
fn looks(module: &[u8]) -> Vec<Result<Vec<i64>, String>> {
    let mut observer = match Observer::load("mine", module) {
        Ok(observer) => observer,
        Err(refused) => return vec![Err(refused.to_string())],
    };
    let mut records = Vec::new();
    for fields in [&[][..], &[i64::MIN, 0, i64::MAX], &[1; 64]] {
        let record = observer.observe(&Row { index: u64::MAX, time_ns: 7, fields });
        let record = record.map(<[i64]>::to_vec).map_err(|ended| ended.to_string());
        assert!(record.as_ref().is_ok_and(|record| record.len() <= RECORD_MAX) || record.is_err());
        let is_over = record.is_err();
        records.push(record);
        if is_over {
            break;
        }
    }
    records
}

/// Records a number and the first field.
const RECORDS: &[u8] = b"\0asm\x01\0\0\0\
    \x01\x0d\x03\x60\x01\x7e\0\x60\0\0\x60\x01\x7f\x01\x7e\
    \x02\x1a\x02\x03spe\x06record\0\0\x03spe\x05field\0\x02\
    \x03\x02\x01\x01\
    \x07\x0b\x01\x07observe\0\x02\
    \x0a\x0e\x01\x0c\0\x42\x05\x10\0\x41\0\x10\x01\x10\0\x0b";
/// Goes round for ever.
const ENDLESS: &[u8] = b"\0asm\x01\0\0\0\
    \x01\x04\x01\x60\0\0\
    \x03\x02\x01\0\
    \x07\x0b\x01\x07observe\0\0\
    \x0a\x09\x01\x07\0\x03\x40\x0c\0\x0b\x0b";

pub fn seeds() -> Vec<Vec<u8>> {
    let lines = [
        "list",
        "collect show all",
        "watch lanes 7 every 100000000 with mine",
        "watch links at before-write",
        "unwatch 3",
        "load mine 65536",
        "unload mine",
    ];
    let lines = lines.iter().map(|line| [&[0][..], line.as_bytes()].concat());
    lines.chain([RECORDS, ENDLESS].map(|module| [&[1][..], module].concat())).collect()
}
