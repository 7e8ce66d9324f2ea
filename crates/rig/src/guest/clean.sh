# Ends what a script left behind in a shared guest: daemons, mounts, sessions, files, messages.
cd /
killall ashlar mdmon multipathd systemd-udevd
tries=0
while pidof ashlar mdmon multipathd systemd-udevd && [ $tries -lt 100 ]; do
    tries=$((tries + 1))
    sleep 0.1
done

# The last mount first: one may be inside another.
while read -r source place rest; do
    case $source:$place in
    /dev/* | *:/data | *:/n/*) echo "$place" ;;
    esac
done </proc/mounts | tac >/tmp/mounts
while read -r place; do umount "$place" || umount -l "$place"; done </tmp/mounts

if ls -d /sys/class/iscsi_session/session*; then iscsiadm -m node -u; fi
iscsiadm -m node -o delete
for connected in /sys/block/nbd*/pid; do
    [ -e "$connected" ] || continue
    device=${connected#/sys/block/}
    nbd-client -d "/dev/${device%/pid}"
done
if [ -e /dev/nvme0 ]; then nvme disconnect-all; fi
tries=0
while ls -d /sys/class/nvme-subsystem/nvme* /sys/block/nbd*/pid && [ $tries -lt 50 ]; do
    tries=$((tries + 1))
    sleep 0.1
done

rm -rf /tmp/* /run/ashlar* /var/lib/ashlar /run/mdadm /dev/md
echo 3 >/proc/sys/vm/drop_caches
dmesg -c
