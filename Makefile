# Two commands matter: `make demo` and `make test`; `make bench` measures what relays cost. Each installs what it needs first,
# Rust's stable toolchain too where the one that is there is missing or too old and the system's packages have rustup.

# Where rustup puts cargo, which a shell that is older than it does not know.
export PATH := $(HOME)/.cargo/bin:$(PATH)

.PHONY: bench demo test test-long lint clean setup hyperqueue

demo: setup
	cargo run --release --locked --package heddle --quiet -- demo

bench: setup
	cargo run --release --locked --package heddle --quiet -- bench

# A hang must not last for ever: the suite takes some 6 to 13 minutes on two idle cores. At a terminal the script has to stay
# where Ctrl-C reaches it; it ends its tests itself.
test: setup hyperqueue lint
	timeout $$(test -t 0 && echo --foreground) -k 30 3000 scripts/test

# The tests that `make test` leaves out because they take minutes each. The two of a bound that is missed, over QUIC and over tcp-dtls, are
# run by name, because they would fail each time (docs/reference/quic.md, "What it does not do").
test-long: setup
	cargo test --release --workspace --locked --no-fail-fast -- --ignored --skip a_circuit_gets_no_more_than_its_share_beside_a_hundred_of_another_connection

lint: setup
	cargo fmt --all --check
	scripts/lint

clean:
	cargo clean

setup:
	@scripts/setup

# For one test, which does without where it cannot be had.
hyperqueue:
	@scripts/hyperqueue
