#!/bin/sh
# An MPI job between two virtual machines with a virtio NIC each, by foldback over TC and over
# native XDP, and by plain MPI. The machines have Debian 12's kernel (6.1), if scripts/guest.sh is not told another. A
# socket of qemu's joins them. No network and no privilege are needed.
#
#   scripts/test-machines.sh [check|measure|latency]…    the first two, if not said
#
# `latency` takes one machine, in which links of a lab have a delay. Its clock counts the instructions of its
# one CPU, so other work here does not change its times. First it runs a lab here, as root and on one CPU, to
# know the dilation of times, unless DILATION says it.
#
# scripts/machine.sh says what these are, and does them.
set -eu
cd "$(dirname "$0")/.."

# How often to measure: 5, or 1 for `latency`, if not said.
ROUNDS=${ROUNDS:-}
# Of `latency`: hosts, microseconds from one to another, and what the program is told.
HOSTS=${HOSTS:-2,4,8}
DELAYS=${DELAYS:-10,25,50}
SIZES=${SIZES:-8,1024,4096,65536}
ITERATIONS=${ITERATIONS:-40}
WARMUP=${WARMUP:-60}
DILATION=${DILATION:-}
# Seconds until hanging machines are ended.
GUEST_SECONDS=1500
LATENCY_SECONDS=${LATENCY_SECONDS:-3600}

me=test-machines
work=target/machines
guest_modules="virtio_pci virtio_net sch_ingress cls_bpf veth bridge sch_netem sch_tbf"
# shellcheck source=scripts/guest.sh
. scripts/guest.sh

libraries=/usr/lib/x86_64-linux-gnu
programs="conformance order exchange stream latency"

