# Two commands do everything on a bare machine with Debian 12 or 13: `make run` and `make test`.
.PHONY: run test check minimum soak simulate bench peers again overload placement bless fuzz

CARGO ?= cargo
# scripts/setup may have installed cargo there.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

# Measures this machine, traces nginx, predicts and explains its time.
run:
	scripts/setup run
	$(CARGO) build --release --package assay
	target/release/assay run workloads/nginx.toml

# Every lint, and every test on real servers and the real kernel.
test: check
	CARGO='$(CARGO)' scripts/test

# Formatting and lints.
check:
	scripts/setup test
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets --test debian -- --deny warnings

# Compiles everything with the oldest Rust that Cargo.toml declares; rustup installs it.
minimum:
	scripts/setup test
	rustup run --install $$(sed -n 's/^rust-version = "\(.*\)"$$/\1/p' Cargo.toml) \
		cargo check --locked --workspace --all-targets --target-dir target/minimum

# Runs the tests repeatedly, alternately on the idle machine and with busy loops, and records them in target/soak.md.
RUNS ?= 2
soak:
	scripts/setup test
	CARGO='$(CARGO)' scripts/soak $(RUNS)

# Builds an image of Debian for guests, and tests what needs it or the network; needs root.
simulate:
	scripts/setup simulate
	$(CARGO) build --release --workspace
	target/release/assay sim image build
	CARGO='$(CARGO)' scripts/test --test debian

# The cost of our own hot paths, with their limits.
bench:
	scripts/setup test
	$(CARGO) bench --package assay-trace-probe --bench slowdown
	$(CARGO) bench --package assay-workload --bench client
	$(CARGO) bench --package assay-bench --bench trust
	$(CARGO) bench --package assay-bench --bench hierarchy
	$(CARGO) build --release --package assay-sim-plugin
	$(CARGO) bench --package assay --bench simulation

# Compares how well our figures and lmbench's repeat, measured in the same minutes: half an hour.
peers:
	scripts/setup test
	$(CARGO) build --release --package assay
	bench/peers/repeatability

# Measures how often the cost of a later run is in an interval "if measured again": 50 minutes.
again:
	scripts/setup test
	$(CARGO) build --release --package assay
	bench/again/coverage

# Compares a server in overload without a limit and with one that a law sets; needs root. `CASE=file-server` takes half
# an hour. The others are of a PostgreSQL server alone, behind PgBouncer and behind the guard, and take from four minutes
# to half an hour: hot, tpc-b, deadlock, shop, select, deadline, sessions, paper, latency. `surge`, `inside`, `mix` and
# `half` show how the guard follows a change, and `minute` and, in two and a half hours, `steady` what it does without
# one. All but `file-server` go on where they were interrupted.
CASE ?= file-server
dynamics := surge inside mix half minute steady
overload := $(if $(filter file-server,$(CASE)),file-server,$(if $(filter $(dynamics),$(CASE)),dynamics,database) $(CASE))
overload:
	scripts/setup overload
	$(CARGO) build --release --package assay --package assay-proxy --package assay-reflect --bin assay \
		--example load --example bare --example file_server
	bench/overload/$(overload)

# Shows what placement gains for programs that compete: twelve minutes.
placement:
	scripts/setup test
	$(CARGO) build --release --package assay --package assay-reflect --bin assay --example competitor
	bench/placement/two-and-two

# Rewrites golden outputs after an intended change.
bless:
	UPDATE_EXPECT=1 CARGO='$(CARGO)' scripts/test

# Runs every parser against damaged input for SECONDS seconds.
SECONDS ?= 300
fuzz:
	FUZZ_SECONDS=$(SECONDS) $(CARGO) test --release --package assay --test fuzz -- --nocapture
