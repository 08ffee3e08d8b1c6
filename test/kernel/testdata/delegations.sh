# The kernel's client with delegations of two directories, by PROTO: DATA, which others change too,
# and OWN. The environment has the variables of checks.sh.
# shellcheck shell=bash disable=SC2317  # functions that check calls
set -euo pipefail
. "$TESTDATA/lib.sh"
. "$TESTDATA/checks.sh"

begin

# local_writer: a process of the server's host appends to a file that is open here.
local_writer() {
  ask write "data/$PROTO" one
  attach DATA
  exec 8<"/mnt/$PROTO"
  equal "$(cat <&8)" one
  ask append "data/$PROTO" two
  equal "$(cat "/mnt/$PROTO")" $'one\ntwo'
  exec 8>&-
  detach local
}

# kept_here: data that this client keeps since it has a delegation, until another client asks.
kept_here() {
  attach OWN
  exec 8>"/mnt/$PROTO"
  echo kept >&8
  exec 8>&-
  ask fetch "own/$PROTO" kept
  equal "$(cat "/mnt/$PROTO")" kept
  mv "/mnt/$PROTO" "/mnt/$PROTO.moved"
  rm "/mnt/$PROTO.moved"
  detach kept
}

VERS=4.2
for PROTO in rdma tcp; do
  ask capture start
  check "$PROTO/local" local_writer
  check "$PROTO/kept" kept_here
  ask capture "$PROTO"
done
end
