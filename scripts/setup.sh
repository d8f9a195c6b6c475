#!/bin/sh
# Installs what is missing to build, test and measure foldback on Debian 12 (and other releases
# with apt and the same package names). Does nothing, and needs no privilege, if all is there.
#
#   scripts/setup.sh            build, tests, benchmarks, demo
#   scripts/setup.sh WHAT…      that, and what these need:
#       kernels                 scripts/test-kernels.sh and test-machines.sh
#       machines                the same, and test-cluster.sh: also cargo-deb, which is built
#       mpis                    scripts/setup-mpis.sh
#       apps                    the programs of make test-apps, but for
#       science                 its programs of science, and make bench-apps': 110 packages, of 150 MB
#       slurm                   Slurm and munge, for their tests, which start daemons of their own
#       python                  extensions of Python, to be built
#       packages                make packages and test-packages: also cargo-deb, which is built
#       metrics                 Prometheus, for a test of the agent's metrics
#       xdp                     xdp-tools, for tests of the agent beside them
#       containers              runc, for ranks in containers
#       dist                    make dist and test-dist: also cargo-cyclonedx, which is built
#       gnn                     NumPy and what examples/gnn needs: 20 packages, of 40 MB
#       training                PyTorch and what benchmarks/training needs: 200 packages, of 190 MB
set -eu

# BPF: compiler, its headers, and libelf, zlib; libclang for bindgen.
packages="gcc make pkg-config clang llvm clang-format libclang-dev libelf-dev zlib1g-dev"
packages="$packages libbpf-dev linux-libc-dev"
# Both MPIs, as Debian ships them.
packages="$packages openmpi-bin libopenmpi-dev mpich libmpich-dev gfortran"
# The lab, and looking into it.
packages="$packages iproute2 ethtool bpftool gdb"
# make demo
packages="$packages python3"
# make instructions
packages="$packages valgrind"
# make lint
packages="$packages shellcheck"

# Of the registry of Rust.
cargo_packages=

kernel_packages="qemu-system-x86 busybox-static cpio kmod dwarves lz4 xz-utils zstd"

die() {
	echo "setup: $*" >&2
	exit 1
}

for what in "$@"; do
	case "$what" in
	kernels) packages="$packages $kernel_packages" ;;
	machines)
		packages="$packages $kernel_packages mmdebstrap e2fsprogs openssh-client"
		cargo_packages="$cargo_packages cargo-deb"
		;;
	mpis) packages="$packages python3-venv" ;;
	apps) packages="$packages hpcc netpipe-openmpi netpipe-mpich2" ;;
	science)
		packages="$packages lammps mumps-test scalapack-mpi-test"
		packages="$packages libpetsc-real3.18-dev libpetsc3.18-dev-examples"
		packages="$packages hpcc libfftw3-mpi-dev gromacs python3-mpi4py"
		;;
	training) packages="$packages python3-torch python3-sklearn python3-mpi4py python3-matplotlib" ;;
	packages) packages="$packages rpm lintian rpmlint mmdebstrap" cargo_packages="$cargo_packages cargo-deb" ;;
	metrics) packages="$packages prometheus" ;;
	xdp) packages="$packages xdp-tools" ;;
	containers) packages="$packages runc" ;;
	dist) packages="$packages xz-utils jq" cargo_packages="$cargo_packages cargo-cyclonedx" ;;
	gnn) packages="$packages python3-numpy python3-scipy python3-mpi4py" ;;
	slurm) packages="$packages slurmctld slurmd slurm-client munge libslurm-dev" ;;
	python) packages="$packages python3-venv python3-dev" ;;
	*) die "unknown argument $what" ;;
	esac
done

if ! command -v cargo >/dev/null; then
	die "no cargo: install Rust 1.88 or later (https://rustup.rs), then try again"
fi
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
	die "no apt here; install by other means what these packages of Debian hold: $packages"
fi

for package in $cargo_packages; do
	command -v "$package" >/dev/null || {
		echo "setup: building $package"
		# The sources of a release know no crates but their own.
		(cd / && cargo install --quiet --locked "$package")
	}
done

missing=
for package in $packages; do
	state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
	[ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
	die "missing packages; as root: apt-get install$missing"
fi
echo "setup: installing$missing"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086 # a list of words
if ! { apt-get -q update && apt-get -qy install --no-install-recommends $missing; } >"$log" 2>&1
then
	tail -n 20 "$log" >&2
	die "apt-get failed; its last lines are above"
fi
