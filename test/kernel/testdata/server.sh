# The kernel's NFS/RDMA server, for a requester on the host: ext4 on siw. TESTDATA and PROBE as in
# client.sh; CONNECTIONS are names of folders for the requester's files, each written by a
# connection of another kind.
# shellcheck shell=bash
set -euo pipefail
. "$TESTDATA/lib.sh"

net_up
rdma_up siw
truncate -s 512M /run/disk; mkfs.ext4 -q /run/disk; mount -o loop /run/disk /srv
cd /srv
umask 022
mkdir files many $CONNECTIONS
"$PROBE" files write files
(cd many; for ((i = 0; i < 5000; i++)); do : >"entry $i"; done)
ln -s "many/entry 7" link
ln -s "$(printf 'x%.0s' {1..4000})" long
knfsd /srv

dmesg --follow >/run/out/dmesg &            # siw's words, while the requester is at work
ask requester                               # its findings are subtests of their own

round=1
for c in $CONNECTIONS; do
  check "written/$c" "$PROBE" files -round $round read "$c"
  round=$((round + 1))
done
echo "done"
