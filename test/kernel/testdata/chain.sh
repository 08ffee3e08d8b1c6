# The kernel's NFS/RDMA client on a gateway whose backend is another gateway: version 1 of
# RPC-over-RDMA here, version 2 there. The environment has the variables of checks.sh, and
#
#   LINKS, VERSIONS           the second gateway's links, and versions of NFS: all3 is the
#                             variable of the first gateway's export for link "all", version 3
#   FAULTS                    a regular expression of link/version/fault: the faults to inject
# shellcheck shell=bash disable=SC2317  # functions that check calls
set -euo pipefail
. "$TESTDATA/lib.sh"
. "$TESTDATA/checks.sh"

begin
head -c 1000001 /dev/urandom >/run/local/some
sha256sum </run/local/some >/run/out/some

# Drops the page cache after all writes.
buffered() { dd if=/run/local/some of=/mnt/some bs=64k conv=fsync oflag=nocache status=none; cmp /run/local/some /mnt/some; }
directory() {
  find /mnt/many -type f -size 7c -printf '%f\n' >/run/out/many
  ln -s "$(printf 'x%.0s' {1..1020})" /mnt/link; [ "$(readlink /mnt/link)" = "$(printf 'x%.0s' {1..1020})" ]
}

# load verifies its data. names fails if a call runs twice.
load() { "$PROBE" lengths write /mnt/load; "$PROBE" lengths read /mnt/load; rm /mnt/load; }
names() { mkdir /mnt/churn; "$PROBE" churn /mnt/churn 10; rmdir /mnt/churn; }

# faulty FAULT: injects it while both run.
faulty() {
  local load names
  ask inject "${EXPORT,,}" "$1"
  load & load=$!
  names & names=$!
  wait $load
  wait $names
  ask injected
}

# stopped FAULT: the link stops in the middle of a group. Another client of the gateway does not
# notice.
stopped() {
  local load mount path
  read -r _ mount path <<<"${!EXPORT}"
  mkdir -p /run/tcp
  mount -t nfs -o "vers=3,proto=tcp,port=$mount,mountport=$mount,mountproto=tcp,nolock" "$SERVER:$path" /run/tcp
  ask inject "${EXPORT,,}" "$1"
  load & load=$!
  ask stopped
  cmp /run/local/some /run/tcp/some
  kill -0 $load                             # it waits
  ask resume
  wait $load
  ask injected
  umount /run/tcp
}

for LINK in $LINKS; do
  for VERS in $VERSIONS; do
    PREFIX=$LINK/$VERS/ EXPORT=${LINK^^}${VERS%.*}
    attach "$EXPORT"
    check lengths/written "$PROBE" lengths write /mnt/lengths
    check lengths/read "$PROBE" lengths read /mnt/lengths
    check buffered buffered
    check directory directory
    check on-host ask far "${EXPORT,,}"
    for fault in lost surplus stopped-call stopped-reply; do
      [[ $PREFIX$fault =~ ^($FAULTS)$ ]] || continue
      case $fault in stopped-*) check "fault/$fault" stopped "$fault" ;; *) check "fault/$fault" faulty "$fault" ;; esac
    done
    detach "$LINK"
  done
done
end