# Open MPI 4 of Debian, without what drives hardware.
add_mpi() {
	for program in mpirun orted; do
		add_program "$(command -v "$program")" "/bin/$program"
		# Its prefix must not be the root, if it is called by its path.
		mkdir -p "$root/usr/bin"
		ln -s "/bin/$program" "$root/usr/bin/$program"
	done
	for plugin in "$libraries"/openmpi/lib/openmpi3/*.so "$libraries"/pmix2/lib/pmix/*.so; do
		case "$plugin" in
		*ucx* | *ofi* | *psm* | *openib*) ;;
		*) add_program "$plugin" "$plugin" ;;
		esac
	done
	cp -r --parents /etc/openmpi /usr/share/openmpi "$root"
	for program in $programs; do
		[ -e "target/mpi-tests/openmpi4/$program" ] || die "no $program: make -C mpi-tests"
		add_program "target/mpi-tests/openmpi4/$program" "/tests/$program"
	done
}

add_machine() {
	for name in machine there serve; do
		install -m 755 scripts/machine.sh "$root/bin/$name"
	done
	echo "machine machine" >"$root/tests/list"
}

# start NUMBER WORK
start() {
	number=$1 other=$((3 - $1)) what=$2
	run_guest "$GUEST_SECONDS" "name=m$number work=$what rounds=${ROUNDS:-5} test_seconds=$GUEST_SECONDS" -smp 1 \
		-netdev "dgram,id=link,local.type=unix,local.path=$work/m$number.socket,remote.type=unix,remote.path=$work/m$other.socket" \
		-device "virtio-net-pci,netdev=link,mac=52:54:00:00:00:0$number" \
		>"$work/$what-m$number.log" 2>&1
}

machines=
end_machines() {
	for machine in $machines; do
		kill "$machine" 2>/dev/null || true
	done
	machines=
	rm -f "$work"/m?.socket
}
trap end_machines EXIT
trap 'exit 1' HUP INT TERM

# What m1 says, as it comes.
follow() {
	tail -n +1 -s 0.5 -f --pid "$1" "$2" | sed -un 's|\r||g; /^machines: \(figure\|route\),/d; s/^machines: //p'
}

figures_of() {
	tr -d '\r' <"$1" | grep '^machines: figure,'
}

# For awk.
median='
function median(numbers, n,    i, j, x) {
	for (i = 2; i <= n; i++) {
		x = numbers[i]
		for (j = i - 1; j && numbers[j] > x; j--)
			numbers[j + 1] = numbers[j]
		numbers[j + 1] = x
	}
	return n % 2 ? numbers[(n + 1) / 2] : (numbers[n / 2] + numbers[n / 2 + 1]) / 2
}
'

# A table of the times of m1's log: medians over the rounds, and medians of ratios of one round.
show_times() {
	awk -F, "$median"'
	# Of all rounds. `column` is the least or the median time of a job.
	function time(which, column,    n, list) {
		for (n = 0; n < rounds; n++)
			list[n + 1] = times[which, row, n + 1, column]
		return median(list, n)
	}
	function ratio(a, b, column,    n, list) {
		for (n = 0; n < rounds; n++)
			list[n + 1] = times[a, row, n + 1, column] / times[b, row, n + 1, column]
		return median(list, n)
	}
	function show(which, over) {
		printf "%s %s: %.0f us (least %.0f), %.2f (%.2f) of the time of %s\n", row, which, time(which, 11),
			time(which, 10), ratio(which, over, 11), ratio(which, over, 10), over
	}
	{
		row = $5 "," $6
		if (!seen[row]++)
			rows[++n_rows] = row
		times[$3 "," $4, row, $2, 10] = $10
		times[$3 "," $4, row, $2, 11] = $11
		rounds = $2
	}
	END {
		for (i = 1; i <= n_rows; i++) {
			row = rows[i]
			folded = row ~ /^allreduce/ ? "fold" : "plain"
			show("none,plain", "tc," folded)
			show("tc," folded, "none,plain")
			show("xdp," folded, "none,plain")
			show("xdp," folded, "tc," folded)
		}
	}'
}

run() {
	rm -f "$work"/m?.socket
	start 2 "$1" &
	machines=$!
	start 1 "$1" &
	first=$!
	machines="$machines $first"
	log=$work/$1-m1.log
	follow "$first" "$log" &
	wait "$first" || true
	wait "$!" || true
	end_machines
	tr -d '\r' <"$log" | grep -q '^guest: PASS$' || die "$1: FAILED, see $work/$1-m1.log and -m2.log"
	say "$1: ok"
	[ "$1" != measure ] || figures_of "$log" | show_times
}

# ---- latency ----------------------------------------------------------------------------------

# The least times of small Allreduces in a lab on one CPU of this machine: WAY:BYTES:MICROSECONDS,…
native() {
	for way in plain star direct; do
		case "$way" in
		plain) set -- --off ;;
		*) set -- -x FOLDBACK_ROUTE=fold -x "FOLDBACK_ALGORITHM=$way" -x FOLDBACK_SETUP_CALLS=0 ;;
		esac
		taskset -c 0 target/release/foldback lab run --private --hosts 2 --timeout 120 "$@" -- \
			target/mpi-tests/openmpi4/latency --sizes 8,1024 --iterations 1000 --warmup 100 2>/dev/null |
			awk -F, -v "way=$way" '$1 == "allreduce" { printf "%s:%s:%s,", way, $2, $6 }'
	done
}

run_latency() {
	native=
	if [ -z "$DILATION" ]; then
		[ "$(id -u)" -eq 0 ] || die "latency: run it as root, or say DILATION=N"
		native=$(native)
		[ -n "$native" ] || die "latency: no times of a lab here: foldback lab run --off -- true"
	fi
	log=$work/latency.log
	(run_guest "$LATENCY_SECONDS" "name=m1 work=latency rounds=${ROUNDS:-1} hosts=$HOSTS delays=$DELAYS sizes=$SIZES \
iterations=$ITERATIONS warmup=$WARMUP dilation=$DILATION native=$native test_seconds=$LATENCY_SECONDS" -smp 1 -icount shift=0,sleep=off >"$log" 2>&1) &
	machines=$!
	follow "$machines" "$log" &
	wait "$machines" || true
	wait "$!" || true
	machines=
	tr -d '\r' <"$log" | grep -q '^guest: PASS$' || die "latency: FAILED, see $log"
	tr -d '\r' <"$log" | sed -n 's/^machines: \(figure\|route\),/\1,/p' | show_ratios
}

# A line for each delay, number of hosts and size. The ratios of a round are of calls one behind the other, and in
# brackets of the mean over calls and ranks with a barrier between. (Not of the slowest rank: one begins earlier by
# the time of a frame.) The router is right if its calls take at most 1.15 of the time of the best way.
show_ratios() {
	awk -F, "$median"'
	function ratio(a, b, column,    n, list) {
		for (n = 1; n <= rounds; n++)
			list[n] = times[a, row, n, column] / times[b, row, n, column]
		return median(list, rounds)
	}
	function best(column,    i, found) {
		found = 1
		for (i = 2; i <= 4; i++)
			if (ratio(way[i], way[found], column) < 1)
				found = i
		return way[found]
	}
	BEGIN { split("plain star direct shards auto", way, " ") }
	$2 == "calibrate" { next }
	$1 == "route" {
		# Classes are powers of two.
		chosen[$3 "," $4 "," $6] = chosen[$3 "," $4 "," $6] " " $7
		next
	}
	{
		row = $3 "," $4 "," $7
		if (!seen[row]++)
			rows[++n_rows] = row
		times[$5, row, $2, 14] = $14
		times[$5, row, $2, 18] = $18
		rounds = $2
	}
	END {
		print "us,hosts,bytes: MPI / star, / direct, / shards, / router; router / best way, chosen"
		for (r = 1; r <= n_rows; r++) {
			row = rows[r]
			printf "%s:", row
			for (i = 2; i <= 5; i++)
				printf " %.2f (%.2f)%s", ratio("plain", way[i], 18), ratio("plain", way[i], 14), i < 5 ? "," : ";"
			b = best(18)
			s = best(14)
			right = ratio("auto", b, 18) <= 1.15 || ratio("auto", s, 14) <= 1.15
			printf " %.2f of %s (%.2f of %s),%s%s\n", ratio("auto", b, 18), b, ratio("auto", s, 14), s, chosen[row],
				right ? "" : " WRONG"
		}
	}'
}

fetch_kernel
begin_root
add_mpi
add_machine
pack_root
[ $# -gt 0 ] || set -- check measure
for what in "$@"; do
	if [ "$what" = latency ]; then
		say "$what: booting a machine, $release"
		run_latency
	else
		say "$what: booting two machines, $release"
		run "$what"
	fi
done
