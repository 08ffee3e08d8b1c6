#!/bin/sh
# $1 is "remove" from dpkg and 0 from rpm, unless this is an upgrade.
set -e
case "$1" in
  remove|0)
    if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
      systemctl disable --now sluice-gateway.service
    fi ;;
esac
