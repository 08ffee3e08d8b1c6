# reused.sh PROGRAMS: a request's memory is reused after its completion, while TCP still holds what siw
# sent from it.
# shellcheck shell=bash disable=SC2034,SC2154  # for lib.sh; from it
set -euo pipefail
bin=$1
. "$TESTDATA/lib.sh"

net_up
ulimit -l unlimited
rdma_up siw
modprobe sch_netem
tc qdisc add dev lo root netem delay 100ms
try verbs Conformance/write_reused -kind siw
exit $failed
