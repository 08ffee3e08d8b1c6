# The connection of the kernel's NFS/RDMA client is moved from one gateway to another, again and again, while it reads and writes, makes and removes names,
# and has a file locked. The environment has what checks.sh needs, VERS, and DATA, the export behind the relay that moves it.
# shellcheck shell=bash disable=SC2317  # functions that check calls
set -euo pipefail
. "$TESTDATA/lib.sh"
. "$TESTDATA/checks.sh"

begin
# until_moved COMMAND...: again and again.
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
