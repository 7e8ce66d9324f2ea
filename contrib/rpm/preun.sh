# Before a removal; an upgrade leaves the daemon running until post.sh restarts it.
if [ "$1" = 0 ] && [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now ashlar.service ashlar.socket || :
fi
