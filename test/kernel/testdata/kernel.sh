# The kernel's NFS/RDMA client on a gateway in front of the kernel's server in this guest, on xfs:
# all checks of the client, in VERSIONS of NFS; then locks, delegations, ACLs and extended
# attributes. The environment has the variables of checks.sh, and DATA, the gateway's export. SHORT
# omits the checks that do not depend on the transport.
# shellcheck shell=bash disable=SC2317  # functions that check calls
set -euo pipefail
. "$TESTDATA/lib.sh"
. "$TESTDATA/checks.sh"

export LACKS='enotempty long-symlinks'       # xfs has other limits and errors

begin
truncate -s 1G /run/disk; mkfs.xfs -q /run/disk; mount -o loop /run/disk /srv
mkdir -p /srv/data/many /data /run/direct
mount --bind /srv/data /data                # so that the path is the same in version 3, and in version 4, where /srv is "/"
MANY=5000
if [ -n "${SHORT:-}" ]; then MANY=1000; fi
seq "$MANY" | sed 's/.*/123456/' | split -l 1 -a 4 - '/data/many/entry '
sed -i '/manage-gids/d' /etc/nfs.conf       # the groups that a caller says are those it has
knfsd /srv
exportfs -o rw,fsid=1,insecure,no_root_squash,no_subtree_check '*:/data'

# The test's comparisons on the host run in this guest instead.
ask() {
  local at=/data/${2:-}
  case $1 in
    compare) diff -r /run/local/tree "$at" ;;
    files) "$PROBE" files -round "$3" read "$at" ;;
    listing) diff <(sort "/run/out/$2") <(ls -U "$at" | sort) ;;
    same) diff "/run/out/$2" <(list "$at") ;;
    *) ask_host "$@" ;;
  esac
}

ask serving                                 # the server may be connected to

# data: every third file, which still covers every length and offset, and other lengths in one file.
data() {
  attach DATA
  check sizes/write-direct sizes -direct -step 3 write /mnt/direct
  check sizes/read-direct sizes -direct -step 3 read /mnt/direct
  check sizes/on-server "$PROBE" files -step 3 read /data/direct
  check lengths/written "$PROBE" lengths write /mnt/lengths
  check lengths/read "$PROBE" lengths read /mnt/lengths
  check lengths/on-server cmp /mnt/lengths /data/lengths
  check fio/verify verify
  check directory/names many
  check directory/attributes many_attributes
  detach data
}

for VERS in $VERSIONS; do
  PREFIX=$VERS/
  if [ -n "${SHORT:-}" ]; then data; else everything DATA; fi
  attach DATA
  check removed empty
  detach removed
done
PREFIX=''

# foreign: another mount of the server, by TCP and past the gateway.
foreign() { mount -t nfs -o "vers=$VERS,proto=tcp,nosharecache" 10.0.2.15:/data /run/direct; }

# recalled: the gateway's client gets a read delegation, recalled when the foreign mount writes.
delegations() { cat /proc/fs/nfsd/clients/*/states | grep -c 'type: deleg.*delegated\.' || true; }
recalled() {
  ask capture start
  attach DATA
  foreign
  # The server gives delegations only when it has tried the way back to the client, and for a while
  # none of files that it takes for ones recalled before.
  local try=0
  for ((try = 0; try < 240; try++)); do
    echo one >/data/delegated.$try
    exec 8</mnt/delegated.$try
    equal "$(cat <&8)" one
    [ "$(delegations)" = 0 ] || break
    exec 8>&-
    sleep 1
  done
  equal "$(delegations) delegations" "1 delegations" || { cat /proc/fs/nfsd/clients/*/states; return 1; }
  echo two >>/run/direct/delegated.$try
  equal "$(delegations) delegations" "0 delegations"
  equal "$(cat /mnt/delegated.$try)" $'one\ntwo'
  exec 8>&-
  umount /run/direct
  detach recall
  ask capture recall
}

VERS=4.1
check delegation/recalled recalled
attach DATA
foreign
check lock/through-the-gateway locked /mnt /run/direct
check lock/past-the-gateway locked /run/direct /mnt
check acl/longer-than-inline acls /run/direct
umount /run/direct
detach foreign

VERS=4.2
attach DATA
foreign
if wanted xattrs/; then "$PROBE" xattrs /mnt/xattrs /run/direct/xattrs; fi
umount /run/direct
detach xattrs
end
