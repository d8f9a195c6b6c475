#!/bin/sh
# Runs in the machines of scripts/test-cluster.sh, as root, after systemd has booted them. They are called m1, m2, …
# m1 does the parts that the kernel's parameter `parts` names, or all, after `install` and before `remove`:
#
#   jobs       Open MPI and MPICH, by an ordinary user
#   nics       each kind of NIC by TC and by XDP, chosen in /etc/foldback.conf
#   mtu        9000 bytes on each kind of NIC: longer chunks
#   offloads   without what the NICs do for the CPU, and with it again
#
# Each part ends with a line "cluster: NAME: ok". By `on MACHINE COMMAND` m1 runs commands on others, through a network
# that no part touches.
#
# By other names it is what a job runs: see "called by jobs" below.
# shellcheck disable=SC2317 # main calls the parts by their names
PARTS="jobs nics mtu offloads"
set -u
export LC_ALL=C.UTF-8

# Seconds that a job may take.
JOB_SECONDS=300
# Files of the test, on each machine.
here=/run/cluster

say() {
	echo "cluster: $*"
}

die() {
	say "$part: FAILED: $*"
	if [ -e "$here/output" ]; then
		echo "the last job:"
		tail -n 40 "$here/output"
		head -c 6000 "$here/stats"
	fi
	each 'journalctl --no-pager -n 40 -u foldback-agent; foldback status; ip -br address; cat /etc/foldback.conf' 2>&1
	finish FAIL
}

finish() {
	say "$1"
	for number in $others; do
		on "m$number" systemctl poweroff
	done
	sync
	systemctl poweroff
	exit
}

parameter() {
	sed -n "s/.* $1=\([^ ]*\).*/\1/p" /proc/cmdline
}

# ---- machines ---------------------------------------------------------------------------------

# on MACHINE COMMAND. One connection for all.
on() {
	machine=$1
	shift
	if [ "$machine" = m1 ]; then
		sh -c "$*" </dev/null
	else
		ssh -n -o BatchMode=yes -o ControlMaster=auto -o ControlPersist=yes -o ControlPath=/run/ssh-%h \
			-o ConnectTimeout=10 -o ServerAliveInterval=30 "c${machine#m}" "$*"
	fi
}

# A command on all machines at once, which must succeed on all. What it says comes by machine.
each() {
	for each in $machines; do
		{
			on "$each" "$@" >"$here/each-$each" 2>&1
			echo $? >"$here/status-$each"
		} &
	done
	wait
	for each in $machines; do
		cat "$here/each-$each"
	done
	for each in $machines; do
		[ "$(cat "$here/status-$each")" -eq 0 ] || return 1
	done
}

# ask MACHINE COMMAND: what the monitor of its qemu does.
ask() {
	say "ask: $*"
}

