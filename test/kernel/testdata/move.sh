# Moves the connection of the kernel's NFS/RDMA client between two gateways, again and again, while
# the client reads and writes, creates and removes names, and holds a lock. The environment has the
# variables of checks.sh, VERS, and DATA, the export behind the relay that moves it.
# shellcheck shell=bash disable=SC2317  # functions that check calls
set -euo pipefail
. "$TESTDATA/lib.sh"
. "$TESTDATA/checks.sh"

begin
# until_moved COMMAND...: repeats it.
until_moved() { until [ -e /run/moved ]; do "$@"; done; }
moved() {
  local load names
  exec 8>/mnt/locked
  flock -n 8
  mkdir /mnt/churn
  until_moved verify & load=$!
  until_moved "$PROBE" churn /mnt/churn 15 & names=$!
  ask move
  ask move
  ask move
  touch /run/moved
  wait $load
  wait $names
  rmdir /mnt/churn                          # nothing is left in it
  printf x >&8
  sync /mnt/locked
}

attach DATA
check move/under-load moved
detach moved
end
