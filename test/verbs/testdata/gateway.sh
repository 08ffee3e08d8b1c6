# gateway.sh PROGRAMS DEVICE: the gateway on a device, "rxe" or "siw", with the kernel's client before it and the kernel's server behind it; sluicectl
# on that server; and what happens when something goes wrong. What it prints is like what Go's tests print.
# shellcheck shell=bash disable=SC2317  # functions that check calls
set -euo pipefail
bin=$1 device=$2
at=10.0.2.15
exec 3>&1
failed=0

# check NAME COMMAND...: runs it up to the first command in it that fails, and shows what it said if one does.
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
say() { echo "$*" >&3; }

# until_ok SECONDS COMMAND...
until_ok() {
  local end=$((SECONDS + $1)); shift
  until "$@"; do
    [ $SECONDS -lt $end ] || { echo "not in time: $*"; return 1; }
    sleep 0.2
  done
}

net_up
ulimit -l unlimited
# librdmacm does not close the last device that there is: another one has to be there before.
rdma_up siw lo siw9
rdma_up "$device"

truncate -s 512M /run/disk; mkfs.ext4 -q /run/disk; mount -o loop /run/disk /srv
mkdir -p /srv/data /data /mnt /run/vol /run/state
mount --bind /srv/data /data                # so that the path is the same in version 3, and in version 4, where /srv is "/"
knfsd /srv
exportfs -o rw,fsid=1,insecure,no_root_squash,no_subtree_check '*:/data'
mkdir -m 777 /run/vol/open /data/open
head -c 5000001 /dev/urandom >/run/noise
sum=$(sha256sum </run/noise)

cat >/run/gateway.yaml <<Y
apiVersion: config.sluice.dev/v1alpha1
kind: GatewayConfig
admin: {address: "127.0.0.1:9180"}
stateDir: /run/state
exports:
- name: volume
  listeners:
  - {network: rdma, provider: verbs, address: "$at:20050"}
  - {network: tcp, address: "$at:2050"}
  backend: {volume: {path: /run/vol}}
  access: [{from: {networks: [10.0.0.0/8]}, mode: ReadWrite, squash: None}]
- name: proxy
  listeners:
  - {network: rdma, provider: verbs, device: ${device}0, address: "$at:20051"}
  - {network: tcp, address: "$at:2051"}
  - {network: rdma, provider: iwarp, address: "$at:20052"}
  backend: {nfs: {server: $at, port: 2049, mountPort: 20048, path: /data}}
  access: [{from: {networks: [10.0.0.0/8]}, mode: ReadWrite, squash: None}]
Y

# get PATH: a page of the gateway.
get() (
  exec 4<>/dev/tcp/127.0.0.1/9180
  printf 'GET %s HTTP/1.0\r\n\r\n' "$1" >&4
  read -r _ code _ <&4
  cat <&4
  [ "$code" = 200 ]
)
status() { get /status; }
listening() { [ "$(status | grep -c '"state": "Listening"')" = "$1" ]; }
start() {
  "$@" "$bin/gateway" --config /run/gateway.yaml >>/run/gateway.log 2>&1 & echo $! >/run/gateway.pid
  until_ok 30 ready
}
ready() { get /readyz >/run/ready 2>&1; }
stop() { kill "$(cat /run/gateway.pid)"; until_ok 40 gone; }
gone() { ! kill -0 "$(cat /run/gateway.pid)" 2>/run/kill.log; }

# objects is the kernel's count of each kind of object, on all devices.
objects() { rdma resource show; }

attach() {                                  # EXPORT VERSION
  local port mount
  case $1 in volume) port=20050 mount=2050 ;; proxy) port=20051 mount=2051 ;; esac
  case $2 in
    3) mount -t nfs -o "vers=3,proto=rdma,port=$port,mountport=$mount,mountproto=tcp,nolock" "$at:/" /mnt ;;
    *) mount -t nfs -o "vers=$2,proto=rdma,port=$port" "$at:/" /mnt ;;
  esac
}

# moved EXPORT PATH: whether data went by chunks.
moved() {
  get /metrics | awk -v export="export=\"$1\"" -v path="path=\"$2\"" \
    '/^sluice_bytes_total/ && index($0, export) && index($0, path) {n += $NF} END {exit !(n > 1000000)}'
}

mounted() {                                 # EXPORT VERSION FILES
  attach "$1" "$2"
  cp /run/noise "/mnt/file-$2"; sync -f "/mnt/file-$2"
  [ "$(sha256sum <"$3/file-$2")" = "$sum" ]
  umount /mnt
  attach "$1" "$2"                          # with nothing in the cache
  [ "$(sha256sum <"/mnt/file-$2")" = "$sum" ]
  # As another user: the gateway's threads act as him.
  setpriv --reuid=1234 --regid=1234 --clear-groups cp /run/noise "/mnt/open/other-$2"
  cmp /run/noise "$3/open/other-$2"
  [ "$(stat -c %u "$3/open/other-$2")" = 1234 ]
  umount /mnt
  moved "$1" read_chunk
  moved "$1" write_chunk
}

