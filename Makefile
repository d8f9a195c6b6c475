# Everything from scratch, on Debian 12 with Rust and gcc:
#
#   make test    make demo

CARGO ?= cargo
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
FOLDBACK := target/release/foldback

.DEFAULT_GOAL := help
.PHONY: help setup setup-mpis setup-apps setup-science setup-training setup-gnn setup-slurm setup-containers build lint header test test-quick test-long soak mutations test-apps test-kernels test-all-kernels test-machines \
	bench bench-apps bench-results instructions demo training-demo gnn-demo wordcount-demo install uninstall packages test-packages dist test-dist clean

help: ## this text
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

setup: ## install missing packages (as root; nothing to do if none is missing)
	@scripts/setup.sh

setup-mpis: ## install MPIs that Debian does not have into target/mpis, for the lab and its tests
	@scripts/setup-mpis.sh

setup-apps: ## install mpi4py with its tests into target/apps, and HPCC and NetPIPE (as root)
	@scripts/setup-apps.sh

setup-science: ## install LAMMPS, PETSc, GROMACS and others of Debian, for `make test-apps` and `make bench-apps` (as root)
	@scripts/setup.sh science

setup-training: ## install Debian's PyTorch, scikit-learn, mpi4py and Matplotlib, for `make training-demo` (as root)
	@scripts/setup.sh training

setup-gnn: ## install Debian's NumPy, SciPy and mpi4py, for `make gnn-demo` (as root)
	@scripts/setup.sh gnn

setup-slurm: ## install Debian's Slurm and munge, for `make test-apps` (as root)
	@scripts/setup.sh slurm

setup-containers: ## install Debian's runc, for `make test-apps` (as root)
	@scripts/setup.sh containers

build: setup ## library, command line and MPI test programs
	$(CARGO) build --release
	@$(MAKE) --no-print-directory -s $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc)) -C mpi-tests

lint: setup ## formatting, clippy, generated header, scripts
	@scripts/lint.sh

header: setup ## renew include/foldback.h from src/capi.rs
	FOLDBACK_RENEW_HEADER=1 $(CARGO) test --release --test header

test: build ## every behaviour once, as in CI (as root; about 15 minutes on two CPUs)
	@scripts/test.sh all

test-quick: build ## between edits: logic, simulation, packets, two small jobs (as root; a minute)
	@scripts/test.sh quick

test-long: build ## long streams and simulations, every fault: before a release (as root; about two hours)
	@scripts/test.sh long

soak: build ## a job on each MPI under random faults, for HOURS in all, 1 if not said; SEED=n (as root)
	@FOLDBACK_SOAK_HOURS='$(or $(HOURS),1)' FOLDBACK_SOAK_SEED='$(SEED)' scripts/test.sh soak

mutations: ## take the protocol's rules out one by one: a test must notice (20 minutes)
	@scripts/mutations.sh $(RULES)

test-apps: build setup-apps setup-science setup-training setup-slurm setup-containers ## programs of others, mpi4py's own tests among them (as root)
	@scripts/test.sh apps

test-kernels: build ## boot the kernels of Debian 12 and 13 and run the packet fixtures there
	@scripts/setup.sh kernels
	@scripts/test-kernels.sh
	@DEBIAN=13 TESTS=bpf scripts/test-kernels.sh

test-all-kernels: build ## all tests of test-kernels on each kernel that scripts/guest.sh knows (30 minutes)
	@scripts/setup.sh kernels
	@scripts/test-kernels.sh
	@KERNEL=backports scripts/test-kernels.sh
	@DEBIAN=13 scripts/test-kernels.sh
	@DEBIAN=13 KERNEL=backports scripts/test-kernels.sh
	@for release in 22.04 24.04 26.04; do KERNEL=ubuntu-$$release scripts/test-kernels.sh || exit; done

test-machines: build ## jobs and their times between two virtual machines; the package on three of Debian 12, and faults (as root; 35 minutes)
	@scripts/setup.sh machines
	@scripts/test-machines.sh
	@scripts/test-cluster.sh

bench: build ## compare with the real MPI; tables and charts in target/bench (as root)
	$(FOLDBACK) bench --out target/bench $(BENCH)
	$(FOLDBACK) bench --overlap --out target/bench $(OVERLAP)

bench-apps: build setup-science ## whole programs; table and chart in target/bench-apps; BENCH=options (as root; 40 minutes)
	$(FOLDBACK) bench apps --out target/bench-apps $(BENCH)

bench-results: build ## all benchmarks in short, into benchmarks/results/DATE-CPU (as root; 10 minutes)
	@scripts/bench-results.sh

instructions: build ## count the instructions of the hot path; RENEW=1 keeps the counts (as root)
	@scripts/instructions.sh $(if $(RENEW),renew)

demo: build ## four hosts, two MPIs, with and without foldback; results in target/demo (as root)
	@scripts/demo.sh

# Debian's Python has Debian's packages.
training-demo: build setup-training ## train by plain MPI and by each mode of quantization; SEEDS=5 (as root; 10 minutes)
	@/usr/bin/python3 benchmarks/training/compare.py $(if $(SEEDS),--seeds $(SEEDS))

gnn-demo: build setup-gnn ## train a network on the graph of apt's packages, with kept aggregates; SEEDS=5 (as root; 8 minutes)
	@/usr/bin/python3 examples/gnn/compare.py $(if $(SEEDS),--seeds $(SEEDS))

wordcount-demo: build ## count the words of 300 MB of text by foldback and by plain MPI; RUNS=3 (as root; 2 minutes)
	@scripts/wordcount-demo.sh $(RUNS)

# Builds, unless root has no cargo: `make build && sudo make install`. Installs no packages.
install: ## to PREFIX (/usr/local), BINDIR, LIBDIR; DESTDIR for packagers
	@if command -v $(CARGO) >/dev/null; then $(CARGO) build --release; \
	elif ! [ -x $(FOLDBACK) ]; then echo "install: no $(CARGO), and nothing is built yet: make build" >&2; exit 1; fi
	@PREFIX='$(PREFIX)' BINDIR='$(BINDIR)' LIBDIR='$(LIBDIR)' DESTDIR='$(DESTDIR)' scripts/install.sh install

uninstall: ## remove the files of `make install` with the same variables
	@PREFIX='$(PREFIX)' BINDIR='$(BINDIR)' LIBDIR='$(LIBDIR)' DESTDIR='$(DESTDIR)' scripts/install.sh uninstall

packages: build ## a .deb and an .rpm of what `make install` installs, in target/packages
	@scripts/setup.sh packages
	@scripts/packages.sh

test-packages: build ## make them twice, check them, install and remove them in Debian and Ubuntu (as root; 10 minutes)
	@scripts/setup.sh packages
	@scripts/test-packages.sh

dist: build ## sources with all crates, an SBOM, the packages, and SHA256SUMS of these, in target/dist
	@scripts/setup.sh packages dist
	@scripts/dist.sh

test-dist: build ## make them twice, check them, build the sources without a network (4 minutes)
	@scripts/setup.sh packages dist
	@scripts/test-dist.sh

clean: ## forget all builds
	$(CARGO) clean
