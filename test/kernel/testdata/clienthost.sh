# The operator's client-host on a node: it loads the modules of the kernel, makes the RDMA device,
# and removes it. The environment has OPERATOR, the program; SERVER and VOLUME as in checks.sh.
# shellcheck shell=bash disable=SC2317  # functions that check calls
set -euo pipefail
. "$TESTDATA/lib.sh"
VERS=3
. "$TESTDATA/checks.sh"

net_up
# The busybox that the kernel runs as modprobe unpacks nothing, and the kernel wants this one for rxe.
modprobe crc32_generic

# started OPTION...: in the background, with the capabilities of the pods; sets host. ended: by
# SIGTERM.
capabilities=-all,+net_admin,+sys_module
started() { (exec setpriv --bounding-set="$capabilities" --inh-caps=-all "$OPERATOR" client-host "$@" 2>/run/log) & host=$!; }
ended() { kill "$host"; wait "$host"; cat /run/log; }
# ready: the probe succeeds. notready TEXT: it fails, with the text.
probe() { "$OPERATOR" client-host --check >/run/said; }
ready() { until probe; do sleep 0.5; kill -0 "$host" || { cat /run/log; return 1; }; done; }
notready() { until ! probe && grep -F "$1" /run/said; do sleep 0.5; kill -0 "$host" || { cat /run/log; return 1; }; done; }
device() { [ "$(rdma link show | grep -c "link $1/1 .* netdev $2")" = 1 ]; }
no_device() { equal "$(rdma link show)" ''; }

prepared() {
  [ ! -e /sys/module/rpcrdma ] && [ ! -e /sys/module/siw ]
  started --link-type=siw
  ready
  [ -e /sys/module/rpcrdma ]
  device siw0 eth0
}
restored() {
  rdma link del siw0
  until device siw0 eth0; do sleep 0.5; done
}
mounted() {
  modprobe nfsv3
  attach VOLUME
  head -c 100000 /dev/urandom >/mnt/data
  ended
  grep -q 'RDMA device siw0 stays, since module rpcrdma has' /run/log
  device siw0 eth0
  started --link-type=siw
  ready
  cat /mnt/data >/dev/null
  umount /mnt
}
removed() {
  until [ "$(cat /sys/module/rpcrdma/refcnt)" = 0 ]; do sleep 0.1; done    # the kernel disconnects in the background
  ended
  no_device
}
others() {
  rdma link add siw0 type siw netdev lo
  started --link-type=siw
  notready 'RDMA device siw0 is there already, with protocol iw on interface "lo": want iw on eth0'
  ended
  device siw0 lo
  rdma link del siw0
}
no_interface() {
  started --link-type=siw --interface=eth9
  notready 'interface eth9: not on this node, which has lo, eth0'
  ended
}
powerless() {
  capabilities=-all
  started --link-type=siw
  notready 'operation not permitted'
  ended
  no_device
}
rxe() {
  started --link-type=rxe --link-name=rdma7 --interface=eth0
  ready
  device rdma7 eth0
  ended
  no_device
}

all() { prepared; restored; mounted; removed; }
check siw all
check others-device others
check no-interface no_interface
check no-capabilities powerless
check rxe rxe
echo "done"
