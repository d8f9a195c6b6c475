#!/bin/sh
# An MPI job between two virtual machines with a virtio NIC each, by foldback over TC and over
# native XDP, and by plain MPI. The machines have Debian 12's kernel (6.1). A socket of qemu's joins
# them. No network and no privilege are needed.
#
#   scripts/test-machines.sh [check|measure]…    both, if not said
#
# scripts/machine.sh says what these are, and does them.
set -eu
cd "$(dirname "$0")/.."

# How often to measure.
ROUNDS=${ROUNDS:-5}
# Seconds until hanging machines are ended.
GUEST_SECONDS=1500

me=test-machines
work=target/machines
guest_modules="virtio_pci virtio_net sch_ingress cls_bpf"
# shellcheck source=scripts/guest.sh
. scripts/guest.sh

libraries=/usr/lib/x86_64-linux-gnu
programs="conformance order exchange stream latency"

# Open MPI 4 of Debian, without what drives hardware.
add_mpi() {
	for program in mpirun orted; do
		add_program "$(command -v "$program")" "/bin/$program"
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
	run_guest "$GUEST_SECONDS" "name=m$number work=$what rounds=$ROUNDS test_seconds=$GUEST_SECONDS" -smp 1 \
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
	tail -n +1 -s 0.5 -f --pid "$1" "$2" | tr -d '\r' | sed -un '/^machines: figure,/d; s/^machines: //p'
}

figures_of() {
	tr -d '\r' <"$1" | grep '^machines: figure,'
}

# A table of the times of m1's log: medians over the rounds, and medians of ratios of one round.
show_times() {
	awk -F, '
	function median(numbers, n,    i, j, x) {
		for (i = 2; i <= n; i++) {
			x = numbers[i]
			for (j = i - 1; j && numbers[j] > x; j--)
				numbers[j + 1] = numbers[j]
			numbers[j + 1] = x
		}
		return n % 2 ? numbers[(n + 1) / 2] : (numbers[n / 2] + numbers[n / 2 + 1]) / 2
	}
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

fetch_kernel
begin_root
add_mpi
add_machine
pack_root
[ $# -gt 0 ] || set -- check measure
for what in "$@"; do
	say "$what: booting two machines, $release"
	run "$what"
done
