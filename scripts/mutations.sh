#!/bin/sh
# Takes one rule of the protocol after the other out of the sources, and wants the test named for it to fail.
#
#   scripts/mutations.sh [NAME...]
#
# Each of tests/mutations/NAME.patch says which rule it breaks, and which test of tests/simulation.rs notices.
# Works on a copy of the sources as they are, in target/mutations. A few seconds for each to a minute.
set -eu
cd "$(dirname "$0")/.."

case "${1-}" in
-*)
	sed -n 's/^# \{0,1\}//; 2,7p' "$0" >&2
	exit 2
	;;
'')
	for patch in tests/mutations/*.patch; do
		set -- "$@" "$(basename "$patch" .patch)"
	done
	;;
esac

copy=target/mutations/tree
export CARGO_TARGET_DIR="$PWD/target/mutations/target"
log=target/mutations/log

# The sources, with the times that they have: cargo builds anew only what differs.
mkdir -p "$copy"
git ls-files -z --cached --others --exclude-standard |
	xargs -0 cp --parents --preserve=timestamps -t "$copy"

# simulate SECONDS OPTION…
simulate() {
	seconds=$1
	shift
	timeout --kill-after=5 "$seconds" cargo test --quiet --release --manifest-path "$copy/Cargo.toml" \
		--test simulation "$@" >"$log" 2>&1
}

# build NAME: of the sources, or of a rule.
build() {
	status=0
	simulate 3600 --no-run || status=$?
	[ $status -ne 124 ] || fail "$1 is not built after an hour"
	[ $status -eq 0 ] || {
		cat "$log" >&2
		fail "$1 does not compile"
	}
}

# Cargo builds by times, and this is a new one.
file=
restore() {
	[ -z "$file" ] || cp "$file" "$copy/$file"
	[ -z "$file" ] || touch "$copy/$file"
	file=
}
trap restore EXIT
trap 'exit 130' HUP INT TERM

fail() {
	echo "mutations: $*" >&2
	exit 1
}

echo "mutations: building the sources" >&2
build "the copy in $copy"
number=0 survived=0
for name in "$@"; do
	number=$((number + 1))
	patch=tests/mutations/$name.patch
	[ -f "$patch" ] || fail "there is no $patch"
	rule=$(sed -n 's/^Rule: //p' "$patch")
	test=$(sed -n 's/^Test: //p' "$patch")
	file=$(sed -n 's/^+++ b\///p' "$patch")
	git apply --unsafe-paths --directory="$copy" "$patch" 2>"$log" ||
		fail "$name does not apply any more: $(head -1 "$log")"
	touch "$copy/$file"
	build "$name"
	begin=$(date +%s)
	# A rule that is missing may make a test wait for ever; its own bound is two minutes.
	if simulate 600 -- --exact "$test"; then
		survived=$((survived + 1))
		verdict="SURVIVES $test"
	else
		# Not for want of a test of that name.
		grep -q "^running 1 test" "$log" || fail "$name: there is no test $test"
		verdict="caught by $test"
	fi
	restore
	echo "$number/$#  $name: $rule $verdict, $(($(date +%s) - begin)) s"
done
echo "$# rules, $survived not tested"
[ "$survived" = 0 ]
