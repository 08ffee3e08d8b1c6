# The kernel's NFS/RDMA client on a server's exports, version 3. The environment says where they are:
#
#   SERVER                    its address
#   DATA, PLAIN, GUARDED      of each export: its RDMA port, its TCP port, where MOUNT also is, and its path. PLAIN is without CRC, with
#                             frames of one TCP segment, without remote invalidation, with few credits and other inline thresholds;
#                             GUARDED is read-only and squashes root.
#   CUT                       DATA again, but the connections break off now and then
#   TESTDATA, PROBE, TREE     this folder, the program probe, an archive of a source tree
#
# SERVER=knfsd is the kernel's own server in the same guest: it tells whether a fault is the gateway's. See docs/testing.md.
# shellcheck shell=bash disable=SC2317  # functions that check calls
set -euo pipefail
. "$TESTDATA/lib.sh"

net_up
rdma_up siw
if [ "$SERVER" = knfsd ]; then . "$TESTDATA/knfsd.sh"; fi
mkdir -p /run/local /run/tracing
mount -t tracefs tracefs /run/tracing
echo 1 >/run/tracing/events/rpcrdma/xprtrdma_marshal_failed/enable
umask 022

# attach EXPORT: mounts it at /mnt. detach NAME: unmounts it, and leaves the mount's statistics for the test.
attach() {
  local rdma mount path
  read -r rdma mount path <<<"${!1}"
  mount -t nfs -o "vers=3,proto=rdma,port=$rdma,mountport=$mount,mountproto=tcp,nolock" "$SERVER:$path" /mnt
  grep -q ' /mnt nfs .*vers=3,.*proto=rdma' /proc/mounts
}
detach() { cp /proc/self/mountstats "/run/out/mountstats.$1"; umount /mnt; }
# anew EXPORT: a new mount, of which the client has nothing cached.
anew() { umount /mnt; attach "$1"; }

# -- a little of everything: what tshark is to read ----------------------------------------------------------------------
# Nearly one call at a time, so that the kernel needs no more memory regions than it begins with: see mountstats_test.go.
tour() {
  trap 'echo 128 >/proc/sys/sunrpc/rdma_slot_table_entries' EXIT
  echo 4 >/proc/sys/sunrpc/rdma_slot_table_entries
  ask capture start
  attach "$1"
  cd /mnt/tour
  [ "$(find . -type f | wc -l)" = 300 ]               # a Reply chunk
  cat entry-200003 >/run/local/entry                  # a Write chunk, of a length that is no multiple of 4
  "$PROBE" files -direct -step 11 -max 70000 -jobs 1 write .
  "$PROBE" files -direct -step 11 -max 70000 -jobs 1 read .
  cat /run/local/entry >copy                          # a Read chunk
  ln -s "$(printf 'x%.0s' {1..1500})" long; readlink long >/dev/null
  mkdir d; mv copy d/copy; ln d/copy again; mkfifo pipe; chmod 600 pipe; truncate -s 1 again
  rm -r d again pipe long
  stat -f . >/dev/null
  cd /
  detach "tour-$1"
  ask capture "tour-$1"
}

# -- a source tree in and out --------------------------------------------------------------------------------------------
tree_in() { mkdir /mnt/tree; tar -xf "$TREE" -C /mnt/tree; }
tree_copy() { cp -r --preserve=mode,timestamps /run/local/tree /mnt/copy; }
tree_out() {
  mkdir /run/local/out
  tar -cf - -C /mnt/tree . | tar -xf - -C /run/local/out
  diff -r /run/local/tree /run/local/out
}
tree_on_host() { ask compare tree; ask compare copy; }

# -- files of every length ---------------------------------------------------------------------------------------------
sizes() { local dir=${*: -1}; mkdir -p "$dir"; "$PROBE" files "$@"; }
sizes_on_host() { ask files buffered 0; ask files direct 1; }

# -- random reads and writes, which fio verifies ---------------------------------------------------------------------------
verify() { mkdir /mnt/fio; fio --output-format=terse --directory=/mnt/fio "$TESTDATA/verify.fio"; rm -r /mnt/fio; }

