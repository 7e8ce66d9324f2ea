# Life of the package without systemd: sh, in a chroot. The daemon is started by hand.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive
. /package-test/lib.sh

# ExecStart= of the unit as its user.
start() {
    command=$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/ashlar.service)
    # Words of the unit: a program and its arguments without blanks.
    ASHLAR_SOCKET=/run/ashlar/ashlar.sock setpriv --reuid ashlar --regid ashlar --clear-groups \
        $command >/tmp/log 2>&1 &
    daemon=$!
    within 60 answers || {
        cat /tmp/log
        return 1
    }
}

stop() {
    kill -TERM "$daemon"
    wait "$daemon"
}

# The kernel of this machine may have no Landlock. The guest tests the sandbox.
without_sandbox() {
    sed -i '/^sandbox/d' /etc/ashlar/ashlar.toml
}

if [ -e /package-test/ashlar-older.deb ]; then
    expect "install the older release" dpkg --install /package-test/ashlar-older.deb
    without_sandbox
    add_mirror
    cp /etc/ashlar/ashlar.toml /tmp/older.toml
    expect "start the older release" start
    expect "the older release has a whole mirror" within 60 has_whole_mirror
    identity >/tmp/older
    expect "the LUN has an identity" has '[0-9]' /tmp/older
    expect "stop the older release" stop
fi
expect "install" dpkg --force-confold --install /package-test/ashlar.deb
check_installed
if [ -e /package-test/ashlar-older.deb ]; then
    expect "the older configuration is kept" cmp /tmp/older.toml /etc/ashlar/ashlar.toml
    expect "start on the older state" start
    expect "the mirror is found by its records" within 60 has_whole_mirror
    identity >/tmp/present
    expect "hosts see the same LUN" cmp /tmp/older /tmp/present
    expect "nothing is to be changed" ashlar plan /etc/ashlar/ashlar.toml
    expect "stop after the upgrade from the older release" stop
fi
without_sandbox
expect "start" start
expect "stop" stop
keep_files
upgrade
expect "start after the upgrade" start
expect "stop after the upgrade" stop
remove_and_purge
echo "chroot: passed"
