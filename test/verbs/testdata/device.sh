# device.sh PROGRAMS DEVICE CYCLES [IMAGE]: all that is tried on a device, "rxe" or "siw", the kernel's software for RoCE and for iWARP: the provider, which makes
# CYCLES connections one after the other; the gateway and sluicectl; what goes wrong; and the image of the gateway. The environment has TESTDATA and GANESHA, a program that starts one.
# shellcheck shell=bash disable=SC2034  # for the scripts that this one reads
set -euo pipefail
bin=$1 device=$2 cycles=$3 image=${4:-}
. "$TESTDATA/lib.sh"

net_up
ip link set eth0 mtu 4500                   # rxe's packets are what costs time: with this they have 4 KiB
ulimit -l unlimited
rdma_up siw lo siw9                         # librdmacm does not close the last device that there is: another one has to be there before
rdma_up "$device"

. "$TESTDATA/suite.sh"
. "$TESTDATA/gateway.sh"
. "$TESTDATA/faults.sh"
[ -z "$image" ] || . "$TESTDATA/image.sh"
[ $failed = 0 ] || tail -n 40 /run/gateway.log*
exit $failed
