# device.sh PROGRAMS DEVICE CYCLES [IMAGE]: all checks on a device, "rxe" or "siw", the kernel's
# software for RoCE and for iWARP: the provider, with CYCLES successive connections; the gateway and
# sluicectl; faults; and the image of the gateway. The environment has TESTDATA and GANESHA, a
# program that starts NFS-Ganesha.
# shellcheck shell=bash disable=SC2034  # for the scripts that this one reads
set -euo pipefail
bin=$1 device=$2 cycles=$3 image=${4:-}
. "$TESTDATA/lib.sh"

net_up
ip link set eth0 mtu 4500                   # rxe's packets are what costs time: with this they have 4 KiB
ulimit -l unlimited
rdma_up "$device"

. "$TESTDATA/suite.sh"

# The gateway's device, and another one for its clients: the kernel's client does not survive the
# removal of its own device while it connects (Linux 6.1 follows a NULL pointer in
# rpcrdma_cm_event_handler, or fails calls of a hard mount).
rdma link delete "${device}0"
apart
rdma_up "$device" g0 "${device}0"
rdma_up "$device" c0 "${device}1"
at=10.9.0.1
[ "$device" != rxe ] || try verbs TOS -kind "$device" -between g1
. "$TESTDATA/gateway.sh"
. "$TESTDATA/faults.sh"
[ -z "$image" ] || . "$TESTDATA/image.sh"
if [ $failed != 0 ]; then
  tail -n 40 /run/gateway.log*
  cat /run/failed.log                       # last, where whoever looks at the end of a long output sees it
fi
exit $failed
