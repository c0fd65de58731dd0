# Two commands matter: `make demo` and `make test`; `make bench` measures what relays cost. Each installs what it needs first.

.PHONY: bench demo test lint clean setup

demo: setup
	cargo run --release --locked --package heddle --quiet -- demo

bench: setup
	cargo run --release --locked --package heddle --quiet -- bench

test: setup lint
	cargo test --workspace --locked

lint: setup
	cargo fmt --all --check
	scripts/lint

clean:
	cargo clean

setup:
	@scripts/setup
