# Checks of the package, for the chroot and the guest: sh.

# expect WHAT COMMAND...: the command must succeed.
expect() {
    what=$1
    shift
    if "$@"; then
        echo "ok: $what"
    else
        echo "FAILED: $what: $*"
        exit 1
    fi
}

# refuse WHAT COMMAND...: the command must fail.
refuse() {
    what=$1
    shift
    if "$@"; then
        echo "FAILED: $what: $*"
        exit 1
    fi
    echo "ok: $what"
}

# within SECONDS COMMAND...: repeats the command until it succeeds.
within() {
    limit=$(($(date +%s) + $1))
    shift
    until "$@"; do
        [ "$(date +%s)" -lt "$limit" ] || return 1
        sleep 1
    done
}

has() {
    grep -q -- "$1" "$2"
}

# The daemon answers; 3 is a warning.
answers() {
    ashlar status >/tmp/status 2>&1 || [ $? = 3 ]
}

# A changed configuration, a secret and an image: no upgrade may change them.
keep_files() {
    echo '# changed by the administrator' >>/etc/ashlar/ashlar.toml
    printf 'a secret of 12 bytes or more' >/etc/ashlar/secrets/host1
    chmod 600 /etc/ashlar/secrets/host1
    echo data >/var/lib/ashlar/images/d0.img
    chown ashlar:ashlar /var/lib/ashlar/images/d0.img
}

# A mirror of two images with a LUN, in the configuration of the installed release.
add_mirror() {
    cat >>/etc/ashlar/ashlar.toml <<'END'

[[disk]]
name = "m0"
kind = "file"
path = "/var/lib/ashlar/images/m0.img"
create = true
size = "16MiB"

[[disk]]
name = "m1"
kind = "file"
path = "/var/lib/ashlar/images/m1.img"
create = true
size = "16MiB"

[[geom]]
class = "mirror"
name = "kept"
members = ["m0", "m1"]

[[target]]
driver = "iscsi"
name = "iqn.2026-11.org.example:kept"
listen = ["127.0.0.1:13260"]

[[access]]
target = "iqn.2026-11.org.example:kept"
group = "hosts"
initiators = ["iqn.2026-11.org.example:host1"]
luns = { 0 = "mirror/kept" }
END
}

has_whole_mirror() {
    ashlar mirror status | grep -q '^mirror/kept *COMPLETE'
}

# Serial number and NAA of the LUN of the mirror, as hosts see them.
identity() {
    ashlar list luns | awk '$2 == "mirror/kept" { print $6, $7 }'
}

check_installed() {
    expect "the user exists" id -u ashlar
    expect "the configuration is installed" test -s /etc/ashlar/ashlar.toml
    expect "secrets belong to root" test "$(stat -c '%U %a' /etc/ashlar/secrets)" = "root 700"
    expect "state belongs to the daemon" test "$(stat -c '%U %a' /var/lib/ashlar)" = "ashlar 700"
    expect "the completion is installed" test -s /usr/share/bash-completion/completions/ashlar
    for unit in service socket; do
        expect "ashlar.$unit is installed" test -s /usr/lib/systemd/system/ashlar.$unit
    done
}

check_upgraded() {
    expect "the next version is installed" has '+next1$' /package-test/version
    expect "the configuration is kept" has 'changed by the administrator' /etc/ashlar/ashlar.toml
    expect "the secret is kept" test -s /etc/ashlar/secrets/host1
    expect "the image is kept" has '^data$' /var/lib/ashlar/images/d0.img
}

upgrade() {
    expect "upgrade" dpkg --install /package-test/ashlar-next.deb
    dpkg-query --show --showformat '${Version}\n' ashlar >/package-test/version
    check_upgraded
}

remove_and_purge() {
    expect "remove" dpkg --remove ashlar
    refuse "the program is removed" test -e /usr/bin/ashlar
    refuse "the unit is removed" test -e /usr/lib/systemd/system/ashlar.service
    expect "a removal keeps the configuration" test -s /etc/ashlar/ashlar.toml
    expect "a removal keeps the image" test -s /var/lib/ashlar/images/d0.img
    expect "purge" dpkg --purge ashlar
    refuse "a purge removes the configuration" test -e /etc/ashlar/ashlar.toml
    expect "a purge keeps the secret" test -s /etc/ashlar/secrets/host1
    expect "a purge keeps the image" test -s /var/lib/ashlar/images/d0.img
    refuse "no link to the unit is left" \
        test -L /etc/systemd/system/multi-user.target.wants/ashlar.service
}
