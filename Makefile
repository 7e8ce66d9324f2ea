# make run, make demo, make test, make bench: on a machine with a Rust toolchain and apt.

CARGO   ?= cargo
DATA    ?= run
ASHLAR   = target/release/ashlar
BENCH    = target/release/ashlar-bench
TEST_PACKAGES  = $(sort $(shell cat ci/packages/rig.txt ci/packages/classes.txt | sed 's/\#.*//'))
DEMO_PACKAGES  = fdisk e2fsprogs libiscsi-bin qemu-utils qemu-block-extra
BENCH_PACKAGES = $(shell sed "s/\#.*//" ci/packages/bench.txt)

.PHONY: run demo test bench build build-bench deps-test deps-demo deps-bench fuzz clean

build:
	$(CARGO) build --release -p ashlar

build-bench: build
	$(CARGO) build --release -p ashlar-bench

run: deps-demo build-bench
	$(BENCH) demo --data $(DATA) --serve

demo: deps-demo build-bench
	$(BENCH) demo --data $(DATA)

test: deps-test
	$(CARGO) test --workspace --no-fail-fast

# `make bench QUICK=--quick`: less than two minutes.
bench: deps-bench build-bench
	$(BENCH) $(QUICK)

# Longer than CI: see fuzz/README.md.
fuzz:
	ASHLAR_SEEDS=1000000 $(CARGO) test --workspace --release

deps-test:
	@ci/install $(TEST_PACKAGES)

deps-demo:
	@ci/install $(DEMO_PACKAGES)

deps-bench:
	@ci/install $(BENCH_PACKAGES)

clean:
	$(CARGO) clean