# transfer URL FLAG...: there and back.
transfer() {
  local url=$1; shift
  "$bin/sluicectl" "$@" put /run/noise "${url/PATH/moved}"
  "$bin/sluicectl" "$@" get "${url/PATH/moved}" /run/back
  cmp /run/noise /run/back
  "$bin/sluicectl" "$@" ping "${url/PATH/}"
}
knfs="nfs+rdma://$at:20049/PATH?export=/data&mountport=20048"

well() {
  "$bin/sluicectl" doctor >/run/doctor; cat /run/doctor
  grep "${device}0" /run/doctor; grep 'at most .* connections' /run/doctor
  "$bin/sluicectl" doctor --client "$at:20050" >/run/doctor; cat /run/doctor
  grep "link *${device}0" /run/doctor
}
told() {
  status >/run/status; cat /run/status
  grep "\"name\": \"${device}0\"" /run/status; grep '"connections"' /run/status; grep '"state": "ACTIVE"' /run/status
  if grep problems /run/status; then return 1; fi
}

# -- what goes wrong -------------------------------------------------------------------------------------------------------

# unprivileged COMMAND...: without the right to lock more memory than the limit, which is too low.
unprivileged() { ulimit -l 64; exec setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock "$@"; }
memlock() {
  start unprivileged
  until_ok 20 listening 5
  status >/run/status; cat /run/status
  grep 'may lock 64 KiB' /run/status
  if timeout 60 "$bin/sluicectl" --provider verbs --timeout 5s ping "nfs+rdma://$at:20051/"; then return 1; fi
  cat /run/gateway.log
  grep 'memlock' /run/gateway.log
  "$bin/sluicectl" ls "nfs+tcp://$at:2051/"           # the others go on
  "$bin/sluicectl" --provider iwarp ls "nfs+rdma://$at:20052/"
  stop
  : >/run/gateway.log
}

# load: somebody writes and reads all the time, until /run/enough is there; what he reads is right. /run/rounds counts how often.
load() {
  : >/run/rounds
  while ! [ -e /run/enough ]; do
    if cp /run/noise /mnt/load && dd if=/mnt/load bs=1M iflag=direct status=none >/run/read; then
      cmp /run/read /run/noise
      echo >>/run/rounds
    else
      [ -n "${1:-}" ]                       # the kernel's client gives up while the device is away, which here is its own too
    fi
  done
}
went_on() { [ "$(wc -l </run/rounds)" -gt $(($1 + 1)) ]; }

removed() {
  rm -f /run/enough
  attach proxy 3
  load away & local loader=$!
  for _ in 1 2; do
    until_ok 60 went_on "$(wc -l </run/rounds)"
    timeout 5 rdma link delete "${device}0"   # the kernel's own client and server have to let go of it too
    until_ok 10 listening 3
    status | grep -A 3 '"provider": "verbs"'
    rdma link add "${device}0" type "$device" netdev eth0
    until_ok 30 listening 5
    until_ok 60 went_on "$(wc -l </run/rounds)"
  done
  touch /run/enough
  wait $loader
  umount /mnt
}

killed() {
  rm -f /run/enough
  attach proxy 3
  load & local loader=$!
  sleep 3
  kill -9 "$(cat /run/gateway.pid)"
  until_ok 10 gone
  start env
  until_ok 20 listening 5
  touch /run/enough
  wait $loader
  umount /mnt
  # The other way round: a peer that is killed leaves nothing behind.
  for _ in 1 2 3; do
    timeout -s KILL 4 "$bin/sluicectl" --provider verbs bench --op READ --size 64K --depth 8 --duration 1m "nfs+rdma://$at:20051/" || true
  done
  until_ok 30 alone
}
alone() { [ "$(status | grep -c '"provider": "verbs",')" = 2 ]; }   # those are the listeners

# before and after: what the device has, when nobody is there.
resources() { stop; until_ok 30 same; }
same() { objects >/run/after; diff /run/before /run/after; }

objects >/run/before
check Memlock memlock
start env
check Listening until_ok 30 listening 5
check Doctor well
check Status told
check VolumeVersion3 mounted volume 3 /run/vol
check ProxyVersion3 mounted proxy 3 /data
check ProxyVersion4.1 mounted proxy 4.1 /data
check RequesterKernel transfer "$knfs" --provider verbs
check RequesterGateway transfer "nfs+rdma://$at:20050/PATH" --provider verbs
if [ "$device" = siw ]; then
  check SoftwareDials transfer "nfs+rdma://$at:20051/PATH" --provider iwarp
  check DeviceDials transfer "nfs+rdma://$at:20052/PATH" --provider verbs
fi
check Killed killed
check Resources resources
start env
check ListeningAgain until_ok 30 listening 5
check Removed removed
[ $failed = 0 ] || tail -n 40 /run/gateway.log
exit $failed
