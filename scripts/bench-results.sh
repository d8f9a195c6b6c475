#!/bin/sh
# Runs every benchmark in short and collects tables and summaries in benchmarks/results/DATE-CPU/, one
# directory for each setting. A README.md there says where it was measured and what it cannot tell.
# Nothing else should run on the machine meanwhile.
#
#   scripts/bench-results.sh          8 to 12 minutes on 2 CPUs
#
# ROUNDS (3), ITERATIONS (200), HOSTS (2,4,8,16), SETTINGS (all below, but for apps) and OUT change it;
# tiny values make a trial of it. SETTINGS='apps apps-1gbit' is an hour of whole programs.
set -eu
cd "$(dirname "$0")/.."

die() {
	echo "bench-results: $*" >&2
	exit 1
}

[ "$(id -u)" -eq 0 ] || die "needs root, to load BPF programs and make network namespaces"
foldback=target/release/foldback
[ -x "$foldback" ] || die "no $foldback: run make build"

rounds=${ROUNDS:-3}
iterations=${ITERATIONS:-200}
hosts=${HOSTS:-2,4,8,16}
cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
[ -n "$cpu" ] || cpu=$(uname -m)
name=$(printf %s "$cpu" | tr -cs 'A-Za-z0-9' '-' | tr '[:upper:]' '[:lower:]')
out=${OUT:-benchmarks/results/$(date -u +%Y-%m-%d)-${name%-}}
settings=${SETTINGS:-1-rank large 2-ranks 4-ranks mtu-9000 1gbit mpich4 mpich5 double overlap floor}

# The collectives that most programs call most.
some=allreduce,reduce,bcast,barrier,allgather,alltoall

bench() {
	setting=$1
	shift
	echo "bench-results: $setting: foldback bench $*" >&2
	"$foldback" bench "$@" --repeats "$rounds" --timeout 300 --out "$out/$setting" \
		>"$out/$setting.log"
	rm "$out/$setting.log"
	# Every run's lines, and pictures of the tables: much, and seldom wanted.
	rm -f "$out/$setting/samples.csv" "$out/$setting/osu-samples.csv" "$out/$setting"/*.svg
	# shellcheck disable=SC2016 # backquotes of Markdown
	printf '| [%s](%s/) | `foldback bench %s --repeats %s` |\n' "$setting" "$setting" "$*" \
		"$rounds" >>"$list"
}

measure() {
	case "$1" in
	1-rank)
		bench 1-rank --hosts "$hosts" --sizes 4,64,1400,16384 --iterations "$iterations"
		;;
	large)
		bench large --hosts "$few" --collective allreduce,bcast --iterations "$iterations" \
			--sizes 65536,262144,1048576,4194304,16777216
		;;
	2-ranks)
		bench 2-ranks --hosts "$few" --ranks-per-host 2 --collective "$some" \
			--sizes 4,1400 --iterations "$iterations"
		;;
	4-ranks)
		bench 4-ranks --hosts "$few" --ranks-per-host 4 --collective allreduce,bcast,barrier \
			--sizes 4,1400 --iterations "$fewer"
		;;
	mtu-9000)
		bench mtu-9000 --hosts "$few" --mtu 9000 --collective "$some" \
			--sizes 4,1400,8192,16384 --iterations "$iterations"
		;;
	1gbit)
		bench 1gbit --hosts "$few" --rate 1gbit --collective "$some" \
			--sizes 4,1400,8192,65536 --iterations "$iterations"
		;;
	mpich4)
		# Its ranks do not yield: with more of them than CPUs a call takes milliseconds.
		bench mpich4 --mpi openmpi4,mpich4 --hosts 2 --sizes 4,64,1400,16384 \
			--iterations "$iterations"
		;;
	mpich5)
		if [ ! -x target/mpis/mpich5/bin/mpiexec ]; then
			echo "bench-results: mpich5 is not installed (make setup-mpis), and left out" >&2
			return
		fi
		bench mpich5 --mpi openmpi4,mpich5 --hosts "$few" --collective "$some" \
			--sizes 4,1400,16384 --iterations "$iterations"
		;;
	double)
		bench double --hosts "$few" --type double --sizes 8,1400,8192 \
			--collective allreduce,reduce,reduce_scatter,reduce_scatter_block,scan \
			--iterations "$iterations"
		;;
	overlap)
		bench overlap --overlap --hosts 2,4 --collective iallreduce,ibcast \
			--sizes 4,1024,16384,65536 --iterations "$fewer"
		bench overlap-1gbit --overlap --hosts 2,4 --collective iallreduce,ibcast \
			--rate 1gbit --sizes 4,1024,16384,65536 --iterations "$fewer"
		;;
	floor)
		echo "bench-results: floor" >&2
		"$foldback" bench floor --repeats "$rounds" --timeout 300 --out "$out/floor" \
			>"$out/floor.log"
		rm "$out/floor.log"
		# shellcheck disable=SC2016
		printf '| [floor](floor/) | `foldback bench floor --repeats %s` |\n' "$rounds" >>"$list"
		;;
	apps) bench apps apps --hosts "$few" ;;
	apps-1gbit) bench apps-1gbit apps --hosts "$few" --rate 1gbit ;;
	*) die "SETTINGS: there is no $1" ;;
	esac
}

# All but the greatest number of hosts, if there are others.
few=${hosts%,*}
fewer=$((iterations / 2 + 1))
mkdir -p "$out"
list=$(mktemp)
trap 'rm -f "$list"' EXIT
begin=$(date +%s)
for setting in $settings; do
	measure "$setting"
done

{
	echo "# Results of $(date -u +%Y-%m-%d), $cpu"
	echo
	echo "Made by \`make bench-results\` in $((($(date +%s) - begin + 59) / 60)) minutes, at" \
		"$(git describe --always --dirty 2>/dev/null || echo "an unknown commit")."
	echo "How it is measured: [docs/benchmarks.md](../../../docs/benchmarks.md)."
	echo
	echo "* $(nproc) CPUs ($cpu), $(awk '/^MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo)," \
		"Linux $(uname -r)"

	echo
	echo "Each directory has a table (\`table.md\`, \`overlap.md\` or \`floor.md\`) whose last lines say" \
		"where and how it was"
	echo "measured, the same for other tools (\`summary.csv\`, \`growth.csv\`, …); the command draws"
	echo "charts besides, which are not kept."
	echo
	echo "| results | of |"
	echo "|---|---|"
	cat "$list"
	echo
	echo "## Limits"
	echo
	echo "* The hosts are network namespaces of one machine, joined by veth and a bridge. They share its" \
		"CPUs, which also do"
	echo "  the work of all wires; with more ranks than CPUs a call waits for the scheduler as well." \
		"No real NIC was measured."
	echo "* $rounds rounds: a ratio's least and greatest say how much to believe of it. The fitted" \
		"growth goes through a few"
	echo "  numbers of hosts and holds between them, not beyond."
	echo "* CPU time is that of the ranks, waiting included (a rank that waits polls)."
	echo "* Rows with a * were left to the real MPI in both runs: their ratio says how much two equal" \
		"runs differ."
} >"$out/README.md"
echo "bench-results: in $out" >&2
