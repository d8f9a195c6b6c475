#!/bin/sh
# Runs in the machines of scripts/test-cluster.sh, as root, after systemd has booted them. They are called m1, m2, …
# m1 does the parts that the kernel's parameter `parts` names, or all, after `install` and before `remove`:
#
#   jobs       Open MPI and MPICH, by an ordinary user
#   nics       each kind of NIC by TC and by XDP, chosen in /etc/foldback.conf
#   mtu        9000 bytes on each kind of NIC: longer chunks
#   offloads   without what the NICs do for the CPU, and with it again
#   flap       a link that goes down in mid-run, and comes back
#   pause      a machine that stands still in mid-run
#   kills      agents killed in mid-run, which systemd starts again
#   firewall   nftables that drop the port of frames, on the way in and on the way out
#   firewalld  its service for the port of frames
#   bond       a bond that loses its active NIC in mid-run
#   vlan       a VLAN of a NIC
#   networks   a second network, chosen in /etc/foldback.conf, which goes down in mid-run
#   beside     xdp-filter and its dispatcher on the NIC of the frames, before the agent's programs and after them
#   module     foldback_simd by DKMS on one machine, for long chunks of jobs of all
#   podman     ranks in containers of Podman, by root and by an ordinary user, and with networks of their own
#   apptainer  ranks in containers of Apptainer, by an ordinary user; not on Debian 12, which has no package of it
#
# Each part ends with a line "cluster: NAME: ok". By `on MACHINE COMMAND` m1 runs commands on others, through a network
# that no part touches.
#
# By other names it is what a job runs: see "called by jobs" below.
# shellcheck disable=SC2317 # main calls the parts by their names
PARTS="jobs nics mtu offloads flap pause kills firewall firewalld bond vlan networks beside module podman"
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
	processes=
	for each in $machines; do
		{
			on "$each" "$@" >"$here/each-$each" 2>&1
			echo $? >"$here/status-$each"
		} &
		processes="$processes $!"
	done
	# A job may be under way beside them.
	# shellcheck disable=SC2086 # words
	wait $processes
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

# Of the next jobs: their user, machines, ranks on each, and the command that starts a container for a rank, if any.
user=alice
hosts_of_job=
ranks=1
container=

# job openmpi4|mpich4 SETTINGS PROGRAM ARG…: settings are words NAME=VALUE.
job() {
	mpi=$1 settings=$2 program=$3
	shift 3
	rm -f "$here/stats" "$here/output"
	hosts=
	size=0
	for host in ${hosts_of_job:-$machines}; do
		hosts=$hosts,$host:$ranks size=$((size + ranks))
	done
	hosts=${hosts#,}
	case "$mpi" in
	openmpi4)
		launcher="mpirun.openmpi --host $hosts -np $size --allow-run-as-root --bind-to none --mca mpi_yield_when_idle 1
			--mca btl_tcp_if_include $mpi_network --mca oob_tcp_if_include $mpi_network --mca pml ob1 --mca btl self,vader,tcp"
		;;
	# A container hands on no descriptor, by which ranks speak to their launcher otherwise.
	mpich4) launcher="mpiexec.hydra ${container:+-pmi-port} -hosts $hosts -n $size -bind-to none -genv UCX_NET_DEVICES $(nic 1)" ;;
	esac
	# shellcheck disable=SC2116,SC2086 # one line
	timeout "$JOB_SECONDS" runuser -l $user -c "$(echo env FOLDBACK_STATS=$here/stats FOLDBACK_REPORT=line $settings \
		foldback run -- $launcher $container "/cluster/$mpi/$program") $*" </dev/null >"$here/output" 2>&1
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

