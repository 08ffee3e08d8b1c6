# suite.sh FOLDER DEVICE CYCLES: the tests of the provider that need a device, "rxe" or "siw", the kernel's software.
set -euo pipefail
folder=$1 device=$2 cycles=$3
net_up
rdma_up "$device"
ulimit -l unlimited
failed=0
# try PROGRAM TESTS FLAG...
try() { "$folder/$1.test" -test.v -test.timeout 40m -address 10.0.2.15:0 -test.run "$2" "${@:3}" 2>&1 || failed=1; }

try calls '^TestCalls$'
try verbs '^Test(Credentials|Conformance|Software|Churn)$' -kind "$device" -cycles "$cycles"
# librdmacm does not close the last device that there is; the other one has to be there first.
rdma link delete "${device}0"
rdma_up siw lo siw1
rdma_up "$device"
try verbs '^TestRemoval$' -kind "$device" -remove "rdma link delete ${device}0" -add "rdma link add ${device}0 type $device netdev eth0"
exit $failed
