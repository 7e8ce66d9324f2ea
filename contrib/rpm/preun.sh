# Before a removal; an upgrade leaves the daemon running until post.sh restarts it.
if [ "$1" = 0 ] && [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now ashlar.service ashlar.socket || :
fi
# After the daemon has stopped, and while its file still names the profile.
if [ "$1" = 0 ] && [ -d /sys/module/apparmor ] && command -v apparmor_parser >/dev/null; then
    apparmor_parser -R /etc/apparmor.d/ashlar 2>/dev/null || :
fi
