# The kernel's NFS/RDMA client on a gateway whose backend is another gateway: version 1 of RPC-over-RDMA here, version 2 there. The environment has what
# checks.sh needs, and
#
#   LINKS, VERSIONS           what the second gateway offers, and versions of NFS: all3 is the variable of the first one's export for link "all" and version 3
#   FAULTS                    a regular expression of link/version/fault: which faults strike
# shellcheck shell=bash disable=SC2317  # functions that check calls
set -euo pipefail
. "$TESTDATA/lib.sh"
. "$TESTDATA/checks.sh"

begin
head -c 1000001 /dev/urandom >/run/local/some
sha256sum </run/local/some >/run/out/some

buffered() {
  cp /run/local/some /mnt/some
  sync /mnt/some
  dd if=/mnt/some iflag=nocache count=0 status=none   # the page cache is dropped
  cmp /run/local/some /mnt/some
  ask checksum some
}
directory() {
  ls -U /mnt/many >/run/out/many; ask listing many
  [ "$(find /mnt/many -type f -size 7c | wc -l)" = "$(wc -l </run/out/many)" ]
  ln -s "$(printf 'x%.0s' {1..1020})" /mnt/link; [ "$(readlink /mnt/link | wc -c)" = 1021 ]
}

# load: what verifies its data. names: what fails if it is done twice.
load() { "$PROBE" lengths write /mnt/load; "$PROBE" lengths read /mnt/load; rm /mnt/load; }
names() { mkdir /mnt/churn; "$PROBE" churn /mnt/churn 10; rmdir /mnt/churn; }

# struck FAULT: strikes while both are at work.
struck() {
  local load names
  ask strike "$1"
  load & load=$!
  names & names=$!
  wait $load
  wait $names
  ask struck
}

# stopped FAULT: what comes over the link stops in the midst of a group. Another client of the gateway does not notice.
stopped() {
  local load mount path
  read -r _ mount path <<<"${!EXPORT}"
  mkdir -p /run/tcp
  mount -t nfs -o "vers=3,proto=tcp,port=$mount,mountport=$mount,mountproto=tcp,nolock" "$SERVER:$path" /run/tcp
  ask strike "$1"
  load & load=$!
  ask stopped
  cmp /run/local/some /run/tcp/some
  kill -0 $load                             # it waits
  ask resume
  wait $load
  ask struck
  umount /run/tcp
}

for LINK in $LINKS; do
  for VERS in $VERSIONS; do
    PREFIX=$LINK/$VERS/ EXPORT=${LINK^^}${VERS%.*}
    ask at "${EXPORT,,}"
    attach "$EXPORT"
    check lengths/written "$PROBE" lengths write /mnt/lengths
    check lengths/read "$PROBE" lengths read /mnt/lengths
    check lengths/on-host ask lengths
    check buffered buffered
    check directory directory
    check spoken ask spoken
    for fault in lost surplus stopped-call stopped-reply; do
      [[ $PREFIX$fault =~ ^($FAULTS)$ ]] || continue
      case $fault in stopped-*) check "fault/$fault" stopped "$fault" ;; *) check "fault/$fault" struck "$fault" ;; esac
    done
    detach "$LINK"
  done
done
end
