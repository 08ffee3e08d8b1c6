# image.sh ARCHIVE: the image of the gateway with adapters, on rxe0. Its programs see its own files and what Kubernetes and the device plugin would add, nothing
# else. What this prints is like what Go's tests print.
# shellcheck shell=bash disable=SC2317  # functions that check calls
set -euo pipefail
archive=$1 at=10.0.2.15 image=/run/image

# check NAME COMMAND...: runs it up to the first command in it that fails, and shows what it said if one does.
failed=0
check() {
  local name=$1 status begun=$SECONDS; shift
  set +e
  ( set -e; "$@" ) >/run/check.log 2>&1 </dev/null; status=$?
  set -e
  if [ $status = 0 ]; then echo "--- PASS: Test$name ($((SECONDS - begun))s)"; return; fi
  tail -n 60 /run/check.log
  echo "--- FAIL: Test$name"
  failed=1
}

net_up
rdma_up rxe
mkdir -p $image /mnt
tar -xOf "$archive" "$(tar -tf "$archive" | grep '\.tar\.gz$')" | tar -xzC $image
mkdir -p $image/{proc,sys,dev/infiniband,volume,etc/sluice}
mount -t proc proc $image/proc
mount -t sysfs -o ro sysfs $image/sys
mount --bind /dev/infiniband $image/dev/infiniband
mknod -m 666 $image/dev/null c 1 3
mknod -m 666 $image/dev/urandom c 1 9
cat >$image/etc/sluice/gateway.yaml <<Y
apiVersion: config.sluice.dev/v1alpha1
kind: GatewayConfig
admin: {address: "127.0.0.1:9180"}
exports:
- name: volume
  listeners:
  - {network: rdma, provider: verbs, address: "$at:20050"}
  - {network: tcp, address: "$at:2050"}
  backend: {volume: {path: /volume}}
  access: [{from: {networks: [10.0.0.0/8]}, mode: ReadWrite, squash: None}]
Y

# inside COMMAND...: with the capabilities that a container of root has, and IPC_LOCK.
inside() {
  ulimit -l 64
  exec setpriv --inh-caps -all --bounding-set -all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap,+ipc_lock \
    chroot $image "$@"
}
# of PROCESS: whether each file that it has mapped is the image's.
own() {
  local file
  awk '$6 ~ "^/" && $6 !~ "^/(dev|anon)" {print $6}' "/proc/$1/maps" | sort -u >/run/maps
  cat /run/maps
  grep librxe /run/maps
  while read -r file; do [ -e "$file" ] && [[ $file = $image/* ]]; done </run/maps
}
doctor() {
  ( inside /usr/bin/sluicectl doctor ) >/run/doctor; cat /run/doctor
  grep rxe0 /run/doctor; grep 'at most .* connections' /run/doctor
}
serving() {
  local end=$((SECONDS + 40))
  until [ "$(get /status | grep -c '"state": "Listening"')" = 2 ]; do
    [ $SECONDS -lt $end ] || { get /status; cat /run/gateway.log; return 1; }
    sleep 0.2
  done
  own "$(cat /run/gateway.pid)"
}
get() (
  exec 4<>/dev/tcp/127.0.0.1/9180 || exit
  printf 'GET %s HTTP/1.0\r\n\r\n' "$1" >&4
  cat <&4
)
mounted() {
  head -c 3000001 /dev/urandom >/run/noise
  mount -t nfs -o "vers=3,proto=rdma,port=20050,mountport=2050,mountproto=tcp,nolock" $at:/ /mnt
  cp /run/noise /mnt/file
  sync -f /mnt/file
  cmp /run/noise $image/volume/file
  mkdir -m 777 /mnt/open
  setpriv --reuid=1234 --regid=1234 --clear-groups cp /run/noise /mnt/open/other
  [ "$(stat -c %u $image/volume/open/other)" = 1234 ]
  umount /mnt
  mount -t nfs -o "vers=3,proto=rdma,port=20050,mountport=2050,mountproto=tcp,nolock" $at:/ /mnt
  cmp /run/noise /mnt/file
  umount /mnt
}
ended() {
  kill "$(cat /run/gateway.pid)"
  local end=$((SECONDS + 40))
  while [ -e "/proc/$(cat /run/gateway.pid)" ]; do [ $SECONDS -lt $end ]; sleep 0.2; done
}

check Doctor doctor
( inside /usr/bin/gateway --config /etc/sluice/gateway.yaml ) >/run/gateway.log 2>&1 &
echo $! >/run/gateway.pid
check Serving serving
check Mounted mounted
check Ended ended
[ $failed = 0 ] || tail -n 40 /run/gateway.log
exit $failed
