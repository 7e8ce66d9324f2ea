#!/bin/busybox sh
# First program of the guest: devices, modules, network, then the steps of /rig/steps in order.
/bin/busybox mkdir -p /proc /sys /dev /tmp /run/lock /var/lib /mnt
/bin/busybox mount -t proc proc /proc
/bin/busybox --install -s /bin
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp
exec </dev/ttyS0 >/dev/ttyS0 2>&1
stty -echo
dmesg -n 1
while read -r module; do
    name=${module%.ko}
    [ -e "/sys/module/${name//-/_}" ] || insmod "/mod/$module" || echo "@@MODULE $module"
done </mod/order
ifconfig lo 127.0.0.1 up
ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
echo "@@BOOT $(uname -r)"

# steps: all of /rig/steps in order, up to the first that fails.
steps() {
    cd /rig/steps
    for step in *; do
        echo "@@BEGIN $step"
        (set -e; . /rig/lib.sh; . "/rig/steps/$step")
        status=$?
        echo "@@END $step $status"
        if [ $status != 0 ]; then echo "last kernel messages:"; dmesg | tail -n 30; break; fi
    done
}

# load ADDRESS: the next script's steps and files instead of those of the last one.
load() {
    cd /rig
    for old in *; do
        case $old in
        lib.sh | clean.sh | shared) ;;
        *) rm -rf "$old" ;;
        esac
    done
    wget -q -O /tmp/next "$1"
    cd /
    cpio -i -d -u </tmp/next
    rm -f /tmp/next
}

status=0
steps
while [ $status = 0 ] && [ -e /rig/shared ]; do
    (. /rig/clean.sh) </dev/null >/dev/null 2>&1
    echo "@@DONE"
    read -r address || break
    load "$address"
    steps
done
echo "@@DONE"
poweroff -f
