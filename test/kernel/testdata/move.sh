# The connection of the kernel's NFS/RDMA client is moved from one gateway to another, again and again, while it reads and writes, makes and removes names,
# and has a file locked. The environment has what checks.sh needs, VERS, and DATA, the export behind the relay that moves it.
# shellcheck shell=bash disable=SC2317  # functions that check calls
set -euo pipefail
. "$TESTDATA/lib.sh"
. "$TESTDATA/checks.sh"

begin
moved() {
  local fio churn move
  exec 8>/mnt/locked
  flock -n 8
  mkdir /mnt/churn
  verify & fio=$!
  "$PROBE" churn /mnt/churn 150 & churn=$!
  for move in 1 2 3 4; do
    ask move
  done
  kill -0 $fio
  wait $fio
  wait $churn
  rmdir /mnt/churn
  printf x >&8
  sync /mnt/locked
}

attach DATA
check move/under-load moved
detach moved
end
