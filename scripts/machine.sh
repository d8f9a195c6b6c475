#!/bin/sh
# Runs in both guests of scripts/test-machines.sh, which are called m1 and m2. m2 does what m1 asks
# for; m1 does one of the following, as the kernel's parameter `work` says:
#
#   check      jobs whose answers are known, by each hook
#   measure    times of Allreduce and Bcast, by plain MPI and by each hook
#
# Or it runs in the only guest:
#
#   latency    times of Allreduce in a lab whose links have a delay, by plain MPI, each algorithm and
#              the router
#
# Also, by other names: `there COMMAND` runs a command on m2, and `serve` is m2's end of that.
set -u

# Seconds that a job may take.
JOB_SECONDS=240

say() {
	echo "machines: $*"
}

die() {
	say "$*"
	exit 1
}

parameter() {
	sed -n "s/.* $1=\([^ ]*\).*/\1/p" /proc/cmdline
}

# ---- the other machine ------------------------------------------------------------------------

# mpirun calls `there HOST COMMAND`. The other end closes the connection when the command is done.
there() {
	echo "$*" | nc m2 514
}

serve() {
	read -r line
	exec sh -c "$line" </dev/null
}

# A command on both machines, which must succeed on both.
both() {
	sh -c "$*" && there "{ $*; } && echo both: well" | awk '$0 != "both: well" { print; next } { well = 1 }
		END { exit !well }'
}

# ---- agents -----------------------------------------------------------------------------------

# On this machine. Nothing is left on the interface of the last agent.
stop_agent() {
	[ -e /run/agent.pid ] || return 0
	kill "$(cat /run/agent.pid)"
	while kill -0 "$(cat /run/agent.pid)" 2>/dev/null; do
		sleep 0.1
	done
	rm /run/agent.pid
}

start_agent() {
	foldback agent --hook "$1" --linger 3600 </dev/null >>/tmp/agent 2>&1 &
	echo $! >/run/agent.pid
	for _ in $(seq 300); do
		! foldback status >/dev/null 2>&1 || return 0
		sleep 0.1
	done
	echo "the agent does not answer:"
	cat /tmp/agent
	return 1
}

# none, tc or xdp, on both machines.
agents() {
	both "machine stop_agent"
	[ "$1" = none ] || both "machine start_agent $1"
}

# ---- jobs -------------------------------------------------------------------------------------

# job plain|fold PROGRAM ARG…: one rank on each machine. What the launcher needs is as in the lab
# (src/lab/launch/openmpi.rs).
job() {
	settings=
	[ "$1" = plain ] || settings="-x LD_PRELOAD=/bin/libfoldback.so -x FOLDBACK_SETUP_CALLS=0
		-x FOLDBACK_ROUTE=fold -x FOLDBACK_MAX_BYTES=4194304 -x FOLDBACK_TRANSPORT=programs
		-x FOLDBACK_STATS=/tmp/stats -x FOLDBACK_WINDOW=4096"
	shift
	rm -f /tmp/stats
	# shellcheck disable=SC2086 # words
	timeout "$JOB_SECONDS" mpirun --host m1,m2 -np 2 --bind-to none --allow-run-as-root \
		--mca pml ob1 --mca btl self,vader,tcp --mca btl_tcp_if_include eth0 \
		--mca mpi_yield_when_idle 1 --mca btl_base_warn_component_unused 0 \
		--mca oob_tcp_if_include eth0 --mca plm_rsh_agent /bin/there $settings "$@" </dev/null
}

# The number of a counter of the last job, over both hosts.
counter() {
	sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" /tmp/stats | awk '{ sum += $1 } END { print sum + 0 }'
}

