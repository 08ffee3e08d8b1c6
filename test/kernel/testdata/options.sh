# The kernel's NFS/RDMA client by options of mount(8), and by other inline thresholds. The
# environment has the variables of checks.sh, and the exports VOLUME, for version 3, and PROXY, for
# 4.2. Both accept inline thresholds of up to 64 KiB.
# shellcheck shell=bash disable=SC2317  # functions that check calls
set -euo pipefail
. "$TESTDATA/lib.sh"
. "$TESTDATA/checks.sh"

begin
head -c 300001 /dev/urandom >/run/local/some
sha256sum </run/local/some >/run/out/some

# moved: writes a file by the page cache, and one by calls of many lengths if LENGTHS is set; reads
# them over a new mount.
moved() {
  cp /run/local/some /mnt/some
  [ -z "${LENGTHS:-}" ] || "$PROBE" lengths write /mnt/lengths
  anew "$EXPORT"
  cmp /run/local/some /mnt/some
  [ -z "${LENGTHS:-}" ] || "$PROBE" lengths read /mnt/lengths
  ask checksum some
}

# sized RSIZE WSIZE REAL_RSIZE REAL_WSIZE: the kernel replaces sizes that it does not support.
sized() {
  OPTIONS=rsize=$1,wsize=$2
  attach "$EXPORT"
  grep " /mnt nfs.*,rsize=$3,wsize=$4," /proc/mounts
  moved
  detach "sizes-$1-$2"
}

# several CONNECTIONS: each of them carries calls.
several() {
  local used
  OPTIONS=nconnect=$1
  attach "$EXPORT"
  verify
  ask connections "${EXPORT,,}" "$1"
  used=$(sed -n '/ mounted on \/mnt with/,/per-op statistics/p' /proc/self/mountstats | awk '$1 == "xprt:" && $2 == "rdma" && $8 > 10' | wc -l)
  equal "$used" "$1"
  detach several
}

# inline BYTES: both thresholds of the client.
inline() {
  local way LENGTHS=1
  for way in read write; do echo "$1" >/proc/sys/sunrpc/rdma_max_inline_$way; done
  attach "$EXPORT"
  ask thresholds "${EXPORT,,}" "$1"
  moved
  find /mnt/many -type f -size 7c -printf '%f\n' >/run/out/many
  ask listing many
  detach "inline-$1"
  for way in read write; do echo 4096 >/proc/sys/sunrpc/rdma_max_inline_$way; done
}

# no_tls PROTO POLICY WANT: the mount is refused at once, and one without TLS is not.
no_tls() {
  local rdma mount path port options
  read -r rdma mount path <<<"${!EXPORT}"
  port=$rdma
  [ "$1" = rdma ] || port=$mount
  options=vers=$VERS,proto=$1,port=$port,retry=0
  [ "$VERS" != 3 ] || options+=,mountport=$mount,mountproto=tcp,nolock
  refused "$3" timeout 100 mount -t nfs -o "$options,xprtsec=$2" "$SERVER:$path" /mnt
  mount -t nfs -o "$options" "$SERVER:$path" /mnt
  cmp /run/local/some /mnt/some
  umount /mnt
}

for VERS in 3 4.2; do
  PREFIX=$VERS/ EXPORT=VOLUME
  [ "$VERS" = 3 ] || EXPORT=PROXY
  ask export "${EXPORT,,}"
  check sizes/in-pages sized 12288 36864 12288 36864
  check sizes/below-the-minimum sized 1000 2048 4096 2048
  check sizes/no-whole-pages sized 70001 5000 69632 4096
  check sizes/above-the-maximum sized 2097152 1048577 1048576 1048576
  check nconnect several 4
  for bytes in 1024 8192 65536; do check "inline/$bytes" inline $bytes; done
  if [ "$TLS $VERS" = "1 3" ]; then
    check tls/tcp no_tls tcp tls 'mount.nfs: Protocol not supported'
    check tls/mutual no_tls tcp mtls 'mount.nfs: Protocol not supported'
    check tls/rdma no_tls rdma tls mount.nfs:    # by the client itself
  fi
done
end
