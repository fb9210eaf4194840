# Two commands do everything on a bare machine with Debian 12, Debian 13 or Ubuntu 24.04: `make run` and `make test`.
.PHONY: run test check minimum soak bench peers again bless fuzz

CARGO ?= cargo
# Where scripts/setup may have put it.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

# Measures this machine, traces nginx, predicts and explains it.
run:
	scripts/setup run
	$(CARGO) build --release --package assay
	target/release/assay run workloads/nginx.toml

# Every lint, and every test on real servers and the real kernel.
test: check
	CARGO='$(CARGO)' scripts/test

# What a reviewer should not have to say.
check:
	scripts/setup test
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets -- --deny warnings

# Whether the oldest Rust that Cargo.toml promises compiles everything; rustup gets it.
minimum:
	scripts/setup test
	rustup run --install $$(sed -n 's/^rust-version = "\(.*\)"$$/\1/p' Cargo.toml) \
		cargo check --locked --workspace --all-targets --target-dir target/minimum

# The tests again and again, in turn on the machine as it is and beside busy loops, into target/soak.md.
RUNS ?= 2
soak:
	scripts/setup test
	CARGO='$(CARGO)' scripts/soak $(RUNS)

# The cost of our own hot paths, side by side with their limits.
bench:
	scripts/setup test
	$(CARGO) bench --package assay-trace-probe --bench slowdown
	$(CARGO) bench --package assay-workload --bench client
	$(CARGO) bench --package assay-bench --bench trust
	$(CARGO) bench --package assay-bench --bench hierarchy

# How well our figures repeat beside lmbench's, in the same minutes: half an hour.
peers:
	scripts/setup test
	$(CARGO) build --release --package assay
	bench/peers/repeatability

# How often the cost of a later run lies in an interval "if measured again": 50 minutes.
again:
	scripts/setup test
	$(CARGO) build --release --package assay
	bench/again/coverage

# Rewrites golden outputs after a change that was meant.
bless:
	UPDATE_EXPECT=1 CARGO='$(CARGO)' scripts/test

# Every parser against damaged input, for as long as SECONDS says.
SECONDS ?= 300
fuzz:
	FUZZ_SECONDS=$(SECONDS) $(CARGO) test --release --package assay --test fuzz -- --nocapture
