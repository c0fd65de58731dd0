# Two commands matter: `make demo` and `make test`; `make bench` measures what relays cost. Each installs what it needs first,
# Rust's stable toolchain too where the one that is there is missing or too old and the system's packages have rustup.

# Where rustup puts cargo, which a shell that is older than it does not know.
export PATH := $(HOME)/.cargo/bin:$(PATH)

.PHONY: bench demo test test-long lint clean setup hyperqueue

demo: setup
	cargo run --release --locked --package heddle --quiet -- demo

bench: setup
	cargo run --release --locked --package heddle --quiet -- bench

# A hang must not last for ever: the suite takes some 12 minutes on two slow cores, and its build 15. At a terminal the script has to stay
# where Ctrl-C reaches it; it ends its tests itself.
test: setup hyperqueue lint
	timeout $$(test -t 0 && echo --foreground) -k 30 5000 scripts/test

# The tests that `make test` leaves out because they take minutes each, of the suites that have some. The two of a bound that is missed, over
# QUIC and over tcp-dtls, would fail each time (docs/reference/quic.md, "What it does not do"), and are run by name.
test-long: setup
	cargo test --release --locked --no-fail-fast -p heddle -p heddle-network -p heddle-relay -p heddle-utcp \
	    --test demo --test lab --test killed --test four_shards --test planted --test relay --test grid --test share --test limits -- --ignored

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
