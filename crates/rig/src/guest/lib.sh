# Functions for the guest's steps; every step reads this file first, with `set -e`.

# start_iscsid INITIATOR: the initiator's name and its daemon; nothing when it runs under it.
start_iscsid() {
    name="InitiatorName=$1"
    if [ -e /run/iscsid.pid ]; then
        if [ "$(cat /etc/iscsi/initiatorname.iscsi)" = "$name" ]; then return 0; fi
        kill "$(cat /run/iscsid.pid)"
        sleep 1
    fi
    echo "$name" >/etc/iscsi/initiatorname.iscsi
    mkdir -p /run/lock/iscsi
    iscsid
    tries=0
    until iscsiadm -m session >/tmp/session 2>&1 || grep -q 'No active' /tmp/session; do
        tries=$((tries + 1))
        [ $tries -lt 50 ] || { cat /tmp/session; return 1; }
        sleep 0.1
    done
}

# node IQN PORTAL [KEY VALUE]...: a record for a target with these settings, entered by hand: the
# portal that a target itself names is the host's loopback, which from here is another address. A
# new record takes its settings from the configuration, which saves a run of iscsiadm for each.
node() {
    iqn=$1 portal=$2
    shift 2
    {
        echo "node.startup = manual"
        echo "node.session.timeo.replacement_timeout = 120"
        while [ $# -gt 0 ]; do
            echo "$1 = $2"
            shift 2
        done
    } >/etc/iscsi/iscsid.conf
    iscsiadm -m node -o new -T "$iqn" -p "$portal" >/dev/null
}

# disk IQN LUN: waits for the disk of a session's logical unit and prints its device.
disk() {
    tries=0
    while [ $tries -lt 100 ]; do
        for session in /sys/class/iscsi_session/session*; do
            [ "$(cat "$session/targetname" 2>/dev/null)" = "$1" ] || continue
            for block in "$session"/device/target*/*:"$2"/block/*; do
                name=${block##*/}
                if [ -b "/dev/$name" ]; then echo "/dev/$name"; return 0; fi
            done
        done
        tries=$((tries + 1))
        sleep 0.1
    done
    echo "no disk for $1 LUN $2" >&2
    return 1
}

# lines FILE: how many lines it has; 0 when there is no such file.
lines() {
    if [ -e "$1" ]; then wc -l <"$1"; else echo 0; fi
}

# write_and_acknowledge FOLDER LIST: until /tmp/stop exists, writes files of changing size with
# fsync and tells of each one that the kernel called durable.
write_and_acknowledge() {
    number=0
    while [ ! -e /tmp/stop ]; do
        number=$((number + 1))
        name=f$number
        { echo "$name"; head -c $((number % 9 * 9000 + 100)) /dev/urandom; } >/tmp/source
        sum=$(sha256sum </tmp/source)
        sum=${sum%% *}
        dd if=/tmp/source of="$1/$name" bs=64k conv=fsync 2>/tmp/dd || {
            echo "write of $name failed: $(cat /tmp/dd)"
            return 1
        }
        echo "$sum  $name" >>"$2"
        echo "@@ACK $name $sum"
    done
}

# wait_lines FILE COUNT PID: until the file has so many lines; fails when the process ends first.
wait_lines() {
    while [ "$(lines "$1")" -lt "$2" ]; do
        kill -0 "$3" || { echo "the writer ended at $(lines "$1") of $2"; return 1; }
        sleep 0.1
    done
}

# ask WORDS: has the host do something, and prints what it answers.
ask() {
    echo "@@ASK $*" >/dev/ttyS0
    read -r answer </dev/ttyS0
    echo "$answer"
}

# told WORDS: the same, where the answer must be GO.
told() {
    said=$(ask "$@")
    [ "$said" = GO ] || { echo "the host on '$*': $said"; return 1; }
}

# within SECONDS COMMAND: repeats a command until it succeeds; shows its last words if it never does.
within() {
    left=$(($1 * 5))
    shift
    until "$@" >/tmp/within 2>&1; do
        left=$((left - 1))
        if [ $left -le 0 ]; then echo "never: $*"; cat /tmp/within; return 1; fi
        sleep 0.2
    done
}

# fact FILE PATTERN...: every pattern is in a file; shows the file where one is not.
fact() {
    file=$1
    shift
    for pattern in "$@"; do
        grep -q -E -e "$pattern" "$file" || { echo "no '$pattern' in:"; cat "$file"; return 1; }
    done
}

# says COMMAND -- PATTERN...: a command succeeds and every pattern is in what it prints.
says() {
    command=
    while [ "$1" != -- ]; do
        command="$command $1"
        shift
    done
    shift
    $command >/tmp/says 2>&1 || { echo "status $? of$command:"; cat /tmp/says; return 1; }
    fact /tmp/says "$@"
}

# ends STATUS COMMAND: a command ends with this status.
ends() {
    wanted=$1
    shift
    got=0
    "$@" >/tmp/ends 2>&1 || got=$?
    [ $got = "$wanted" ] || { echo "status $got, not $wanted: $*"; cat /tmp/ends; return 1; }
}

# start_udevd: the device manager with Debian's rules, caught up with what is there.
start_udevd() {
    mkdir -p /run/udev
    /lib/systemd/systemd-udevd --daemon
    udevadm trigger --type=devices --action=add --subsystem-match=block
    # Now and then it ends the first control connection without an answer (EPIPE).
    within 20 udevadm settle --timeout=20
}

# start_multipathd: and device manager.
start_multipathd() {
    start_udevd
    mkdir -p /etc/multipath
    multipathd
    within 20 multipathd show daemon
}

# paths STATE COUNT: so many paths are in this state for the kernel and for the path checker.
paths() {
    multipathd show paths raw format "%w %d %t %T" >/tmp/paths
    case $1 in
    up) state="active ready" ;;
    down) state="failed faulty" ;;
    esac
    [ "$(grep -c " $state" /tmp/paths)" = "$2" ] || { cat /tmp/paths; return 1; }
}
