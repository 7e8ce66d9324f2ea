# Life of the package with systemd: sh, in a guest.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive HOME=/root
. /package-test/lib.sh
trap '[ $? = 0 ] || journalctl -u ashlar -n 40 --no-pager' EXIT

property() {
    systemctl show --property "$1" --value ashlar.service
}

is() {
    test "$(property "$1")" = "$2"
}

differs() {
    test "$(property "$1")" != "$2"
}

logged() {
    journalctl -u ashlar --no-pager | grep -q -- "$1"
}

# Events are in journald with the fields that docs/operating.md names.
has_fields() {
    journalctl -t ashlar ASHLAR_KIND=event -o json --no-pager | grep -q '"ASHLAR_OBJECT"'
}

restart() {
    systemctl restart ashlar.service && within 60 answers
}

expect "install" dpkg --install /package-test/ashlar.deb
check_installed

expect "the service is active" systemctl is-active ashlar.service
expect "the service is enabled" systemctl is-enabled ashlar.service
expect "Type=notify" is Type notify
expect "the daemon reports its state" sh -c \
    'systemctl show --property StatusText --value ashlar.service | grep -q "^serving "'
expect "the daemon is not root" \
    test "$(stat -c %U "/proc/$(property MainPID)")" = ashlar
expect "the control socket answers" within 60 answers

# With the socket alone, a command starts the daemon.
systemctl stop ashlar.service
expect "the socket outlives the service" systemctl is-active ashlar.socket
refuse "the service is stopped" systemctl is-active ashlar.service
expect "a command starts the daemon" within 60 answers
expect "the service is active again" systemctl is-active ashlar.service

keep_files
cat >>/etc/ashlar/ashlar.toml <<'END'
[[disk]]
name = "d0"
kind = "memory"
size = "16MiB"

[[target]]
driver = "iscsi"
name = "iqn.2026-11.org.example:store"
listen = ["127.0.0.1:3260"]

[[access]]
target = "iqn.2026-11.org.example:store"
group = "hosts"
initiators = ["iqn.1993-08.org.debian:01:host1"]
luns = { 0 = "d0" }
chap = { user = "host1", secret = "credential:secrets_host1" }
END
expect "restart with a credential" restart
expect "LoadCredential passes the secret" \
    test -s /run/credentials/ashlar.service/secrets_host1
expect "the target is served" sh -c 'ashlar list targets | grep -q org.example:store'
expect "events have fields in journald" within 30 has_fields
expect "reload" systemctl reload ashlar.service
cp /etc/ashlar/ashlar.toml /tmp/valid
echo 'unknown = 1' >>/etc/ashlar/ashlar.toml
refuse "a reload refuses a wrong file" systemctl reload ashlar.service
expect "the daemon serves the former file" answers
cp /tmp/valid /etc/ashlar/ashlar.toml

# The daemon's own sandbox within the unit's, which the packaged configuration asks for.
expect "Landlock is entered" \
    within 30 logged 'sandbox: enforced'
expect "system calls are restricted" \
    within 30 logged 'sandbox: system calls are restricted'

# udevd links a loop device whose file is named as the daemon names that of an attached LUN.
modprobe --quiet loop || true
if [ -e /dev/loop-control ] && command -v losetup >/dev/null; then
    mkdir -p /run/ashlar/attached/here.7
    truncate -s 1M /run/ashlar/attached/here.7/d0
    loop=$(losetup --find --show /run/ashlar/attached/here.7/d0)
    expect "udev makes the link of an attached LUN" within 30 test -b /dev/ashlar/here.7
    losetup --detach "$loop"
    expect "udev removes the link" within 30 sh -c '! test -e /dev/ashlar/here.7'
    rm -r /run/ashlar/attached/here.7
else
    echo "not tested: the kernel has no loop devices"
fi

expect "the daemon reports to the watchdog" \
    within 240 differs WatchdogTimestampMonotonic 0
mkdir -p /etc/systemd/system/ashlar.service.d
printf '[Service]\nWatchdogSec=5s\nTimeoutAbortSec=10s\n' \
    >/etc/systemd/system/ashlar.service.d/watchdog.conf
systemctl daemon-reload
expect "restart with a short watchdog" restart
before=$(property MainPID)
kill -STOP "$before"
expect "the watchdog ends a daemon that hangs" within 120 differs NRestarts 0
expect "another daemon serves" within 60 answers
expect "its process is another" differs MainPID "$before"
rm -r /etc/systemd/system/ashlar.service.d
systemctl daemon-reload

expect "exposure is at most 2.0" sh -c \
    'systemd-analyze security --no-pager --threshold=20 ashlar.service >/tmp/security'
tail -n 1 /tmp/security

before=$(property MainPID)
upgrade
expect "an upgrade restarts the daemon" differs MainPID "$before"
expect "the new daemon serves" within 60 answers
remove_and_purge
refuse "no daemon runs" pidof ashlar
echo "package-test: passed"
