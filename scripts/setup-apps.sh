#!/bin/sh
# Installs the programs of others that `make test-apps` runs: Debian's HPCC and NetPIPE (as root), and
# from Python's index mpi4py, with its own tests, into target/apps/. Does nothing if all are there in
# the versions named here.
set -eu
cd "$(dirname "$0")/.."

mpi4py=mpi4py==4.1.2
# Its tests use it where it is.
numpy=numpy==2.4.6
prefix=target/apps
abi=target/mpis/mpich5-abi

die() {
	echo "setup-apps: $*" >&2
	exit 1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Shows output of a command only if it fails.
quietly() {
	"$@" >"$work/log" 2>&1 || {
		tail -n 5 "$work/log" >&2
		return 1
	}
}

pip() {
	python=$1
	shift
	quietly "$python" -m pip --disable-pip-version-check "$@"
}

# Whether a directory is in the version that is wanted. Such a mark is the last thing that is made.
installed() {
	[ "$(cat "$prefix/$1/requirement" 2>/dev/null || true)" = "$2" ]
}

# A virtual environment, which cannot be moved, so a half-made one is removed.
environment() {
	echo "setup-apps: installing $mpi4py into $prefix/$1"
	rm -rf "${prefix:?}/$1"
	quietly python3 -m venv "$prefix/$1" || die "python3 -m venv failed; its last lines are above"
}

scripts/setup.sh apps
python3 -c 'import ensurepip' 2>/dev/null || scripts/setup.sh python
mkdir -p "$prefix"

# One for Open MPI's ABI and MPICH's: it brings a module for each, and loads whichever fits.
if ! installed mpi4py "$mpi4py $numpy"; then
	environment mpi4py
	pip "$prefix/mpi4py/bin/python" install --no-deps --no-compile --only-binary :all: \
		"$mpi4py" "$numpy" || die "cannot install $mpi4py; the last lines of pip are above"
	echo "$mpi4py $numpy" >"$prefix/mpi4py/requirement"
fi

if ! installed mpi4py-source "$mpi4py"; then
	echo "setup-apps: fetching the tests of $mpi4py"
	rm -rf "$prefix/mpi4py-source"
	pip "$prefix/mpi4py/bin/python" download --no-deps --no-binary mpi4py --dest "$work" "$mpi4py" ||
		die "cannot fetch $mpi4py; the last lines of pip are above"
	mkdir "$prefix/mpi4py-source"
	tar -xf "$work"/mpi4py-*.tar.gz -C "$prefix/mpi4py-source" --strip-components 1
	echo "$mpi4py" >"$prefix/mpi4py-source/requirement"
fi

# The standard ABI has to be compiled for. Not optimised: that takes three times as long.
if [ -x "$abi/bin/mpicc_abi" ] && ! installed mpi4py-abi "$mpi4py $numpy"; then
	header=$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
	[ -e "$header" ] || scripts/setup.sh python
	environment mpi4py-abi
	MPICC=$(realpath "$abi/bin/mpicc_abi")
	export MPICC CFLAGS=-O0 MPI4PY_BUILD_MPIABI=1
	pip "$prefix/mpi4py-abi/bin/python" install --no-deps --no-compile \
		"./$prefix/mpi4py-source" "$numpy" ||
		die "cannot build $mpi4py; the last lines of pip are above"
	echo "$mpi4py $numpy" >"$prefix/mpi4py-abi/requirement"
fi
