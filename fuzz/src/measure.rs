//! MEASURE and MEASURED.

use heddle_proto::cell::measure::{LaneMeasured, MEASURE, Measured, is_measure};

pub fn run(data: &[u8]) {
    let _ = is_measure(data);
    let Ok(measured) = Measured::parse(data) else { return };
    let mut encoded = Vec::new();
    measured.encode(&mut encoded);
    assert!(data.starts_with(&encoded));
    for lane in [measured.towards_client, measured.away] {
        assert!(lane.transport().bytes().all(|byte| byte.is_ascii_graphic()), "it is printed");
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut lane = LaneMeasured::default();
    (lane.cells, lane.waited_us, lane.waited_max_us) = (7, 1 << 40, 9);
    let measured =
        Measured { elapsed_ms: 1000, towards_client: lane.over("quic"), away: lane.over("tcp-dtls") };
    let mut encoded = Vec::new();
    measured.encode(&mut encoded);
    vec![MEASURE.to_vec(), encoded]
}
