# The provider's own tests that need a device, and the test of huge pages, which needs a machine
# with some.
# shellcheck shell=bash disable=SC2154  # see device.sh

try calls Calls
try verbs Credentials
try verbs QueueRefused -kind "$device"
[ "$device" != rxe ] || try verbs KeepAlive -kind "$device"
[ "$device" != rxe ] || try verbs CompletionOverrun -kind "$device"
try verbs AttachInVain
try verbs Path -kind "$device"
try verbs Conformance -kind "$device"
[ "$device" != siw ] || try verbs Software -kind "$device"
try verbs Churn -kind "$device" -cycles "$cycles"
removals=(Removal IdleRemoval)
[ "$device" != siw ] || removals+=(VainRemoval)
for removal in "${removals[@]}"; do
  try verbs $removal -kind "$device" -remove "rdma link delete ${device}0" -add "rdma link add ${device}0 type $device netdev eth0"
done

echo 24 >/proc/sys/vm/nr_hugepages
"$bin/bufpool.test" -test.v -test.run '^TestHugePages$' || failed=1
echo 0 >/proc/sys/vm/nr_hugepages
