# make run, make demo, make test, make bench, make deb: on a machine with a Rust toolchain and apt.

CARGO   ?= cargo
DATA    ?= run
ASHLAR   = target/release/ashlar
BENCH    = target/release/ashlar-bench
TEST_PACKAGES  = $(sort $(shell cat ci/packages/rig.txt ci/packages/classes.txt ci/packages/web.txt \
                   ci/packages/graph.txt ci/packages/completions.txt \
                   ci/packages/packaging.txt | sed 's/\#.*//'))
DEMO_PACKAGES  = fdisk e2fsprogs libiscsi-bin qemu-utils qemu-block-extra
BENCH_PACKAGES = $(shell sed "s/\#.*//" ci/packages/bench.txt)

# Packages are for this architecture, images of containers have a static binary.
MUSL     ?= $(shell uname -m)-unknown-linux-musl
IMAGE    ?= ashlar:latest

.PHONY: run demo test check hooks soak bench bench-chart docs screenshots build build-bench package python-client deb rpm static container package-test deps-package deps-package-test deps-static deps-test deps-check deps-soak deps-docs deps-demo deps-bench clean

# Functions with equal machine code are linked once. Only the linker that Rust has for x86_64 can.
ifeq ($(shell uname -m),x86_64)
LINK    ?= -C link-arg=-Wl,--icf=all
endif

build:
	$(CARGO) rustc --release -p ashlar --bin ashlar -- $(LINK)
	ci/strip $(ASHLAR)

build-bench: build
	$(CARGO) build --release -p ashlar-bench
	ci/strip $(BENCH)

run: deps-demo build-bench
	$(BENCH) demo --data $(DATA) --serve

demo: deps-demo build-bench
	$(BENCH) demo --data $(DATA)

test:
	.ci/test

# Before a commit: needs `make deps-check` once.
check:
	.ci/check

# Before every commit of this clone: `make check`, and a test of the title's length.
hooks:
	git config core.hooksPath ci/hooks

# Hours; `ASHLAR_SOAK_MINUTES=10 make soak` is short. The report is target/soak/REPORT.md.
soak: deps-test deps-soak
	.ci/soak

# The manual as a book: target/book/index.html.
docs: deps-docs
	mdbook build

# Pictures of the page: docs/images/page-*.png. Needs node, npm and Chromium.
screenshots: deps-test
	ASHLAR_SCREENSHOTS=$(CURDIR)/docs/images $(CARGO) test -p ashlar --test live \
		page_shows_and_changes_the_daemon_in_a_browser

# `make bench QUICK=--quick`: less than two minutes.
bench: deps-bench build-bench
	$(BENCH) $(QUICK)

# Measures again and draws docs/speed.svg and docs/speed-short.svg. Exit code 3 is a missed goal.
bench-chart: deps-bench build-bench
	$(BENCH) $(QUICK) --json > target/bench.json || [ $$? = 3 ]
	$(BENCH) chart target/bench.json > target/speed.svg
	$(BENCH) chart --short target/bench.json > target/speed-short.svg
	mv target/speed.svg target/speed-short.svg docs

# Manual pages and completions of the packages: target/package.
package: build
	contrib/package $(ASHLAR) target/package

# Python client of the API: target/python. Needs `pip install -r ci/packages/python.txt`.
python-client: build
	rm -rf target/python
	$(ASHLAR) openapi > target/openapi.json
	contrib/python/generate target/openapi.json target/python

# target/debian/*.deb. The binary is built and stripped already.
deb: deps-package package
	$(CARGO) deb -p ashlar --no-build --no-strip
	lintian --fail-on error target/debian/*.deb

# rpm sorts 0.2.0~dev.1 before 0.2.0, and refuses the sign `-` of Cargo's version.
RPM_VERSION = $(subst -,~,$(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1))

# target/generate-rpm/*.rpm
rpm: deps-package package
	$(CARGO) generate-rpm -p crates/ashlar -s 'version = "$(RPM_VERSION)"'

static: deps-static
	CC_$(subst -,_,$(MUSL))=musl-gcc $(CARGO) build --release -p ashlar --target $(MUSL)

# target/ashlar.oci.tar: `podman load -i` or `docker load -i` reads it. Only the static binary and a
# configuration are in it.
container: static
	mkdir -p target/container
	strip -o target/container/ashlar target/$(MUSL)/release/ashlar
	contrib/oci-image target/container/ashlar $(firstword $(subst -, ,$(MUSL))) $(IMAGE) \
		target/ashlar.oci.tar

# Installs, starts, upgrades, removes and purges the package in a chroot and in a guest with systemd.
# Needs root and a mirror of Debian. OLDER= is the package of an earlier release, which it upgrades.
package-test: deps-package-test deb
	$(if $(filter 0,$(shell id -u)),,sudo) ci/package-test/run \
		"$$(ls -t target/debian/ashlar_*.deb | head -n 1)" $(OLDER)

deps-package:
	@ci/install lintian
	$(CARGO) deb --version || $(CARGO) install cargo-deb --locked
	$(CARGO) generate-rpm --version || $(CARGO) install cargo-generate-rpm --locked

deps-package-test:
	@ci/install $(shell sed "s/\#.*//" ci/packages/package-test.txt)

deps-static:
	@ci/install musl-tools
	rustup target add $(MUSL)

deps-test:
	@ci/install $(TEST_PACKAGES)

deps-check:
	@ci/install codespell $(shell sed "s/\#.*//" ci/packages/packaging.txt)
	$(CARGO) deny --version || $(CARGO) install cargo-deny --locked

# A tool that cannot be installed fails its own part of the run.
deps-soak:
	-rustup toolchain install nightly --profile minimal --component miri,rust-src
	-$(CARGO) fuzz --version || $(CARGO) install cargo-fuzz --locked

deps-docs:
	mdbook --version || $(CARGO) install mdbook --locked

deps-demo:
	@ci/install $(DEMO_PACKAGES)

deps-bench:
	@ci/install $(BENCH_PACKAGES)

clean:
	$(CARGO) clean
