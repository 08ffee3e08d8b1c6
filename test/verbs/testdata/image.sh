# The image of the gateway with adapters, on the device. Its programs see only its own files, and
# the additions of Kubernetes and the device plugin.
# shellcheck shell=bash disable=SC2154,SC2317  # see device.sh; functions that check calls

root=/run/image
mkdir -p $root
tar -xOf "$image" "$(tar -tf "$image" | grep '\.tar\.gz$')" | tar -xzC $root
mkdir -p $root/{proc,sys,dev/infiniband,volume,etc/sluice}
mount -t proc proc $root/proc
mount -t sysfs -o ro sysfs $root/sys
mount --bind /dev/infiniband $root/dev/infiniband
mknod -m 666 $root/dev/null c 1 3
mknod -m 666 $root/dev/urandom c 1 9
cat >$root/etc/sluice/gateway.yaml <<Y
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

# inside COMMAND...: runs it with the capabilities of a root container, and IPC_LOCK.
inside() {
  ulimit -l 64
  exec setpriv --inh-caps -all --bounding-set -all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap,+ipc_lock \
    chroot $root "$@"
}
# own PROCESS: whether all files that it has mapped are from the image.
own() {
  local file
  awk '$6 ~ "^/" && $6 !~ "^/(dev|anon)" {print $6}' "/proc/$1/maps" | sort -u >/run/maps
  cat /run/maps
  grep "lib$device" /run/maps
  while read -r file; do [ -e "$file" ] && [[ $file = $root/* ]]; done </run/maps
}
image_doctor() {
  ( inside /usr/bin/sluicectl doctor ) >/run/doctor; cat /run/doctor
  grep "${device}0" /run/doctor; grep 'at most .* connections' /run/doctor
}
serving() {
  ( inside /usr/bin/gateway --config /etc/sluice/gateway.yaml ) >>/run/gateway.log 2>&1 & echo $! >/run/gateway.pid
  until_ok 180 listening 2
  own "$(cat /run/gateway.pid)"
}
mount_image() { mount -t nfs -o "vers=3,proto=rdma,port=20050,mountport=2050,mountproto=tcp,nolock" $at:/ /mnt; }
image_mounted() {
  mount_image
  cp /run/noise /mnt/file
  mkdir -m 777 /mnt/open
  setpriv --reuid=1234 --regid=1234 --clear-groups cp /run/noise /mnt/open/other
  umount /mnt
  cmp /run/noise $root/volume/file
  [ "$(stat -c %u $root/volume/open/other)" = 1234 ]
  mount_image
  cmp /run/noise /mnt/file
  umount /mnt
}

check ImageDoctor image_doctor
check ImageServing serving
check ImageMounted image_mounted
check ImageEnded stop
