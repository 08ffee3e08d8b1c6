#!/bin/sh
# An upgrade restarts a running gateway: it drains, and clients reconnect.
set -e
if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl try-restart sluice-gateway.service
fi
