# A gateway dies and returns, and clients lose it and return, while they hold locks and open files
# of a directory by version 4. The environment has the variables of checks.sh, WAYS, such as
# 4.2-rdma, DATA, the gateway's export, KEPT, one with persistent sessions, and FAR, DATA behind a
# relay that the test can cut.
# shellcheck shell=bash disable=SC2317  # functions that check calls
set -euo pipefail
. "$TESTDATA/lib.sh"
. "$TESTDATA/checks.sh"

begin
mkdir /run/there /run/kept

# killed: the gateway is killed and starts again, while fio writes and verifies, one file is locked,
# and another is open and was removed. Another client never gets the lock. Names do not change
# meanwhile: sessions end with the process, so an unanswered change of a name would run again.
killed() {
  local fio thief
  echo kept >/mnt/unlinked
  exec 8>/mnt/locked 7</mnt/unlinked
  rm /mnt/unlinked
  flock -n 8
  rm -f /run/restarted /run/stolen
  verify & fio=$!
  ( exec 9<>/run/there/locked
    until [ -e /run/restarted ]; do ! flock -n 9 || { touch /run/stolen; break; }; sleep 0.1; done ) & thief=$!
  ask restart "$PROTO"
  kill -0 $fio                              # it has seen all of it
  wait $fio
  touch /run/restarted
  wait $thief
  [ ! -e /run/stolen ]
  exec 9<>/run/there/locked
  if flock -n 9; then echo "got what the other has locked"; return 1; fi
  printf x >&8
  sync /mnt/locked
  equal "$(cat <&7)" kept
  exec 8>&-
  flock -w 30 9
  rm /mnt/locked
}

# unrepeated: the gateway is killed again and again while many make, link, rename and remove names.
# No call runs twice, or it would fail.
unrepeated() {
  local i jobs=()
  rm -f /run/enough
  for i in 1 2 3 4 5 6 7 8; do
    mkdir -p /run/kept/$i
    ( until [ -e /run/enough ]; do "$PROBE" churn /run/kept/$i 3; done ) & jobs+=($!)
  done
  for i in 1 2 3 4 5; do ask restart names; done
  touch /run/enough
  for i in "${jobs[@]}"; do wait "$i"; done
  rmdir /run/kept/*                         # nothing is left in them
}

# cut CONFLICT: the other client is cut off for longer than its lease while it holds a lock, and
# returns. Only in a conflict it has lost the lock.
cut() {
  : >/mnt/cut
  exec 9<>/run/there/cut 8<>/mnt/cut
  flock -n 9
  printf x >&9
  sync /run/there/cut
  refused '' flock -n 8
  ask cut
  if [ "$1" = conflict ]; then
    flock -w 100 8                          # when the lease has expired
    printf y >&8
    sync /mnt/cut
    exec 8>&-
  else
    ask expired
  fi
  ask mend
  if [ "$1" = conflict ]; then
    until ! { printf z >&9; sync /run/there/cut; } 2>/dev/null; do sleep 1; done
    equal "$(cat /mnt/cut)" y
  else
    printf z >&9
    sync /run/there/cut
    equal "$(cat /mnt/cut)" xz
    refused '' flock -n 8
  fi
  exec 9>&- 8>&-
  exec 8<>/mnt/cut
  flock -n 8
  exec 8>&-
  rm /mnt/cut
}

for way in $WAYS; do
  PREFIX=$way/ VERS=${way%-*} PROTO=${way#*-}
  client one
  attach KEPT /run/kept
  check restart/names unrepeated
  umount /run/kept
  attach DATA
  client two; PROTO=tcp attach FAR /run/there
  check restart/killed killed
  check lease/no-conflict cut none
  check lease/conflict cut conflict
  umount /run/there
  umount /mnt
done
end
