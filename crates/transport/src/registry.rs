//! The transports over datagrams that circuits may take between two Heddle relays: a line for each. Offers, torrc,
//! metrics, the lab and the bench know them by this list alone. TLS is not in it, because it is always there.

pub use crate::connections::setup::{Chosen, EndpointSetup, Registered, SetupError, TransportOption};

use crate::{per_circuit, quic, sctp_dtls, shared_tcp, tcp_dtls, tcp_esp};

/// All of them, in the order in which they are told.
pub const TRANSPORTS: &[&Registered] = &[
    &quic::REGISTERED,
    &tcp_dtls::REGISTERED,
    &per_circuit::REGISTERED,
    &tcp_esp::REGISTERED,
    &sctp_dtls::REGISTERED,
    &shared_tcp::TORCHESTRA_REGISTERED,
    &shared_tcp::IMUX_REGISTERED,
];

/// The transport of this name, in any case.
pub fn named(name: &str) -> Option<&'static Registered> {
    TRANSPORTS.iter().find(|line| line.transport.name.eq_ignore_ascii_case(name)).copied()
}

/// The option of this name, in any case, whichever transport has it.
pub fn option(name: &str) -> Option<&'static TransportOption> {
    TRANSPORTS.iter().flat_map(|line| line.options).find(|option| option.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ciphers;
    use heddle_proto::transport::TransportId;
    use heddle_seam::node::StackId;
    use heddle_seam::rng::Seed;
    use heddle_seam::stopwatch::Stopwatch;
    use std::collections::BTreeSet;
    use zeroize::Zeroizing;

    #[test]
    fn names_numbers_and_options_are_given_once() {
        let all = || TRANSPORTS.iter().map(|line| line.transport);
        let names: BTreeSet<_> = all().map(|transport| transport.name).collect();
        let ids: BTreeSet<_> = all().map(|transport| transport.id).collect();
        let count = TRANSPORTS.len();
        assert_eq!((names.len(), ids.len()), (count, count));
        assert!(!names.contains("tls") && !ids.contains(&TransportId::TLS));
        let options: Vec<_> =
            TRANSPORTS.iter().flat_map(|line| line.options).map(|option| option.name).collect();
        assert_eq!(options.iter().collect::<BTreeSet<_>>().len(), options.len());
        assert!(options.iter().all(|name| option(&name.to_lowercase()).is_some()));
    }

    /// Whatever is chosen, each line makes an endpoint of the transport that it names.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "an anchor is needed, whichever it is")]
    fn each_line_makes_its_endpoint_with_each_value_of_each_option() {
        for line in TRANSPORTS.iter() {
            let found = named(&line.transport.name.to_uppercase()).map(|line| line.transport);
            assert_eq!(found, Some(line.transport));
            let values = line
                .options
                .iter()
                .flat_map(|option| option.values.iter().map(|value| (option.name, *value)));
            for chosen in values.map(|value| Chosen::from([value])).chain([Chosen::new()]) {
                for offload in [false, true] {
                    let setup = EndpointSetup {
                        anchor: std::time::Instant::now(),
                        offload,
                        queue_bytes_max: 64 << 20,
                        ciphers: Ciphers::default(),
                        chosen: &chosen,
                        secret: &Zeroizing::new([7; 32]),
                        stack: StackId(0),
                        seed: Seed::from_number(1),
                        stopwatch: Stopwatch::default(),
                    };
                    let endpoint = (line.endpoint)(&setup).expect("its defaults are right");
                    assert_eq!(endpoint.transport(), line.transport);
                }
            }
        }
    }

    /// The page about pairs lists what there is.
    #[test]
    fn the_documented_table_is_this_list() {
        let page = include_str!("../../../docs/reference/pair.md");
        let rows: Vec<&str> =
            page.lines().filter(|line| line.starts_with("| `") && line.contains("` | ")).collect();
        for line in TRANSPORTS.iter() {
            let transport = line.transport;
            let isolation = transport.isolation;
            let scopes = [isolation.ordering, isolation.congestion, isolation.backpressure];
            let scopes = scopes.map(|scope| format!("{scope:?}").to_lowercase()).join(" | ");
            let row = format!("| `{}` | {} | {} | {scopes} |", transport.name, transport.id.0, line.summary);
            assert!(rows.contains(&row.as_str()), "docs/reference/pair.md lacks {row}");
        }
    }
}
