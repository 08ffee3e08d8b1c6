# What a guest of these tests runs: an iWARP device on its interface, and then each N.sh that the test puts into /run/out, counted from 1, several
# at once if it likes. What a command says goes to N.out, and when it has ended its status to N.status. The file "end" ends it all.
# shellcheck shell=bash
net_up
# A Service without a pod is refused by ICMP, which QEMU's user network does not pass on: the client would repeat its SYN for two minutes.
sysctl -qw net.ipv4.tcp_syn_retries=2
rdma_up siw
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