# fault openmpi4|mpich4 SETTINGS STRIKE MEND: a job in the middle of which one command brings a fault and the other ends
# it. A sum is under way when it comes, 200 collectives follow, and as many when it is over, on a new communicator.
fault() {
	rm -f "$here/begun"
	each "rm -f $here/struck $here/mended" || die "no machines"
	job "$1" "$2" orphan --calls 200 --command /cluster/begin --until /cluster/mended --dup &
	job=$!
	until_true 120 test -e "$here/begun" || die "the job does not begin"
	$3 || die "no fault: $3"
	touch "$here/struck"
	sleep 3
	kill -0 $job || die "the job ended while the fault was there"
	$4 || die "the fault does not end: $4"
	each "touch $here/mended" || die "no machines"
	wait $job || die "$1: orphan, by $3"
	grep -q '^orphan: OK' "$here/output" || die "$1: orphan, by $3"
	say "$part: $1: $3: right answers; asked again $(counter asked_again), rescued by sockets $(counter rescued)"
}

# After a fault.
folds_again() {
	job openmpi4 "$FOLD" conformance --calls 100 --seed 6 --many-clocks || die "the next job"
	folded tc-ingress 200
}

# ---- called by jobs ---------------------------------------------------------------------------

# The agent and this user's groups, in mid-run.
look() {
	foldback status --json >"$here/status.new" && mv "$here/status.new" "$here/status"
}

# Rank 0 waits here while a sum is under way, until the fault is there.
begin() {
	touch "$here/begun"
	until_true 120 test -e "$here/struck"
}

# Ranks go on when it is over.
mended() {
	test -e "$here/mended"
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

# virtio's driver has XDP of its own, and vmxnet3's since Linux 6.6. For the others it is the kernel's.
nics() {
	for hook in tc xdp; do
		site FOLDBACK_HOOK=$hook
		for network in 1 2 3; do
			interface=$(nic $network)
			kind=$(kind_of "$interface")
			case "$hook,$kind" in
			tc,*) wanted=tc-ingress ;;
			xdp,virtio*) wanted=xdp-native ;;
			xdp,vmxnet3) [ "$(uname -r | cut -d . -f 1,2)" = 6.1 ] && wanted=xdp-generic || wanted=xdp-native ;;
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

# mtu_is BYTES CHUNK: on all machines, and a job has such chunks.
mtu_is() {
	each "ip link set $interface mtu $1" || die "$interface: $1"
	rm -f "$here/status"
	job openmpi4 "$FOLD FOLDBACK_NET=10.77.$network.0/24" orphan --calls 50 --command /cluster/look ||
		die "$(kind_of "$interface"): $1"
	folded tc-ingress 100 "$interface"
	grep -q "\"chunk_bytes\": *$2\>" "$here/status" || {
		cat "$here/status"
		die "$(kind_of "$interface"): with an MTU of $1, chunks have not $2 bytes"
	}
}

