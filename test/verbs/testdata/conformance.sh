# conformance.sh BINARY DEVICE: the suite on the software device "rxe" or "siw".
set -euo pipefail
net_up
rdma_up "$2"
ulimit -l unlimited
"$1" -test.v -test.timeout 20m -test.run '^TestConformance$' -address 10.0.2.15:0 -kind "$2" 2>&1
