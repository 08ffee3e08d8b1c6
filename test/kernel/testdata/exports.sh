# The kernel's NFS/RDMA client mounts two exports of one gateway, ONE and TWO: folders of one
# backend. Each has a file "which" with its name in it, and a file of its own. The environment has
# the variables of checks.sh, and VERSIONS of NFS.
# shellcheck shell=bash disable=SC2317  # functions that check calls
set -euo pipefail
. "$TESTDATA/lib.sh"
. "$TESTDATA/checks.sh"

begin
mkdir /run/one /run/two

# own NAME: /run/NAME shows its own tree, and accepts files.
own() {
  local at=/run/$1
  equal "$(cat "$at/which")" "$1"
  equal "$(ls "$at")" "only-$1"$'\n'which
  cat "$at/only-$1" | cmp - <(head -c 100000 /dev/zero)
  echo "new in $1" >"$at/new"
  equal "$(cat "$at/new")" "new in $1"
  rm "$at/new"
}
both() { own one; own two; echo 1 >/run/one/same; echo 2 >/run/two/same; equal "$(cat /run/one/same /run/two/same)" $'1\n2'; rm /run/{one,two}/same; }
# while_other_unmounted HERE OTHER EXPORT: and mounts the other again.
while_other_unmounted() {
  exec 8<"/run/$1/which"
  umount "/run/$2"
  equal "$(cat <&8)" "$1"
  own "$1"
  attach "$3" "/run/$2"
  own "$1"
  own "$2"
}

for VERS in $VERSIONS; do
  PREFIX=$VERS/
  attach ONE /run/one
  attach TWO /run/two
  check exports/own-trees both
  check exports/two-unmounted while_other_unmounted one two TWO
  check exports/one-unmounted while_other_unmounted two one ONE
  check exports/both-still both
  detach one /run/one
  umount /run/two
done
end
