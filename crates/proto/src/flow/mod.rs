//! Flow control between the ends of a circuit.