# Runs of the agent's programs of one type, if the kernel counts them: 3 is TC, 6 XDP.
runs() {
	cat "/proc/$(cat /run/agent.pid)/fdinfo"/* |
		awk -v "type=$1" '/^prog_type:/ { ours = $2 == type } /^run_cnt:/ && ours { sum += $2 } END { print sum + 0 }'
}

# The programs did the work of the last job, at this hook of both machines.
check_statistics() {
	[ -s /tmp/stats ] || die "$*: no statistics"
	[ "$(grep -c "\"hook\": *\"$1\"" /tmp/stats)" -eq 2 ] || {
		cat /tmp/stats
		die "$*: the hook is another"
	}
	done=$(($(counter contributions_folded) + $(counter deposited)))
	[ "$done" -ge 500 ] || {
		cat /tmp/stats
		die "$*: only $done contributions were folded or deposited by the programs"
	}
	say "$*: right answers; the programs took $done contributions, on both hosts"
}

check() {
	both "echo 1 >/proc/sys/kernel/bpf_stats_enabled"
	for hook in tc-ingress xdp-native; do
		agents "${hook%-*}" || die "$hook: no agents"
		while read -r program arguments; do
			before=$(runs 6)
			# shellcheck disable=SC2086 # words
			job fold "/tests/$program" $arguments || die "$hook: $program failed"
			check_statistics "$hook" "$program"
			by_xdp=$(($(runs 6) - before))
			case $hook in
			tc-*) [ "$by_xdp" -eq 0 ] ;;
			*) [ "$by_xdp" -ge 250 ] ;;
			esac || die "$hook: $program: the XDP program ran $by_xdp times"
		done <<-END
			conformance --calls 400 --seed 3 --many-clocks
			order --rounds 2
			exchange --rounds 1 --max-bytes 20000
			stream --calls 3000
		END
	done
}

# The lines of CSV that a job prints, with what was measured before them.
figures() {
	what=$1
	shift
	job "$@" >/tmp/output 2>&1 || {
		cat /tmp/output
		die "$what failed"
	}
	cat /tmp/output
	[ ! -e /tmp/stats ] || say "$what: leaders asked $(counter asked_again) times for something again"
	grep '^[a-z0-9_]*,' /tmp/output | grep -v 'ticks\|median_us' | sed "s/^/machines: figure,$what,/"
}

# The programs stay attached after the job that folds. A broadcast of a MiB shows what TCP gets then.
measure() {
	for round in $(seq "$(parameter rounds)"); do
		for hook in none tc xdp; do
			agents "$hook" || die "$hook: no agents"
			way="fold"
			[ "$hook" != none ] || way=plain
			figures "$round,$hook,$way" "$way" /tests/latency \
				--sizes 8,1024,1048576 --iterations 200 --warmup 8
			figures "$round,$hook,plain" plain /tests/latency \
				--collective bcast --sizes 1048576 --iterations 200 --warmup 8
		done
	done
}

# ---- latency ----------------------------------------------------------------------------------

# Seconds that all agents may take to load their programs.
AGENT_SECONDS=240

# A lab of so many hosts on this machine, with an agent on each.
lab_with_agents() {
	foldback lab up --hosts "$1" 2>/tmp/lab || {
		cat /tmp/lab
		return 1
	}
	for host in $(seq 0 $(($1 - 1))); do
		foldback lab exec "h$host" foldback agent --linger 3600 </dev/null >>/tmp/agent 2>&1 &
	done
	for host in $(seq 0 $(($1 - 1))); do
		until foldback lab exec "h$host" foldback status >/dev/null 2>&1; do
			[ "$(cut -d . -f 1 /proc/uptime)" -lt "$AGENT_SECONDS" ] || return 1
			sleep 0.2
		done
	done
}

# lab_figures LABEL HOSTS plain|star|direct|shards|auto ARG…: the times of a job in the lab, and for auto
# the ways that the router had chosen at its end.
lab_figures() {
	label=$1,$2,$3 n=$2 way=$3
	shift 3
	set -- -- /tests/latency "$@"
	case "$way" in
	plain) set -- --off "$@" ;;
	auto) set -- -x FOLDBACK_ROUTE=auto "$@" ;;
	*) set -- -x FOLDBACK_ROUTE=fold -x "FOLDBACK_ALGORITHM=$way" "$@" ;;
	esac
	rm -f /tmp/stats
	foldback lab run --name lab --hosts "$n" --timeout "$JOB_SECONDS" -x FOLDBACK_SETUP_CALLS=0 \
		-x FOLDBACK_MAX_BYTES=4194304 -x FOLDBACK_TRANSPORT=programs -x FOLDBACK_STATS=/tmp/stats \
		"$@" </dev/null >/tmp/output 2>&1 || {
		cat /tmp/output
		die "$label failed"
	}
	grep '^[a-z0-9_]*,' /tmp/output | grep -v median_us | sed "s/^/machines: figure,$label,/"
	[ "$way" = auto ] || return 0
	awk -v "label=$label" '
		/"routes":/ { inside = 1 }
		inside && /"collective":/ { ours = /"Allreduce"/ }
		inside && /"up_to_bytes":/ { gsub(/[^0-9]/, ""); bytes = $0 }
		inside && /"way":/ && ours { split($0, part, "\""); print "machines: route," label "," bytes "," part[4] }
		inside && /^  \]/ { inside = 0 }' /tmp/stats
}

# How many times as long a small Allreduce takes here as on the machine outside, whose least times are the
# parameter `native`: WAY:BYTES:MICROSECONDS,… The median.
dilation() {
	for way in plain star direct; do
		lab_figures calibrate 2 "$way" --sizes 8,1024 --iterations 200 --warmup 60
	done >/tmp/calibration
	parameter native | tr , '\n' | while IFS=: read -r way bytes outside; do
		sed -n "s/.*,$way,allreduce,$bytes,//p" /tmp/calibration | awk -F, -v "outside=$outside" '{ print $4 / outside }'
	done | sort -n | awk '{ all[NR] = $1 } END { if (!NR) exit 1; printf "%.2f\n", all[int((NR + 1) / 2)] }'
}

latency() {
	export PATH="/usr/bin:$PATH"
	hosts=$(parameter hosts | tr , ' ')
	most=$(parameter hosts | tr , '\n' | sort -n | tail -n 1)
	lab_with_agents "$most" || die "no lab, or no agents"
	dilated=$(parameter dilation)
	[ -n "$dilated" ] || dilated=$(dilation) || die "the times of the machine outside are missing"
	cat /tmp/calibration 2>/dev/null
	say "times are $dilated times as long as outside, delays too"
	ways="plain star direct shards auto"
	for round in $(seq "$(parameter rounds)"); do
		for delay in $(parameter delays | tr , ' '); do
			[ "$delay" = 0 ] && length=off || length=$(echo "$delay $dilated" | awk '{ printf "%.1fus", $1 * $2 }')
			foldback lab delay "$length" || die "no delay"
			for n in $hosts; do
				for way in $ways; do
					# shellcheck disable=SC2046 # words
					lab_figures "$round,$delay" "$n" "$way" --sizes "$(parameter sizes)" \
						--iterations "$(parameter iterations)" --warmup "$(parameter warmup)" ||
						return 1
				done
				say "round $round, $delay us, $n hosts: $(cut -d ' ' -f 1 /proc/uptime) s"
			done
		done
		# The other way round.
		ways=$(echo "$ways" | awk '{ for (i = NF; i; i--) printf "%s ", $i }')
	done
}

main() {
	[ "$(parameter work)" != latency ] || {
		latency
		return
	}
	ip addr add "10.77.0.$(hostname | tr -d m)/24" dev eth0
	ip link set eth0 up
	echo '10.77.0.1 m1
10.77.0.2 m2' >>/etc/hosts
	if [ "$(hostname)" = m2 ]; then
		nc -ll -p 514 -e /bin/serve &
		until [ -e /tmp/end ]; do
			sleep 0.5
		done
		cat /tmp/agent
		return
	fi
	for _ in $(seq 120); do
		[ "$(there hostname 2>/dev/null)" != m2 ] || break
		sleep 0.5
	done
	[ "$(there hostname)" = m2 ] || die "m2 does not answer"
	"$(parameter work)"
	status=$?
	cat /tmp/agent
	there touch /tmp/end
	return $status
}

name=$(basename "$0")
case "$name" in
there) shift ;; # the host
machine)
	name=${1:-main}
	[ $# -eq 0 ] || shift
	;;
esac
"$name" "$@"
