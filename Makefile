# Two commands matter: `make demo` and `make test`. Each installs what it needs first.

.PHONY: demo test lint clean setup

demo: setup
	cargo run --release --locked --package heddle --quiet -- demo

test: setup lint
	cargo test --workspace --locked

lint: setup
	cargo fmt --all --check
	scripts/lint

clean:
	cargo clean

setup:
	@scripts/setup
