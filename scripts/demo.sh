#!/bin/sh
# Four hosts on this machine; an MPI program that knows nothing of foldback, with each MPI, with and
# without it; the work of the kernels; and the gain. Results in target/demo/.
set -eu
cd "$(dirname "$0")/.."

demo=demo
out=target/demo
. scripts/demo-start.sh

say() {
	printf '\n== %s\n' "$*"
}

for mpi in openmpi4 mpich4; do
	program=target/mpi-tests/$mpi/histogram
	say "$mpi: a histogram of text files by four hosts, without foldback"
	"$foldback" lab run --mpi "$mpi" --hosts 4 --timeout 120 --off -- "$program" |
		tee "$out/$mpi-off.txt"
	say "$mpi: the same with foldback"
	"$foldback" lab run --mpi "$mpi" --hosts 4 --timeout 120 \
		-x FOLDBACK_SETUP_CALLS=0 -x FOLDBACK_STATS="$PWD/$out/$mpi-stats.json" -- "$program" |
		tee "$out/$mpi-on.txt"
	if cmp -s "$out/$mpi-off.txt" "$out/$mpi-on.txt"; then
		echo "demo: $mpi: the answers are equal"
	else
		echo "demo: $mpi: the answers differ: $out/$mpi-off.txt, $out/$mpi-on.txt" >&2
		exit 1
	fi
	say "$mpi: what the kernels of the four hosts did"
	python3 - "$out/$mpi-stats.json" <<'PYTHON'
import json
import sys

job = json.load(open(sys.argv[1]))
for line in job["collectives"]:
    way = line["route"] + (": " + line["reason"] if line["reason"] else "")
    print(f'{line["collective"]:10} {line["calls"]:8} calls  {way}')
names = ["contributions_folded", "chunks_completed", "fan_outs", "deposited", "frames_in", "frames_out"]
print(f'{"host":10}' + "".join(f"{name:>22}" for name in names))
for host in job["hosts"]:
    print(f'{host["host"]:10}' + "".join(f'{host["kernel"][name]:22}' for name in names))
if not any(host["kernel"]["contributions_folded"] for host in job["hosts"]):
    sys.exit("demo: the kernel folded nothing: " + str(job["no_group"]))
PYTHON
done

# The history of residuals of eight ranks of $1 on $2 hosts, a hash of all bits.
history() {
	mpi=$1 hosts=$2
	shift 2
	"$foldback" lab run --mpi "$mpi" --hosts "$hosts" --ranks-per-host $((8 / hosts)) --timeout 120 -x FOLDBACK_SUM=exact \
		-x FOLDBACK_REPORT=off "$@" -- "target/mpi-tests/$mpi/cg" | sed -n 's/.* history \([0-9a-f]*\),.*/\1/p'
}

say "conjugate gradients by eight ranks, wherever they are: the history of residuals, a hash of all bits"
printf '%-12s%5s  %-20s%s\n' MPI hosts "without foldback" "with exact sums" | tee "$out/history.txt"
for mpi in openmpi4 openmpi5 mpich4 mpich5 intel; do
	[ -x "target/mpi-tests/$mpi/cg" ] || continue
	for hosts in 1 2 4 8; do
		printf '%-12s%5s  %-20s%s\n' "$mpi" "$hosts" "$(history "$mpi" "$hosts" --off)" "$(history "$mpi" "$hosts")"
	done
done | tee -a "$out/history.txt"
if [ "$(awk 'NR > 1 { print $4 }' "$out/history.txt" | sort -u | wc -l)" != 1 ]; then
	echo "demo: the histories with exact sums differ: $out/history.txt" >&2
	exit 1
fi

# wordcount with the option $1, if any, and the lab's options $2 …: the answer in $out/words$1.txt, the seconds printed.
words() {
	way=$1
	shift
	"$foldback" lab run --mpi openmpi4 --hosts 4 --timeout 120 -x FOLDBACK_REPORT=off "$@" -- \
		target/mpi-tests/openmpi4/wordcount ${way:+"$way"} --top 1 "$out/text" \
		>"$out/words$way.txt" 2>"$out/words$way-errors.txt" || {
		cat "$out/words$way-errors.txt" >&2
		exit 1
	}
	sed -n 's/^wordcount: .* counting \([0-9.]*\) s.*/\1/p' "$out/words$way-errors.txt"
}

say "20 MB of text on four hosts: its words, counted by key by plain MPI and by foldback"
mkdir "$out/text"
collect_text 20000000 "$out/text/all"
plain=$(words --plain --off)
folded=$(words "" -x FOLDBACK_SETUP_CALLS=0)
if ! cmp -s "$out/words--plain.txt" "$out/words.txt"; then
	echo "demo: the counts of words differ: $out/words--plain.txt, $out/words.txt" >&2
	exit 1
fi
awk -v plain="$plain" -v folded="$folded" 'NR == 1 { first = "\"" $2 "\" " $1 " times" }
	END { print $0 ", " first "; plain MPI " plain " s, foldback " folded " s; the answers are equal" }' \
	"$out/words.txt" | tee "$out/wordcount.txt"

say "Allreduce and exchanges between pairs of ranks on four hosts, with and without foldback, in turns"
"$foldback" bench --hosts 4 --collective allreduce,alltoallv,halo2d --sizes 4,64,1024,4096,16384,65536 \
	--repeats 3 --iterations 500 --out "$out"
