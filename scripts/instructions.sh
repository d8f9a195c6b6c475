#!/bin/sh
# Counts the instructions of the library's hot path by callgrind and compares them with the counts in
# benchmarks/instructions.json. Fails if a call takes more than the tolerance there allows.
#
#   scripts/instructions.sh           compare
#   scripts/instructions.sh renew     keep the counts of now
#
# WHAT names some of the calls (all of benchmarks/instructions.c), KEPT another file, BIN another
# foldback.
#
# It counts the instructions in libfoldback.so alone, of one call by the rank that need not wait.
# Instructions of libc depend on the CPU (its memcpy comes in kinds), instructions of the dynamic
# linker on whether the call is the first. The MPI's depend on the MPI. Of all calls of all ranks it
# takes the least, so polling is not in it.
set -eu
cd "$(dirname "$0")/.."

die() {
	echo "instructions: $*" >&2
	exit 1
}

renew=
case "${1-}" in
'') ;;
renew) renew=1 ;;
*)
	echo "usage: scripts/instructions.sh [renew]" >&2
	exit 2
	;;
esac
[ "$(id -u)" -eq 0 ] || die "needs root, to load BPF programs and make network namespaces"
command -v valgrind >/dev/null || die "no valgrind: run scripts/setup.sh"
foldback=${BIN:-target/release/foldback}
program=target/mpi-tests/openmpi4/instructions
for file in "$foldback" "$program"; do
	[ -x "$file" ] || die "no $file: run make build"
done
kept=${KEPT:-benchmarks/instructions.json}
[ -n "$renew" ] || [ -f "$kept" ] || die "no $kept: make instructions RENEW=1 makes it"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for what in ${WHAT:-fold toolong nogroup nodata}; do
	limit=1024
	[ "$what" != toolong ] || limit=64
	mkdir "$work/$what"
	FOLDBACK_SETUP_CALLS=0 FOLDBACK_MAX_BYTES=$limit FOLDBACK_STATS=$work/$what/stats.json timeout 900 "$foldback" lab run --private --hosts 2 \
		--timeout 600 -- valgrind --tool=callgrind --toggle-collect=counted_call \
		--dump-after=counted_call --compress-strings=no --compress-pos=no \
		--callgrind-out-file="$work/$what/out.%p" "$program" --what "$what" --calls 8 \
		>"$work/$what/log" 2>&1 || {
		tail -n 20 "$work/$what/log" >&2
		die "$what: the job failed; its last lines are above"
	}
done

python3 - "$work" "$kept" "$renew" "$(rustc --version)" <<'PYTHON'
import json
import pathlib
import sys

work, kept_path, renew, rustc = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), *sys.argv[3:]


def of_library(dump):
    """Instructions in the library: its own lines, not those that say what a call cost in all."""
    total, inside, inclusive = 0, False, False
    for line in dump.open():
        if line.startswith("ob="):
            inside = line.rstrip().endswith("/libfoldback.so")
        elif line.startswith("calls="):
            inclusive = True
        elif line[0].isdigit():
            if inside and not inclusive:
                total += int(line.split()[1])
            inclusive = False
    return total


def folded(what):
    stats = work / what / "stats.json"
    if not stats.exists():
        sys.exit(f"instructions: {what}: foldback was not in the job")
    job = json.loads(stats.read_text())
    return any(
        line["collective"] == "Allreduce" and line["route"] == "fold" for line in job["collectives"]
    )


counts = {}
for directory in sorted(work.iterdir()):
    what = directory.name
    if folded(what) != (what == "fold"):
        sys.exit(f"instructions: {what}: the calls went the other way: see FOLDBACK_STATS")
    dumps = [of_library(dump) for dump in directory.glob("out.*.*")]
    counts[what] = min(filter(None, dumps), default=0)
    if not counts[what]:
        sys.exit(f"instructions: {what}: callgrind counted nothing in libfoldback.so")

if renew:
    document = {"tolerance_percent": 10, "rustc": rustc, "per_call": counts}
    kept_path.write_text(json.dumps(document, indent=2) + "\n")
    print(f"instructions: {counts}, kept in {kept_path}")
    sys.exit()

kept = json.loads(kept_path.read_text())
wrong = []
for what, count in counts.items():
    before = kept["per_call"].get(what)
    if before is None:
        sys.exit(f"instructions: {kept_path} has no {what}: make instructions RENEW=1")
    change = (count / before - 1) * 100
    print(f"instructions: {what:10} {count:6} a call, {before:6} kept, {change:+.1f} %")
    if change > kept["tolerance_percent"]:
        wrong.append(f"{what} takes {count}, {change:.0f} % more than the {before} kept")
    elif change < -kept["tolerance_percent"]:
        print(f"instructions: {what} got cheaper: make instructions RENEW=1 keeps that")
if rustc != kept["rustc"]:
    print(f"instructions: kept with {kept['rustc']}, this is {rustc}")
if wrong:
    sys.exit(f"instructions: FAILED: {'; '.join(wrong)} (tolerance {kept['tolerance_percent']} %)")
print("instructions: ok")
PYTHON
