# The guest of these tests: an iWARP device on its interface, or, with NODE=FUNCTIONS, a node of the
# cluster (hack/cluster/guest). It runs each N.sh that the test puts into /run/out, counted from 1, concurrently if several are there. The output of N.sh goes to
# N.out, and at its end its status to N.status. The file "end" stops the guest.
# shellcheck shell=bash
# ICMP refuses a Service without a pod, but QEMU's user network drops it: the client would repeat
# its SYN for two minutes.
sysctl -qw net.ipv4.tcp_syn_retries=2
if [ -n "${NODE:-}" ]; then
  bash -x "$ROOT/hack/cluster/guest" "$NODE" >/run/out/node.log 2>&1 &
  until [ -e "$dir/run/n3.ready" ]; do
    kill -0 $! || { cat /run/out/node.log; exit 1; }
    sleep 0.5
  done
else
  net_up
  rdma_up siw
fi
touch /run/out/ready
n=1
until [ -e /run/out/end ]; do
  if [ ! -e /run/out/$n.sh ]; then sleep 0.1; continue; fi
  {
    bash -e /run/out/$n.sh >/run/out/$n.out 2>&1 </dev/null
    echo $? >/run/out/$n.new
    mv /run/out/$n.new /run/out/$n.status
  } &
  n=$((n + 1))
done
umount -a -f -l -t nfs,nfs4
