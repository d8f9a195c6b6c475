#!/bin/sh
# foldback on machines of Debian, as an administrator installs it: the package, systemd, an ordinary user's jobs by
# ssh, several NICs, containers, and what happens to hosts and links in mid-run. Each machine is a qemu, with Debian's
# generic kernel and one CPU. A hub of qemu's joins their NICs, so nothing reaches another network. Needs root and, the
# first time, the network, to make a root file system.
#
#   scripts/test-cluster.sh [PART…]    all, if not said; scripts/cluster.sh says what these are, and does them
#
# DEBIAN=12|13 is the release, and KERNEL=stock|backports its kernel; 12 and stock, if not said.
# MACHINES=N runs two or more of them, three if not said. The logs are in target/machines/cluster/DEBIAN-KERNEL.
set -eu
cd "$(dirname "$0")/.."

MACHINES=${MACHINES:-3}
# Seconds until hanging machines are ended.
CLUSTER_SECONDS=3600

me=test-cluster
work=target/machines/cluster
guest_modules="virtio_pci virtio_blk ext4"
guest_kernel=amd64
guest_setup=machines
# shellcheck source=scripts/guest.sh
. scripts/guest.sh
need_tools mmdebstrap mkfs.ext4 ssh-keygen cargo-deb
[ "$(id -u)" -eq 0 ] || die "needs root, to make a root file system"

case "$KERNEL" in
ubuntu-*) die "a root of Debian has a kernel of Debian" ;;
esac
packages="systemd systemd-sysv udev openssh-server openssh-client iproute2 iputils-ping nftables ethtool kmod procps"
packages="$packages openmpi-bin mpich libelf1 zlib1g xdp-tools"
programs="conformance exchange order orphan stream"
# What the kernel has no use for here is most of it.
module_directories="arch crypto fs lib net drivers/block drivers/net drivers/virtio"

# Of containers.
packages="$packages podman crun uidmap libpam-systemd dbus-user-session netavark iptables slirp4netns"

# Of the kernel module.
packages="$packages dkms gcc make dwarves bpftool"

# It would close ports from the start on, so it is disabled below.
packages="$packages firewalld"

# Only sid has Apptainer, which does not run on Debian 12. A mirror's list of sid may be some weeks old.
if [ "$DEBIAN" != 12 ]; then
	echo "deb [check-valid-until=no] $mirror/debian sid main" >>"$lists/sources.list"
	prefer "*" sid 100
	packages="$packages apptainer"
fi

# ---- the disks --------------------------------------------------------------------------------

# Debian's, without foldback. All machines have it, and none changes it.
make_debian() {
	# With the functions below, up to make_disk.
	made_of=$({ echo "$package $packages $module_directories"; cat "$lists/sources.list"; sed -n '/^make_debian/,/^make_disk/p' "scripts/$me.sh"; } | sha256sum)
	[ ! -e "$work/debian.ext4" ] || [ "$(cat "$work/debian.of" 2>/dev/null)" != "$made_of" ] || return 0
	say "making a root of Debian $DEBIAN"
	rm -rf "$work/debian"*
	# shellcheck disable=SC2086 # words
	mmdebstrap --quiet --variant=minbase --aptopt="Dir::Etc::Preferences \"$lists/preferences\"" \
		--include="$(echo $packages "linux-headers-$release" | tr ' ' ,)" "$suite" "$work/debian" "$lists/sources.list" || die "no root of Debian $DEBIAN"
	debian=$work/debian
	for directory in $module_directories; do
		mkdir -p "$debian/lib/modules/$release/kernel/$directory"
		cp -a "$kernel/lib/modules/$release/kernel/$directory/." "$debian/lib/modules/$release/kernel/$directory"
	done
	cp "$kernel/lib/modules/$release"/modules.builtin* "$kernel/lib/modules/$release/modules.order" \
		"$debian/lib/modules/$release"
	depmod -b "$debian" "$release"
	configure_debian "$debian"
	mkfs.ext4 -q -L debian -d "$debian" "$work/debian.ext4" 4G
	rm -rf "$debian"
	echo "$made_of" >"$work/debian.of"
}

# What an administrator has done before foldback comes: names, users, keys.
configure_debian() {
	cat >"$1/etc/fstab" <<-END
		/dev/vda / ext4 defaults 0 1
		LABEL=cluster /cluster ext4 ro 0 0
		/dev/vdc /image ext4 ro 0 0
	END
	mkdir "$1/cluster" "$1/image"
	{
		echo "127.0.0.1 localhost"
		for number in $(seq 9); do
			echo "10.77.0.$number c$number"
			echo "10.77.1.$number m$number"
		done
	} >"$1/etc/hosts"
	chroot "$1" systemctl --quiet disable firewalld
	chroot "$1" useradd --create-home --shell /bin/bash alice
	# One key for each user, and one for all hosts.
	for home in root home/alice; do
		mkdir -p "$1/$home/.ssh"
		ssh-keygen -q -t ed25519 -N '' -C "$home" -f "$1/$home/.ssh/id_ed25519"
		cp "$1/$home/.ssh/id_ed25519.pub" "$1/$home/.ssh/authorized_keys"
	done
	chroot "$1" chown -R alice:alice /home/alice
	echo "c?,m?,10.77.* $(cut -d ' ' -f 1,2 "$1/etc/ssh/ssh_host_ed25519_key.pub")" >"$1/etc/ssh/ssh_known_hosts"
	cat >"$1/etc/systemd/system/cluster.service" <<-END
		[Unit]
		Description=The test of this machine
		After=multi-user.target

		[Service]
		ExecStart=/cluster/cluster.sh
		StandardOutput=file:/dev/ttyS0
		StandardError=file:/dev/ttyS0
	END
	mkdir -p "$1/etc/systemd/system/default.target.wants"
	ln -s ../cluster.service "$1/etc/systemd/system/default.target.wants"
}

