#!/bin/sh
# The most frequent words of this machine's documentation and headers, some 300 MB: by the shell's tools, by plain MPI
# without and with combining, and by foldback, on four hosts of the lab. All answers must be equal. Results in
# target/wordcount/.
#
#   scripts/wordcount-demo.sh [RUNS]    of each way, in turns (3)
set -eu
cd "$(dirname "$0")/.."

demo=wordcount-demo
out=target/wordcount
bytes=300000000
rate=${FOLDBACK_DEMO_RATE:-1gbit}
. scripts/demo-start.sh

mkdir "$out/text"
echo "wordcount-demo: collects $((bytes / 1000000)) MB of text"
collect_text "$bytes" "$out/text/all"

begin=$(date +%s.%N)
LC_ALL=C tr -cs '[:alnum:]' '\n' <"$out/text/all" | LC_ALL=C grep . | LC_ALL=C sort | LC_ALL=C uniq -c >"$out/counts"
end=$(date +%s.%N)
LC_ALL=C sort -s -k1,1nr "$out/counts" | head -n 20 >"$out/right"
awk '{ words += $1 } END { printf "%d words, %d different\n", words, NR }' "$out/counts" >>"$out/right"
cat "$out/right"
echo "$begin $end" | awk '{ printf "\ntr | sort | uniq -c: %.1f s\n", $2 - $1 }' | tee "$out/times"

# wordcount's way $1, with the lab's options $2 ….
count() {
	way=$1
	shift
	"$foldback" lab run --private --hosts 4 --rate "$rate" --timeout 600 "$@" -- \
		target/mpi-tests/openmpi4/wordcount ${way:+"$way"} "$out/text" >"$out/said" 2>"$out/errors" || {
		cat "$out/errors" >&2
		exit 1
	}
	if ! cmp -s "$out/said" "$out/right"; then
		echo "wordcount-demo: ${way:-foldback}: the answer differs: $out/said, $out/right" >&2
		exit 1
	fi
	sed -n "s/^wordcount: /${way:-foldback}: /p" "$out/errors" | tee -a "$out/times"
}

for _ in $(seq "${1:-3}"); do
	count --naive --off
	count --plain --off
	count "" -x FOLDBACK_SETUP_CALLS=0 -x FOLDBACK_REPORT=off
done
echo "wordcount-demo: all answers are equal"
