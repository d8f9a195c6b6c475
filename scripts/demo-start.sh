# shellcheck shell=sh disable=SC2034,SC2154
# The start of demos, sourced by them in the repository. `demo` is the demo's name, `out` the directory of its results.

if [ "$(id -u)" -ne 0 ]; then
	echo "$demo: needs root, to load BPF programs and make network namespaces" >&2
	exit 1
fi

foldback=target/release/foldback
rm -rf "$out"
mkdir -p "$out"

# Writes $1 bytes of this machine's documentation and headers to the file $2.
collect_text() {
	find /usr/share/doc /usr/share/common-licenses /usr/share/perl /usr/include /usr/lib/python3* -type f |
		LC_ALL=C sort >"$out/files"
	# Text of any file; documentation is often compressed.
	{
		grep '\.gz$' "$out/files" | tr '\n' '\0' | xargs -0 zcat
		grep -v '\.gz$' "$out/files" | tr '\n' '\0' | xargs -0 grep -Ihs ''
	} 2>/dev/null | head -c "$1" >"$2"
	if ! [ -s "$2" ]; then
		echo "$demo: no text in /usr/share/doc, /usr/include" >&2
		exit 1
	fi
	# All of it comes again until it is enough.
	while [ "$(stat -c %s "$2")" -lt "$1" ]; do
		cp "$2" "$out/more"
		cat "$out/more" >>"$2"
	done
	rm -f "$out/more"
	truncate -s "$1" "$2"
}
