# A gateway and its backend restart while the kernel's client reads, writes and holds a lock. The
# environment has the variables of checks.sh; VERSIONS of NFS; DATA, the gateway's export; and
# FOREIGN, the backend's own port and path.
# shellcheck shell=bash disable=SC2317  # functions that check calls
set -euo pipefail
. "$TESTDATA/lib.sh"
. "$TESTDATA/checks.sh"

begin
mkdir /run/foreign

# survives WHO: kills and restarts the gateway or the backend while fio runs.
survives() {
  local fio
  verify & fio=$!
  ask restart "$1"
  kill -0 $fio                              # it has seen all of it
  wait $fio
}

# held: descriptor 8 still has the script's lock: for a foreign mount, past the gateway, and for
# itself.
held() {
  exec 9<>/run/foreign/locked
  if flock -n 9; then echo "somebody else can have the lock"; return 1; fi
  equal "$(wc -c </run/foreign/locked)" "$1"
  printf x >&8
  fsync_8
}
fsync_8() { sync /proc/self/fd/8; }

for VERS in $VERSIONS; do
  PREFIX=$VERS/
  attach DATA
  if [ "$VERS" != 3 ]; then                 # whose locks are another protocol's
    mount -t nfs -o "vers=$VERS,proto=tcp,port=${FOREIGN% *}" "$SERVER:${FOREIGN#* }" /run/foreign
    exec 8>/mnt/locked
    flock -n 8
    check lock/held held 0
  fi
  check restart/gateway survives gateway
  [ "$VERS" = 3 ] || check lock/held-after-the-gateways-restart held 1
  check restart/backend survives backend
  if [ "$VERS" != 3 ]; then
    check lock/held-after-the-backends-restart held 2
    exec 8>&-
    umount /run/foreign
  fi
  detach restart
done
end
