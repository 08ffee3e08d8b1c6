# A gateway in this guest serves a directory on xfs to the kernel's client by version 4: locks,
# ACLs, extended attributes, holes and copies, compared with another client and the directory. The environment has the variables of
# checks.sh; GATEWAY, the program; and WAYS, such as 4.2-rdma.
# shellcheck shell=bash disable=SC2317  # functions that check calls
set -euo pipefail
. "$TESTDATA/lib.sh"
. "$TESTDATA/checks.sh"

begin
truncate -s 1G /run/disk; mkfs.xfs -q -m reflink=1 /run/disk; mount -o loop /run/disk /srv
mkdir -p /srv/data /run/state /run/there
cat >/run/gateway.yaml <<'END'
apiVersion: config.sluice.dev/v1alpha1
kind: GatewayConfig
admin: {address: "127.0.0.1:9180"}
stateDir: /run/state
exports:
- name: data
  listeners:
  - {network: rdma, address: ":20049"}
  - {network: tcp, address: ":2049"}
  backend: {volume: {path: /srv/data}}
  access: [{from: {networks: [10.0.0.0/8]}, mode: ReadWrite, squash: None}]
END
"$GATEWAY" --config /run/gateway.yaml >/run/out/gateway.log 2>&1 & gateway=$!
for ((i = 0; i < 100; i++)); do ! curl -sf http://127.0.0.1:9180/readyz >/dev/null || break; sleep 0.2; done
export SERVER=10.0.2.15 DATA='20049 2049 /'

# both: /mnt by PROTO, and /run/there as another client by the other protocol.
both() {
  local PROTO=$PROTO other=tcp
  [ "$PROTO" = rdma ] || other=rdma
  client one; attach DATA
  PROTO=$other; client two; attach DATA /run/there
  client one
}
neither() { umount /run/there; umount /mnt; }

# operations NAME: how many of them the client of /mnt has sent.
operations() { sed -n '/ mounted on \/mnt with/,/^device/p' /proc/self/mountstats | awk -v name="$1:" '$1 == name {print $2}'; }

# local_lock: a process of the server has the lock, and then a client has it.
local_lock() {
  : >/mnt/local
  "$PROBE" lock /srv/data/local hold & local holder=$!
  until [ -e /run/locked ]; do sleep 0.1; done
  refused denied "$PROBE" lock /mnt/local
  kill $holder; wait $holder || true
  rm /run/locked
  exec 8<>/mnt/local
  flock -n 8
  refused denied "$PROBE" lock /srv/data/local
  exec 8>&-
  "$PROBE" lock /srv/data/local
}


# map FILE: its data and holes.
map() { xfs_io -r -c 'seek -a -r 0' "$1" | awk '$1 != "Whence"'; }
holes() {
  xfs_io -f -c 'pwrite -q 0 1m' -c 'fsync' -c 'fpunch 256k 256k' -c 'falloc 1m 1m' -c 'fsync' /mnt/holes
  equal "$(stat -c %s /mnt/holes)" $((2 << 20))
  [ "$(stat -c %b /srv/data/holes)" -lt $(((2 << 20) / 512)) ]
  equal "$(map /mnt/holes)" "$(map /srv/data/holes)"
  grep -q HOLE <<<"$(map /mnt/holes)"
  cmp <(head -c 256k /dev/zero) <(tail -c +262145 /run/there/holes | head -c 256k)
  [ "$(operations ALLOCATE)" -ge 1 ] && [ "$(operations DEALLOCATE)" -ge 1 ] && [ "$(operations SEEK)" -ge 1 ]
}

reflink() {
  head -c 3000001 /dev/urandom >/run/local/some
  cp /run/local/some /mnt/original
  sync /mnt/original
  cp --reflink=always /mnt/original /mnt/clone
  cmp /run/local/some /run/there/clone
  filefrag -v /srv/data/clone | grep shared
  equal "$(operations CLONE)" 1
}

server_copy() {
  local written
  written=$(operations WRITE)
  xfs_io -f -c 'copy_range /mnt/original' /mnt/copied
  cmp /run/local/some /run/there/copied
  equal "$(operations WRITE)" "$written"
  [ "$(operations COPY)" -ge 1 ]
}

# several: four connections of one client, all of them used. Linux 6.1 has nconnect for TCP alone.
several() {
  local used OPTIONS=nconnect=4 PROTO=$PROTO
  case $(uname -r) in 6.1.*) PROTO=tcp ;; esac
  client one; attach DATA
  FIO=short.fio verify
  used=$(sed -n '/ mounted on \/mnt with/,/per-op statistics/p' /proc/self/mountstats | awk -v proto="$PROTO" '$1 == "xprt:" && $2 == proto && $(proto == "tcp" ? 9 : 8) > 10' | wc -l)
  equal "$used" 4 || { cat /proc/self/mountstats; return 1; }
  umount /mnt
}

for way in $WAYS; do
  PREFIX=$way/ VERS=${way%-*} PROTO=${way#*-}
  both
  check lock/there locked /mnt /run/there
  check lock/here locked /run/there /mnt
  check lock/local local_lock
  check acl acls /run/there
  if [ "$VERS" = 4.2 ]; then
    if wanted "${PREFIX}xattrs/"; then "$PROBE" xattrs /mnt/xattrs /run/there/xattrs; fi
    check holes holes
    check reflink reflink
    check copy server_copy
  fi
  rm -rf /mnt/*
  neither
  check nconnect several
done
kill $gateway; wait $gateway || { tail -40 /run/out/gateway.log; exit 1; }
end
