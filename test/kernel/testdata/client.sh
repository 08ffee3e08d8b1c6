# The kernel's NFS client on a server's exports. The environment has the variables of checks.sh, and
# the exports:
#
#   DATA, PLAIN, GUARDED      PLAIN is without CRC, with frames of one TCP segment, without
#                             remote invalidation, with few credits and other inline thresholds;
#                             GUARDED is read-only and squashes root.
#   CUT                       DATA again, but its connections break now and then
#
# SERVER=knfsd is the kernel's own server in the same guest: it shows whether a fault is the
# gateway's. See docs/testing.md.
# shellcheck shell=bash disable=SC2317  # functions that check calls
set -euo pipefail
. "$TESTDATA/lib.sh"
. "$TESTDATA/checks.sh"

begin
if [ "$SERVER" = knfsd ]; then . "$TESTDATA/knfsd.sh"; fi

# -- a little of everything, for tshark --
# Nearly one call at a time, so that the kernel's initial memory regions suffice: see
# mountstats_test.go.
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

guarded() {
  attach GUARDED
  [ "$(cat /mnt/open)" = 'for all' ]
  refused 'Permission denied' cat /mnt/secret         # root is nobody
  refused 'Permission denied' ls /mnt/closed
  refused 'Read-only file system' touch /mnt/f
  refused 'Read-only file system' rm /mnt/open
  detach guarded
}

# The same files by another mount with version 3 and TCP, at the same time.
twin() {
  local mount path
  read -r _ mount path <<<"$DATA"
  mkdir /run/tcp
  mount -t nfs -o "vers=3,proto=tcp,port=${NFS_TCP:-$mount},mountport=$mount,mountproto=tcp,nolock" "$SERVER:$path" /run/tcp
  head -c 3000001 /run/local/noise >/run/local/some
  cp /run/local/some /run/tcp/there; cmp /run/local/some /mnt/there
  cp /run/local/some /mnt/here; cmp /run/local/some /run/tcp/here
  rm /mnt/there /run/tcp/here
  umount /run/tcp
}

# -- the server disappears and returns --
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

# -- the checks --
check tour/crc tour DATA
check tour/plain tour PLAIN

everything DATA
attach DATA
[ "$PROTO" = tcp ] || check version/one-of-two ask version # DATA offers both
check twin/version-3-and-tcp twin
detach twin

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

end