# -- directories -----------------------------------------------------------------------------------------------------------
many() { ls -U /mnt/many >/run/out/many; ask listing many; }
many_attributes() { [ "$(find /mnt/many -type f -size 7c | wc -l)" = 5000 ]; }

same() { list "/mnt/$1" >"/run/out/$1"; ask same "$1"; }

guarded() {
  attach GUARDED
  [ "$(cat /mnt/open)" = 'for all' ]
  refused 'Permission denied' cat /mnt/secret         # root is nobody
  refused 'Permission denied' ls /mnt/closed
  refused 'Read-only file system' touch /mnt/f
  refused 'Read-only file system' rm /mnt/open
  detach guarded
}

# The same files by TCP and RDMA, at the same time.
twin() {
  local mount path
  read -r _ mount path <<<"$DATA"
  mkdir /run/tcp
  mount -t nfs -o "vers=3,proto=tcp,port=${NFS_TCP:-$mount},mountport=$mount,mountproto=tcp,nolock" "$SERVER:$path" /run/tcp
  head -c 3000001 /run/local/noise >/run/local/some
  cp /run/local/some /run/tcp/by-tcp; cmp /run/local/some /mnt/by-tcp
  cp /run/local/some /mnt/by-rdma; cmp /run/local/some /run/tcp/by-rdma
  rm /mnt/by-tcp /run/tcp/by-rdma
  umount /run/tcp
}

# -- the server goes away and comes back -----------------------------------------------------------------------------------
killed() {
  dd if=/run/local/noise of=/mnt/killed bs=256k conv=fsync status=none & local writer=$!
  ask kill killed "$(stat -c %s /run/local/noise)"
  wait $writer
  detach restart
  attach DATA
  cmp /run/local/noise /mnt/killed
  sha256sum </run/local/noise >/run/out/killed; ask checksum killed
}
drained() {
  ( for ((i = 0; ; i++)); do
      last=; [ -e /run/restarted ] && last=1
      umount /mnt && attach DATA
      cmp /run/local/noise /mnt/killed
      [ -z "$last" ] || break
    done
    echo "read $((i + 1)) times" >&3 ) & local reader=$!
  ask drain
  touch /run/restarted
  wait $reader
}
cut() {
  attach CUT
  mkdir /mnt/cut
  "$PROBE" churn /mnt/cut 60
  rmdir /mnt/cut
  detach cut
  ask cuts
}

# ==================================================================================================================
tar -C /run/local --one-top-level=tree -xf "$TREE"
head -c 16M /dev/urandom >/run/local/noise

check tour/crc tour DATA
check tour/plain tour PLAIN

attach DATA
check tree/in tree_in
check tree/copy tree_copy
check sizes/write-buffered sizes write /mnt/buffered
check sizes/write-direct sizes -direct write /mnt/direct
check sizes/overwrite-direct sizes -direct -round 1 write /mnt/direct
detach written

attach DATA
check tree/out tree_out
check tree/on-host tree_on_host
check sizes/read-buffered sizes -round 1 read /mnt/direct
check sizes/read-direct sizes -direct read /mnt/buffered
check sizes/on-host sizes_on_host
check fio/verify verify
check directory/names many
check directory/attributes many_attributes
if wanted names/; then "$PROBE" names /mnt/names; fi
if wanted users/; then "$PROBE" users /mnt/users; fi
detach names

attach DATA
check names/on-host same names
check users/on-host same users
check twin/tcp-and-rdma twin
detach names-again

check guarded/read-only-and-root-squashed guarded

for way in read write; do echo 65536 >/proc/sys/sunrpc/rdma_max_inline_$way; done     # the export has 16 KiB, and 8 KiB for replies
attach PLAIN
check plain/write-direct sizes -direct -step 3 write /mnt/direct
anew PLAIN
check plain/read-direct sizes -direct -step 3 read /mnt/direct
check plain/fio-verify verify
detach plain
for way in read write; do echo 4096 >/proc/sys/sunrpc/rdma_max_inline_$way; done

check restart/connections-cut cut
attach DATA
check restart/killed-while-written killed
check restart/drained-while-read drained

cp /run/tracing/trace /run/out/trace
echo "done"