# until_true SECONDS COMMAND: whether the command succeeds within that time.
until_true() {
	until_end=$(($(date +%s) + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$(date +%s)" -lt "$until_end" ] || return 1
		sleep 0.5
	done
}

# The interface of a NIC of this machine, by its number: see scripts/test-cluster.sh.
nic() {
	for interface in /sys/class/net/*; do
		case "$(cat "$interface/address")" in
		52:54:00:00:0"$1":*) basename "$interface" ;;
		esac
	done | head -n 1
}

# ---- jobs -------------------------------------------------------------------------------------

# job openmpi4|mpich4 SETTINGS PROGRAM ARG…: of alice, one rank on each machine. Settings are words NAME=VALUE.
job() {
	mpi=$1 settings=$2 program=$3
	shift 3
	rm -f "$here/stats" "$here/output"
	hosts=$(echo "$machines" | tr ' ' ,)
	case "$mpi" in
	openmpi4)
		launcher="mpirun.openmpi --host $hosts -np $count --bind-to none --mca mpi_yield_when_idle 1
			--mca btl_tcp_if_include $mpi_network --mca oob_tcp_if_include $mpi_network --mca pml ob1 --mca btl self,vader,tcp"
		;;
	mpich4) launcher="mpiexec.hydra -hosts $hosts -n $count -bind-to none" ;;
	esac
	# shellcheck disable=SC2116,SC2086 # one line
	timeout "$JOB_SECONDS" runuser -l alice -c "$(echo env FOLDBACK_STATS=$here/stats FOLDBACK_REPORT=line $settings \
		foldback run -- $launcher "/cluster/$mpi/$program") $*" </dev/null >"$here/output" 2>&1
}

# For jobs that are to fold from the first call on.
FOLD="FOLDBACK_SETUP_CALLS=0 FOLDBACK_ROUTE=fold FOLDBACK_MAX_BYTES=4194304"

# The number of a counter of the last job, over all hosts.
counter() {
	sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$here/stats" | awk '{ sum += $1 } END { print sum + 0 }'
}

# How many hosts of the last job have this line in their statistics.
hosts_with() {
	grep -c "\"$1\": *\"$2\"" "$here/stats"
}

# folded HOOK LEAST [INTERFACE]: the programs did the work of the last job, at this hook of all machines.
folded() {
	[ -s "$here/stats" ] || die "no statistics"
	[ "$(hosts_with hook "$1")" -eq "$count" ] || die "the hook is not $1 on $count hosts"
	[ $# -lt 3 ] || [ "$(hosts_with interface "$3")" -eq "$count" ] || die "the interface is not $3 on $count hosts"
	done=$(($(counter contributions_folded) + $(counter deposited)))
	[ "$done" -ge "$2" ] || die "the programs took $done contributions only"
}

# site NAME=VALUE…: /etc/foldback.conf of all machines, which agents read when they start.
site() {
	each "printf '%s\n' $* >/etc/foldback.conf; systemctl restart foldback-agent" || die "no agents with $*"
}

# ---- called by jobs ---------------------------------------------------------------------------

# The agent and this user's groups, in mid-run.
look() {
	foldback status --json >"$here/status.new" && mv "$here/status.new" "$here/status"
}

# ---- parts ------------------------------------------------------------------------------------

# The package, as an administrator installs it. It enables nothing by itself.
install() {
	each "dpkg --install /cluster/foldback.deb" >"$here/dpkg" 2>&1 || {
		cat "$here/dpkg"
		die "dpkg"
	}
	each "! systemctl --quiet is-active foldback-agent" || die "the package starts the agent unasked"
	each "systemctl --quiet enable --now foldback-agent" || die "the unit does not start"
	each "systemctl --quiet is-active foldback-agent" || die "the unit is not active"
	each "foldback doctor" >"$here/doctor" 2>&1 || {
		cat "$here/doctor"
		die "foldback doctor"
	}
	runuser -l alice -c "foldback status --json" | grep -q '"groups"' || die "the agent does not answer alice"
}

# By the defaults, as a user types it, and by programs that know the answers.
jobs() {
	for mpi in openmpi4 mpich4; do
		job "$mpi" "" stream --calls 3000 || die "$mpi: stream"
		folded tc-ingress 500
		grep -q 'foldback: folded [0-9,]* of [0-9,]* collective calls' "$here/output" || die "$mpi: no line at the end"
		while read -r program arguments; do
			# shellcheck disable=SC2086 # words
			job "$mpi" "$FOLD" "$program" $arguments || die "$mpi: $program"
			folded tc-ingress 200
			say "$part: $mpi: $program: the programs took $done contributions"
		done <<-END
			conformance --calls 200 --seed 3 --many-clocks
			exchange --rounds 1 --max-bytes 20000
			order --rounds 1
		END
	done
}

kind_of() {
	basename "$(readlink "/sys/class/net/$1/device/driver")"
}

# Only virtio's driver of Linux 6.1 has XDP of its own; for the others it is the kernel's.
nics() {
	for hook in tc xdp; do
		site FOLDBACK_HOOK=$hook
		for network in 1 2 3; do
			interface=$(nic $network)
			kind=$(kind_of "$interface")
			case "$hook,$kind" in
			tc,*) wanted=tc-ingress ;;
			xdp,virtio*) wanted=xdp-native ;;
			xdp,*) wanted=xdp-generic ;;
			esac
			job openmpi4 "$FOLD FOLDBACK_NET=10.77.$network.0/24" conformance --calls 100 --seed 4 --many-clocks ||
				die "$kind: $hook"
			folded "$wanted" 200 "$interface"
			say "$part: $kind: $wanted: the programs took $done contributions"
		done
	done
	each "rm /etc/foldback.conf; systemctl restart foldback-agent" || die "no agents"
}

mtu() {
	for network in 1 2 3; do
		interface=$(nic $network)
		for bytes in 9000 1500; do
			each "ip link set $interface mtu $bytes" || die "$interface: $bytes"
			[ $bytes = 9000 ] && chunk=8896 || chunk=1408
			rm -f "$here/status"
			job openmpi4 "$FOLD FOLDBACK_NET=10.77.$network.0/24" orphan --calls 100 --command /cluster/look ||
				die "$(kind_of "$interface"): $bytes"
			folded tc-ingress 100 "$interface"
			grep -q "\"chunk_bytes\": *$chunk\>" "$here/status" || {
				cat "$here/status"
				die "$(kind_of "$interface"): with an MTU of $bytes, chunks have not $chunk bytes"
			}
		done
		say "$part: $(kind_of "$interface"): chunks of 8896 bytes, and of 1408 again"
	done
}

offloads() {
	for to in off on; do
		for network in 1 2 3; do
			interface=$(nic $network)
			# A feature that a NIC cannot change is no error of this test.
			each "for feature in rx tx sg tso gso gro lro; do
				ethtool -K $interface \$feature $to 2>/dev/null; done; :"
			each "ethtool -k $interface | grep -q '^generic-receive-offload: $to'" || die "$interface: gro is not $to"
			job openmpi4 "$FOLD FOLDBACK_NET=10.77.$network.0/24" conformance --calls 100 --seed 5 --many-clocks ||
				die "$(kind_of "$interface"): $to"
			folded tc-ingress 200 "$interface"
			say "$part: $(kind_of "$interface"): $to: $(ethtool -k "$interface" |
				awk -v "to=$to" '/offload: |checksumming: / && $2 == to { n++ } END { print n }') features"
		done
	done
}

# Nothing is left of it, and nothing runs.
remove() {
	each "dpkg --remove foldback" >"$here/dpkg" 2>&1 || die "dpkg --remove: $(cat "$here/dpkg")"
	each "! systemctl --quiet is-active foldback-agent" || die "removed, and the agent runs"
	each "! pgrep -x foldback" || die "removed, and a process is left"
	each "! systemctl --quiet is-enabled foldback-agent 2>/dev/null" || die "removed, and still enabled"
	each "rm -f /etc/foldback.conf; dpkg --purge foldback" >"$here/dpkg" 2>&1 || die "dpkg --purge: $(cat "$here/dpkg")"
	left=$(each "find / -xdev -name '*foldback*'; tc qdisc show | grep clsact; ls -d /run/foldback 2>/dev/null || :")
	[ -z "$left" ] || die "left: $left"
}

# ---- boot -------------------------------------------------------------------------------------

main() {
	number=$(hostname | tr -d m)
	count=$(parameter machines)
	machines=$(seq -s ' ' -f 'm%g' "$count")
	others=$(seq 2 "$count")
	mpi_network=10.77.1.0/24
	part=boot
	mkdir -p "$here"
	chmod 777 "$here"
	for network in 0 1 2 3; do
		ip address add "10.77.$network.$number/24" dev "$(nic $network)"
		ip link set "$(nic $network)" up
	done
	ip route add default via 10.77.1.254
	say "$(hostname): up after $(cut -d ' ' -f 1 /proc/uptime) s, $(systemctl is-system-running)"
	[ "$number" = 1 ] || exit 0

	for number in $others; do
		until_true 300 on "m$number" true || die "m$number does not answer"
	done
	parts=$(parameter parts | tr , '\n' | grep -vx 'install\|remove' | tr '\n' ' ')
	[ -n "$(parameter parts)" ] || parts=$PARTS
	for part in install $parts remove; do
		begun=$(date +%s)
		"$part"
		say "$part: ok, $(($(date +%s) - begun)) s"
	done
	finish PASS
}

name=$(basename "$0" .sh)
[ "$name" != cluster ] || name=main
"$name"