# The package and what runs in the machines.
make_disk() {
	rm -rf "$work/disk" target/packages/*.deb
	mkdir "$work/disk"
	scripts/packages.sh deb >/dev/null
	cp target/packages/*.deb "$work/disk/foldback.deb"
	for name in cluster.sh look begin mended; do
		install -m 755 scripts/cluster.sh "$work/disk/$name"
	done
	for mpi in openmpi4 mpich4; do
		mkdir "$work/disk/$mpi"
		for program in $programs; do
			[ -e "target/mpi-tests/$mpi/$program" ] || die "no $mpi/$program: make -C mpi-tests"
			cp "target/mpi-tests/$mpi/$program" "$work/disk/$mpi"
		done
	done
	mkfs.ext4 -q -L cluster -d "$work/disk" "$work/cluster.ext4" 64M
	rm -rf "$work/disk"
}

make_initramfs() {
	begin_bare_root
	install -m 755 scripts/cluster-init.sh "$root/init"
	pack_root
}

# ---- networks ---------------------------------------------------------------------------------

# The NICs of each machine by the last but one byte of their addresses: kind, and the network that it is in. The kinds
# are those of qemu. Numbers 4 and 5 are for a bond.
nics="0,virtio-net-pci,0 1,virtio-net-pci,1 2,e1000e,2 3,vmxnet3,3 4,virtio-net-pci,4 5,e1000e,4"

# end MACHINE NIC hub|nic: the options of one end of a cable.
cable() {
	other=hub
	[ "$3" = nic ] || other=nic
	echo "dgram,id=net$1$2,local.type=unix,local.path=$cables/m$1-$2-$3,remote.type=unix,remote.path=$cables/m$1-$2-$other"
}

# A qemu without a machine.
start_hub() {
	set --
	for number in $(seq "$MACHINES"); do
		for nic in $nics; do
			IFS=, read -r name _ network <<-END
				$nic
			END
			set -- "$@" -netdev "$(cable "$number" "$name" hub)" \
				-netdev "hubport,id=port$number$name,hubid=$network,netdev=net$number$name"
		done
	done
	setpriv --pdeathsig TERM qemu-system-x86_64 -M none -nodefaults -no-user-config -display none "$@" \
		>"$work/hub.log" 2>&1 </dev/null &
	machines="$machines $!"
}

# start NUMBER PARTS: its process goes to `machines`.
start() {
	number=$1 parts=$2
	mkfifo "$cables/m$number.in" "$cables/m$number.out"
	set --
	for nic in $nics; do
		IFS=, read -r name kind _ <<-END
			$nic
		END
		set -- "$@" -netdev "$(cable "$number" "$name" nic)" \
			-device "$kind,netdev=net$number$name,id=nic$name,mac=52:54:00:00:0$name:0$number"
	done
	TMPDIR=$PWD/$work run_guest "$CLUSTER_SECONDS" \
		"systemd.hostname=m$number systemd.mask=serial-getty@ttyS0.service net.ifnames=1 machines=$MACHINES parts=$parts" \
		-M q35 -smp 1 \
		-drive "file=$work/debian.ext4,format=raw,if=virtio,snapshot=on" \
		-drive "file=$work/cluster.ext4,format=raw,if=virtio,snapshot=on" \
		-drive "file=$work/debian.ext4,format=raw,if=virtio,snapshot=on" \
		-chardev "pipe,id=monitor,path=$cables/m$number" -mon monitor "$@" >"$work/m$number.log" 2>&1 &
	machines="$machines $!"
}

# ---- what happens -----------------------------------------------------------------------------

# Does what m1 asks for, "MACHINE COMMAND…" for that machine's monitor, and shows the rest.
follow() {
	tail -n +1 -s 0.2 -f --pid "$1" "$work/m1.log" | sed -un 's/\r$//; s/^cluster: //p' |
		while read -r word line; do
			if [ "$word" = ask: ]; then
				echo "${line#* }" >"$cables/${line%% *}.in"
			else
				echo "$me: $word $line" >&2
			fi
		done
}

machines=
cables=$(mktemp -d)
clean_up() {
	for machine in $machines; do
		kill "$machine" 2>/dev/null || true
	done
	rm -rf "$cables"
}
trap clean_up EXIT
trap 'exit 1' HUP INT TERM

fetch_kernel
make_debian
make_initramfs
make_disk
parts=$(echo "$*" | tr ' ' ,)
say "booting $MACHINES machines, $release"
begun=$(date +%s)
start_hub
for number in $(seq "$MACHINES" -1 1); do
	start "$number" "$parts"
done
first=${machines##* }
follow "$first" &
wait "$first" || true
wait "$!" || true
tr -d '\r' <"$work/m1.log" | grep -q '^cluster: PASS$' || die "FAILED, see $work/m?.log"
say "ok, $(($(date +%s) - begun)) s"
