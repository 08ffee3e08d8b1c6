# The kernel's NFS/RDMA server, for a requester on the host: ext4 on siw, with files whose checksums it tells. TESTDATA and PROBE as in client.sh.
# shellcheck shell=bash
set -euo pipefail
. "$TESTDATA/lib.sh"

net_up
rdma_up siw
truncate -s 512M /run/disk; mkfs.ext4 -q /run/disk; mount -o loop /run/disk /srv
cd /srv
mkdir files written many
"$PROBE" files write files
(cd many; for ((i = 0; i < 5000; i++)); do : >"entry $i"; done)
ln -s "many/entry 7" link
ln -s "$(printf 'x%.0s' {1..4000})" long
knfsd /srv

check ready ask requester
sync
check written "$PROBE" files -round 2 read written
echo "done"
