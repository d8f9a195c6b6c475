#!/bin/busybox sh
# shellcheck shell=dash
# The first process of a machine of scripts/test-cluster.sh, in its initramfs: hands on to Debian's.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t devtmpfs devtmpfs /dev
# shellcheck disable=SC2013 # one word a line
for module in $(cat /modules/order); do
	insmod "$module" || echo "init: cannot load $module"
done
mkdir /debian
mount -t ext4 /dev/vda /debian
umount /proc
mount --move /dev /debian/dev
exec switch_root /debian /sbin/init
