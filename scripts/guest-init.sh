#!/bin/busybox sh
# shellcheck shell=dash
# The first process of a guest (scripts/guest.sh). Runs each line of /tests/list,
# "NAME COMMAND ARG…", and ends with one line that says whether all succeeded.
/bin/busybox --install -s /bin
# The real ip and tc of /sbin, for the tests. (This shell takes busybox's own first.)
export PATH=/sbin:/bin HOME=/root RUST_BACKTRACE=1 FOLDBACK_LIB=/bin/libfoldback.so
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
chmod 1777 /tmp /dev/shm
hostname "$(sed -n 's/.*name=\([^ ]*\).*/\1/p' /proc/cmdline)"
ip link set lo up

# shellcheck disable=SC2013 # one word a line
for module in $(cat /modules/order); do
	insmod "$module" || echo "guest: cannot load $module"
done

seconds=$(sed -n 's/.*test_seconds=\([0-9]*\).*/\1/p' /proc/cmdline)
echo "guest: up after $(cut -d ' ' -f 1 /proc/uptime) s, Linux $(uname -r)"
verdict=PASS
[ -s /tests/list ] || verdict="FAIL: nothing to run"
if dmesg | grep "Initramfs unpacking failed"; then
	verdict="FAIL: files are missing"
fi
while read -r name command; do
	echo "guest: $name: $command"
	# shellcheck disable=SC2086 # words
	timeout "$seconds" $command </dev/null 2>&1
	status=$?
	if [ "$status" -eq 0 ]; then
		echo "guest: $name: ok"
	else
		echo "guest: $name: exit status $status"
		verdict="FAIL: $name"
	fi
done </tests/list
echo "guest: $verdict"
sync
poweroff -f