# qemu's vmxnet3 cuts long frames off if LRO was off when the MTU was set, and generic XDP turns LRO off. So long chunks
# do not come through there, and the job has short ones.
mtu() {
	for network in 1 2 3; do
		interface=$(nic $network)
		if [ "$(kind_of "$interface")" = vmxnet3 ]; then
			each "ethtool -K $interface lro off"
			mtu_is 9000 1408
			! ping -q -c 2 -W 2 -M "do" -s 8972 "10.77.$network.2" || die "vmxnet3 takes long frames without LRO"
			mtu_is 1500 1408
			each "ethtool -K $interface lro on"
			say "$part: vmxnet3: short chunks where long frames are cut off"
		fi
		mtu_is 9000 8896
		mtu_is 1500 1408
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

link_is() {
	[ "$(on m2 cat "/sys/class/net/$1/carrier")" = "$2" ]
}
cable_off() {
	ask m2 set_link nic1 off
	until_true 30 link_is "$(nic 1)" 0
}
cable_on() {
	ask m2 set_link nic1 on
	until_true 30 link_is "$(nic 1)" 1
}
link_down() {
	on m2 ip link set "$(nic 1)" down
}
link_up() {
	on m2 ip link set "$(nic 1)" up
}

# With other networks beside it, and without.
flap() {
	fault openmpi4 "$FOLD" cable_off cable_on
	fault openmpi4 "$FOLD FOLDBACK_NET=10.77.1.0/24" cable_off cable_on
	fault mpich4 "$FOLD" link_down link_up
	folds_again
}

m2_answers() {
	ping -c 1 -W 2 c2
}
stand_still() {
	ask m2 stop
	until_true 30 eval '! m2_answers'
}
go_on() {
	ask m2 cont
	until_true 60 m2_answers
}

pause() {
	fault openmpi4 "$FOLD" stand_still go_on
	fault mpich4 "$FOLD" stand_still go_on
	folds_again
}

# shellcheck disable=SC2016 # for the shells of the machines
kill_one() {
	on m2 'kill -9 $(systemctl show -P MainPID foldback-agent)'
}
# shellcheck disable=SC2016
kill_all() {
	each 'kill -9 $(systemctl show -P MainPID foldback-agent)'
}
agents_answer() {
	each "for _ in \$(seq 300); do ! foldback status >/dev/null 2>&1 || exit 0; sleep 0.1; done; exit 1"
}

kills() {
	before=$(on m2 systemctl show -P NRestarts foldback-agent)
	fault openmpi4 "$FOLD" kill_one agents_answer
	fault mpich4 "$FOLD" kill_all agents_answer
	[ "$(on m2 systemctl show -P NRestarts foldback-agent)" -eq $((before + 2)) ] || die "systemd started no new agents"
	folds_again
}

# drop FAMILY HOOK [DEVICE]: nftables on all machines, which drop frames and count them.
drop() {
	family=$1 place=$2
	[ $# -lt 3 ] || place="$place device $3"
	each "nft 'table $family cluster { chain frames { type filter hook $place priority 0; udp dport 337 counter drop; }; }'"
}
# Datagrams of others to the port, which show that the rules are there.
knock() {
	for each in $machines; do
		bash -c "echo knock >/dev/udp/$each/337"
	done
}
undo_drop() {
	each "nft list ruleset | sed -n 's/.*counter packets \([0-9]*\) .*/\1/p'; nft flush ruleset"
}
drop_out() {
	drop netdev egress "$(nic 1)"
}
undo() {
	undo_drop >"$here/dropped"
}

# The programs of both hooks see a frame before the firewall of its receiver does, so it keeps nothing from them. Its
# sender's keeps all. Then set-up finds out, and a group in mid-run goes on without programs.
firewall() {
	for hook in tc xdp; do
		site FOLDBACK_HOOK=$hook
		[ $hook = tc ] && wanted=tc-ingress || wanted=xdp-native
		for where in "inet input" "netdev ingress $(nic 1)"; do
			# shellcheck disable=SC2086 # words
			drop $where || die "nft: $where"
			job openmpi4 "$FOLD FOLDBACK_NET=10.77.1.0/24" conformance --calls 100 --seed 7 --many-clocks ||
				die "$hook: $where"
			knock
			undo
			folded "$wanted" 200
			dropped=$(awk '{ n += $1 } END { print n + 0 }' "$here/dropped")
			[ "$dropped" -ge $((count - 1)) ] || die "$hook: $where: nftables have dropped $dropped datagrams only"
			say "$part: $hook: $where: the programs took $done contributions; dropped $dropped datagrams, of others"
		done
	done
	each "rm /etc/foldback.conf; systemctl restart foldback-agent" || die "no agents"

	# By sums of longs: without folds conformance finds what Open MPI gets wrong by itself.
	drop_out || die "nft: egress"
	for mpi in openmpi4 mpich4; do
		before=$(date +%s)
		job "$mpi" "$FOLD FOLDBACK_NET=10.77.1.0/24" orphan --calls 200 --command true || die "$mpi: egress"
		no_group "is UDP port 337 let through"
		grep -q 'WARN .*is UDP port 337 let through' "$here/output" || die "$mpi: egress: no line says why"
		say "$part: $mpi: egress: right answers in $(($(date +%s) - before)) s: $(sed -n 's/.*"no_group": "\(.*\)".*/\1/p' \
			"$here/stats")"
	done
	undo
	fault openmpi4 "$FOLD FOLDBACK_NET=10.77.1.0/24" drop_out undo
	folds_again

	# The example, with a policy that lets through what it names, and ssh. Open MPI's own ports are others, if not said.
	each "sed 's|10.0.0.0/16|10.77.0.0/16|; s|policy accept;|policy drop; iif lo accept; tcp dport 22 accept; ip protocol icmp accept;|' \
		/usr/share/doc/foldback/foldback.nft >/run/foldback.nft; nft -f /run/foldback.nft" || die "foldback.nft"
	job openmpi4 "$FOLD OMPI_MCA_btl_tcp_port_min_v4=32768 OMPI_MCA_btl_tcp_port_range_v4=20000" \
		conformance --calls 100 --seed 9 --many-clocks || die "foldback.nft"
	each "nft flush ruleset; rm /run/foldback.nft"
	folded tc-ingress 200
}

peers_answer() {
	foldback doctor --peers "$@" >"$here/peers" 2>&1
}

# What agents say to each other passes firewalls: frames do so anyway, as above.
firewalld() {
	# shellcheck disable=SC2086 # words
	set -- $machines
	peers_answer "$@" || die "without firewalld: $(cat "$here/peers")"
	each "systemctl start firewalld && firewall-cmd --quiet --check-config" || die "firewalld"
	! peers_answer "$@" || die "firewalld lets the port through unasked"
	each "firewall-cmd --quiet --permanent --add-service=foldback && firewall-cmd --quiet --reload" || die "no service"
	peers_answer "$@" || die "with the service: $(cat "$here/peers")"
	each "firewall-cmd --quiet --add-port=32768-60999/udp --add-port=32768-60999/tcp" || die "firewall-cmd"
	job openmpi4 "$FOLD OMPI_MCA_btl_tcp_port_min_v4=32768 OMPI_MCA_btl_tcp_port_range_v4=20000" \
		conformance --calls 100 --seed 21 --many-clocks || die "a job"
	folded tc-ingress 200
	each "firewall-cmd --quiet --permanent --remove-service=foldback; systemctl stop firewalld"
}

active_slave() {
	on m2 cat /sys/class/net/fast/bonding/active_slave
}
other_slave_works() {
	[ "$(active_slave)" = "$spare" ]
}
lose_slave() {
	ask m2 set_link nic4 off
	until_true 30 other_slave_works
}
nothing() {
	:
}

bond() {
	# Later both have one address. The module makes a bond0 by itself.
	first=$(nic 4) spare=$(nic 5)
	each "ip link add fast type bond mode active-backup miimon 100 primary_reselect failure &&
		for slave in $first $spare; do ip link set \$slave down; ip link set \$slave master fast || exit; done
		ip address add 10.77.4.\$(hostname | tr -d m)/24 dev fast && ip link set fast up" || die "no bond"
	until_true 30 ping -c 1 -W 1 10.77.4.2 || die "nothing comes through the bond"
	for mpi in openmpi4 mpich4; do
		fault "$mpi" "$FOLD FOLDBACK_NET=10.77.4.0/24" lose_slave nothing
		folded tc-ingress 100 fast
		say "$part: $mpi: the programs took $done contributions, by $first and $spare"
		ask m2 set_link nic4 on
		each "until echo $first >/sys/class/net/fast/bonding/active_slave; do sleep 0.5; done" || die "$first is not back"
	done
	each "ip link del fast"
}

vlan() {
	each "ip link add link $(nic 2) name vlan5 type vlan id 5 && ip link set vlan5 up &&
		ip address add 10.77.5.\$(hostname | tr -d m)/24 dev vlan5" || die "no VLAN"
	for mpi in openmpi4 mpich4; do
		job "$mpi" "$FOLD FOLDBACK_NET=10.77.5.0/24" conformance --calls 100 --seed 10 --many-clocks || die "$mpi"
		folded tc-ingress 200 vlan5
	done
	each "ip link del vlan5"
}

second_down() {
	on m2 ip link set "$(nic 2)" down
}
second_up() {
	on m2 ip link set "$(nic 2)" up
}

networks() {
	site FOLDBACK_NET=10.77.2.0/24,10.77.3.0/24
	job openmpi4 "$FOLD" conformance --calls 100 --seed 11 --many-clocks || die "openmpi4"
	folded tc-ingress 200 "$(nic 2)"
	fault openmpi4 "$FOLD" second_down nothing
	# For a new job, while the network is still down.
	job mpich4 "$FOLD" conformance --calls 100 --seed 12 --many-clocks || die "mpich4"
	folded tc-ingress 200 "$(nic 3)"
	second_up || die "no second network"
	job mpich4 "$FOLD" conformance --calls 100 --seed 13 --many-clocks || die "mpich4"
	folded tc-ingress 200 "$(nic 2)"
	each "rm /etc/foldback.conf; systemctl restart foldback-agent" || die "no agents"
}

# no_group TEXT: the last job ended right on plain MPI, and the statistics say why.
no_group() {
	grep -q "\"no_group\": \".*$1" "$here/stats" || die "the statistics do not say: $1"
}

# Without folds conformance finds what Open MPI gets wrong by itself, so orphan runs there.
beside() {
	interface=$(nic 1) settings="$FOLD FOLDBACK_NET=10.77.1.0/24"
	each "xdp-filter load $interface -f udp && xdp-loader status $interface | grep -q xdp_dispatcher" || die "no dispatcher"
	job openmpi4 "$settings" conformance --calls 100 --seed 16 --many-clocks || die "behind xdp-filter"
	folded tc-ingress 200 "$interface"
	each "xdp-filter port 337" || die "xdp-filter port"
	job openmpi4 "$settings" orphan --calls 200 --command true || die "without the frames that xdp-filter drops"
	no_group "is UDP port 337 let through"
	each "xdp-filter port --remove 337" || die "xdp-filter port --remove"
	site FOLDBACK_HOOK=xdp
	job openmpi4 "$settings" conformance --calls 100 --seed 19 --many-clocks || die "where another XDP program is"
	grep -q 'folding by ordinary sockets alone.* is left alone; use FOLDBACK_HOOK=tc' "$here/output" || die "no line says how"
	folded none 200
	each "xdp-filter unload $interface" || die "xdp-filter unload"
	job openmpi4 "$settings" conformance --calls 100 --seed 17 --many-clocks || die "after xdp-filter"
	folded xdp-native 200 "$interface"
	# The programs stay for a while.
	each "! xdp-filter load $interface" || die "xdp-filter takes the place of the programs"
	job openmpi4 "$settings" conformance --calls 100 --seed 18 --many-clocks || die "before xdp-filter"
	folded xdp-native 200 "$interface"
	each "rm /etc/foldback.conf; systemctl restart foldback-agent" || die "no agents"
}

folds_by_module() {
	cat /sys/module/foldback_simd/parameters/by_avx2
}
agent_as_configured() {
	systemctl daemon-reload || die "systemctl daemon-reload"
	systemctl restart foldback-agent || die "the unit does not start"
}
module_is_free() {
	rmmod foldback_simd
}

# As its README says. The other machines fold by words, to the same results.
module() {
	make -C /usr/share/foldback/foldback_simd dkms-tree >/dev/null || die "make dkms-tree"
	version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' /usr/src/foldback_simd-*/dkms.conf)
	dkms install "foldback_simd/$version" >"$here/dkms" 2>&1 || {
		cat "$here/dkms" "/var/lib/dkms/foldback_simd/$version/build/make.log"
		die "dkms install"
	}
	modprobe foldback_simd || die "modprobe"
	drop_in=/etc/systemd/system/foldback-agent.service.d
	mkdir -p $drop_in
	printf '[Service]\nCapabilityBoundingSet=CAP_SYS_ADMIN\n' >$drop_in/module.conf
	agent_as_configured
	foldback doctor | grep 'fold: AVX2 by foldback_simd' || die "the agent does not find the module"
	# So that most chunks are long enough.
	interface=$(nic 1)
	each "ip link set $interface mtu 9000" || die "$interface: 9000"
	for mpi in openmpi4 mpich4; do
		before=$(folds_by_module)
		job "$mpi" "$FOLD FOLDBACK_NET=10.77.1.0/24" conformance --calls 1000 --seed 20 --many-clocks || die "$mpi"
		folded tc-ingress 1000 "$interface"
		[ "$(hosts_with fold "AVX2 by foldback_simd")" -eq 1 ] || die "$mpi: the module is not on one host"
		folds=$(($(folds_by_module) - before))
		[ $folds -ge 10 ] || die "$mpi: the module folded $folds times only"
		say "$part: $mpi: the programs took $done contributions, $folds by the module"
	done
	each "ip link set $interface mtu 1500" || die "$interface: 1500"
	rm -r $drop_in
	agent_as_configured
	until_true 120 module_is_free || die "programs hold the module"
	dkms remove "foldback_simd/$version" --all >"$here/dkms" 2>&1 || die "dkms remove: $(cat "$here/dkms")"
	rm -r "/usr/src/foldback_simd-$version"
	job openmpi4 "$FOLD" conformance --calls 100 --seed 20 --many-clocks || die "without the module"
	folded tc-ingress 200
}

library=/usr/lib/x86_64-linux-gnu/libfoldback.so

# contained_job openmpi4|mpich4: all calls. MPICH may wait for ever in MPI_Finalize (src/lab/launch/hydra.rs says why),
# when answers and statistics are there. In user namespaces of their own two ranks of a host have no part in each
# other's descriptors and memory, which UCX uses otherwise.
contained_job() {
	timeout_before=$JOB_SECONDS JOB_SECONDS=100
	job "$1" "$FOLD UCX_POSIX_USE_PROC_LINK=n UCX_TLS=^cma" conformance --calls 100 --seed 14 --many-clocks ||
		{ [ "$1" = mpich4 ] && grep '^conformance: .* ok' "$here/output"; } || die "$1, by $user"
	JOB_SECONDS=$timeout_before
	each "pkill conformance; :"
}

# By the agents of the hosts.
contained_jobs() {
	for mpi in openmpi4 mpich4; do
		contained_job $mpi
		folded tc-ingress 200 "$(nic 1)"
		say "$part: $mpi, by $user, $ranks on each machine: the programs took $done contributions"
	done
}

# The image is the root of Debian, to be read only. foldback is not in it, so the library is the host's.
podman() {
	options="--rm --ipc=host --pid=host --env-host -v /tmp:/tmp -v /cluster:/cluster -v $here:$here
		-v /run/foldback:/run/foldback -v $library:/run/libfoldback.so:ro --env LD_PRELOAD=/run/libfoldback.so
		--read-only --tmpfs /run:mode=755 --rootfs /image"
	user=root container="podman run --network=host $options"
	contained_jobs

	# Networks of their own, on one machine, are hosts that its agent does not serve.
	hosts_of_job=$(echo "$machines" | sed 's/m[0-9]*/m1/g') container="podman run $options"
	contained_job mpich4
	grep -q 'folding by ordinary sockets alone' "$here/output" || die "networks of their own: no line says how"
	folded none 200
	say "$part: networks of their own: ranks took $done contributions by ordinary sockets"

	user=alice hosts_of_job='' container="podman run --network=host --userns=keep-id $options"
	for ranks in 2 1; do
		contained_jobs
	done
	container=
}

# The image is the same directory.
apptainer() {
	container="apptainer exec --bind /cluster,$here,/run/foldback,$library:/run/libfoldback.so
		--env LD_PRELOAD=/run/libfoldback.so /image"
	contained_jobs
	container=
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
	udevadm settle --timeout 60
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
	if [ -z "$(parameter parts)" ]; then
		parts=$PARTS
		[ ! -x /usr/bin/apptainer ] || parts="$parts apptainer"
	fi
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
