# The kernel's NFS/RDMA client on a gateway in front of NFS-Ganesha, which serves the export DATA:
# all checks, in VERSIONS of NFS. The environment also has the variables of checks.sh.
# shellcheck shell=bash disable=SC2317  # functions that check calls
set -euo pipefail
. "$TESTDATA/lib.sh"
. "$TESTDATA/checks.sh"

# Seen without the gateway too: it accepts no SETACL from Linux, and symlinks keep their creation
# times.
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
