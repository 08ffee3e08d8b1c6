# Helpers for scripts in the guest of hack/vm/run; bash reads them before each script (by BASH_ENV).
# shellcheck shell=bash

# net_up: configure lo and eth0. The guest is 10.0.2.15; 10.0.2.2 is the host's 127.0.0.1.
net_up() {
  ip link set lo up
  ip link set eth0 up
  ip addr add 10.0.2.15/24 dev eth0
  ip route add default via 10.0.2.2
}

# rdma_up siw|rxe [NETDEV [NAME]]: add a software RDMA device on NETDEV (eth0), called siw0 or rxe0
# by default. RDMA reaches an address only if its interface has such a device: for 127.0.0.1, lo.
rdma_up() {
  local kind=$1 netdev=${2:-eth0} name=${3:-${1}0} driver=$1
  [ "$kind" = siw ] || driver=rdma_rxe
  modprobe -a crc32_generic "$driver" rdma_ucm ib_uverbs rpcrdma nfsv3 nfsv4
  rdma link add "$name" type "$kind" netdev "$netdev"
}

# knfsd DIR [OPTIONS]: export DIR by the kernel's NFS server: versions 3 to 4.2 on TCP port 2049 and
# on RDMA port 20049, mountd on port 20048. DIR must be on a file system that can be exported
# (tmpfs, ext4, xfs; not the guest's root). Version 4 has it at `/`.
knfsd() {
  local dir=$1 options=${2:-rw,fsid=0,insecure,no_root_squash,no_subtree_check}
  modprobe -a rpcrdma lockd nfsd
  echo 1 >/proc/sys/fs/nfs/nlm_grace_period    # also the time without delegations
  mkdir -p /run/rpcbind /run/lock /var/lib/nfs/v4recovery
  touch /var/lib/nfs/etab /var/lib/nfs/rmtab
  mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
  # It would choose less in so little memory. Linux 6.12 never answers a READ over TCP that touches
  # more than 256 of its pages, as 1,048,571 bytes from offset 35 do.
  case $(uname -r) in
    6.1.*) echo 1048576 >/proc/fs/nfsd/max_block_size ;;
    *)     echo 524288 >/proc/fs/nfsd/max_block_size ;;
  esac
  rpcinfo -p >/dev/null 2>&1 || rpcbind -w
  exportfs -o "$options" "*:$dir"
  rpc.nfsd -V 3 --rdma=20049 --lease-time 10 --grace-time 10 4
  rpc.mountd --port 20048
  # Otherwise the first OPEN waits for the grace period. The kernel refuses if it is over already.
  echo Y >/proc/fs/nfsd/v4_end_grace 2>/dev/null || grep -q Y /proc/fs/nfsd/v4_end_grace
}
