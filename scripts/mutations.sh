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

simulate() {
	# A rule that is missing may make a test wait for ever; its own bound is two minutes.
	timeout --kill-after=5 600 cargo test --quiet --release --manifest-path "$copy/Cargo.toml" \
		--test simulation "$@" >"$log" 2>&1
}

# Cargo builds by times, and this is a new one.
restore() {
	cp "$file" "$copy/$file"
	touch "$copy/$file"
}

fail() {
	echo "mutations: $*" >&2
	exit 1
}

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
	if ! simulate --no-run; then
		restore
		cat "$log" >&2
		fail "$name does not compile"
	fi
	begin=$(date +%s)
	if simulate -- --exact "$test"; then
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
