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

expect "install" dpkg --install /package-test/ashlar.deb
check_installed
# The kernel of this machine may have no Landlock. The guest tests the sandbox.
sed -i '/^sandbox/d' /etc/ashlar/ashlar.toml
expect "start" start
expect "stop" stop
keep_files
upgrade
expect "start after the upgrade" start
expect "stop after the upgrade" stop
remove_and_purge
echo "chroot: passed"
