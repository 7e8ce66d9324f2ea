# After a removal. State, images and secrets are kept: they may be the only copy of the data of
# hosts.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
fi
