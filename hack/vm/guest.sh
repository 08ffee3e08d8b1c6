# Helpers for scripts that hack/vm/run runs in the guest; bash reads them before each of them (by BASH_ENV).
# shellcheck shell=bash

# net_up: lo and eth0. The guest is 10.0.2.15; 10.0.2.2 is the 127.0.0.1 of the machine outside.
net_up() {
  ip link set lo up
  ip link set eth0 up
  ip addr add 10.0.2.15/24 dev eth0
  ip route add default via 10.0.2.2
}

# rdma_up siw|rxe [NETDEV [NAME]]: a software RDMA device on NETDEV (eth0), called siw0 or rxe0 unless named.
# An address is reached over RDMA only when the interface that has it carries such a device: for 127.0.0.1, lo.
rdma_up() {
  local kind=$1 netdev=${2:-eth0} name=${3:-${1}0} driver=$1
  [ "$kind" = siw ] || driver=rdma_rxe
  modprobe -a crc32_generic "$driver" rdma_ucm ib_uverbs rpcrdma nfsv3 nfsv4
  rdma link add "$name" type "$kind" netdev "$netdev"
}

# knfsd DIR [OPTIONS]: the kernel's own NFS server for DIR, which must be a file system that can be exported (tmpfs,
# ext4, xfs; not the guest's root): versions 3 to 4.2 on TCP port 2049 and on RDMA port 20049, mountd on port 20048.
# Over version 4, DIR is "/".
knfsd() {
  local dir=$1 options=${2:-rw,fsid=0,insecure,no_root_squash,no_subtree_check}
  modprobe -a rpcrdma lockd nfsd
  echo 1 >/proc/sys/fs/nfs/nlm_grace_period    # for this long there are no delegations either
  mkdir -p /run/rpcbind /run/lock /var/lib/nfs/v4recovery
  touch /var/lib/nfs/etab /var/lib/nfs/rmtab
  mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
  echo 1048576 >/proc/fs/nfsd/max_block_size   # it would choose less in so little memory
  rpcinfo -p >/dev/null 2>&1 || rpcbind -w
  exportfs -o "$options" "*:$dir"
  rpc.nfsd -V 3 --rdma=20049 --lease-time 10 --grace-time 10 4
  rpc.mountd --port 20048
  echo Y >/proc/fs/nfsd/v4_end_grace      # else the first OPEN of version 4 waits for the grace period to pass
}
