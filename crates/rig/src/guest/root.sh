#!/bin/busybox sh
# First program of a guest that was booted from a disk: finds the root file system and goes there.
/bin/busybox mkdir -p /proc /sys /dev /root
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t devtmpfs devtmpfs /dev
while read -r module; do insmod "/mod/$module"; done </mod/order
tries=0
until [ -b /dev/vda2 ] || [ $tries -gt 100 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
mount -t ext4 /dev/vda2 /root
umount /dev /proc
exec switch_root /root /init
