# In place of the gateway: the kernel's server, on ext4 in this guest, with the test's files.
# shellcheck shell=bash
truncate -s 1G /run/disk; mkfs.ext4 -q /run/disk; mount -o loop /run/disk /srv
mkdir -p /srv/{data,plain}/tour /srv/data/many /srv/guarded/closed
for d in data plain; do
  (cd /srv/$d/tour; touch $(seq -f 'a-file-with-a-rather-long-name-%03g' 299); head -c 200003 /dev/urandom >entry-200003)
done
(cd /srv/data/many; for ((i = 0; i < 5000; i++)); do echo 123456 >"entry $i"; done)
echo 'for all' >/srv/guarded/open; echo secret >/srv/guarded/secret; chmod 600 /srv/guarded/secret; chmod 700 /srv/guarded/closed
sed -i '/manage-gids/d' /etc/nfs.conf        # the groups that a caller says are those it has
knfsd /srv
exportfs -o ro,fsid=1,insecure,root_squash,no_subtree_check '*:/srv/guarded'
SERVER=10.0.2.15 NFS_TCP=2049 DATA='20049 20048 /srv/data' CUT='20049 20048 /srv/data' PLAIN='20049 20048 /srv/plain' GUARDED='20049 20048 /srv/guarded'
ask() { echo "(not asked here: $*)" >&3; }
