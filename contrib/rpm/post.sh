# After an installation or an upgrade.
systemd-sysusers ashlar.conf || :
systemd-tmpfiles --create ashlar.conf || :
if [ "$1" = 1 ]; then
    systemctl --no-reload preset ashlar.socket ashlar.service || :
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    udevadm control --reload || :
    [ "$1" = 1 ] || systemctl try-restart ashlar.service || :
fi
