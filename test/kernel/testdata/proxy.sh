# The kernel's NFS/RDMA client on a gateway before NFS-Ganesha, which serves the export DATA: all that it does, in VERSIONS of NFS. The environment
# has what checks.sh needs besides.
# shellcheck shell=bash disable=SC2317  # functions that check calls
set -euo pipefail
. "$TESTDATA/lib.sh"
. "$TESTDATA/checks.sh"

# Seen without the gateway too: it takes no SETACL from Linux, and symlinks keep the times of their making.
export LACKS='acl symlink-times'

begin
for VERS in $VERSIONS; do
  PREFIX=$VERS/
  everything DATA
  attach DATA
  check removed empty
  detach removed
done
end
