# The gateway on the device, with the kernel's client, and with three backends: a directory,
# NFS-Ganesha, and the kernel's server by RDMA; sluicectl on all of them.
# shellcheck shell=bash disable=SC2154,SC2317  # see device.sh; functions that check calls

truncate -s 512M /run/disk; mkfs.ext4 -q /run/disk; mount -o loop /run/disk /srv
mkdir -p /srv/data /data /mnt /run/vol /run/state
mount --bind /srv/data /data                # so that the path is the same in version 3, and in version 4, where /srv is "/"
knfsd /srv
exportfs -o rw,fsid=1,insecure,no_root_squash,no_subtree_check '*:/data'
"$GANESHA" --dir /srv/data --path /data --port 12049 --mount-port 12048 --state /run/ganesha
mkdir -m 777 /run/vol/open /data/open
head -c 1500001 /dev/urandom >/run/noise
head -c 300001 /run/noise >/run/little

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
- name: ganesha
  listeners:
  - {network: rdma, provider: verbs, device: ${device}0, address: "$at:20051"}
  - {network: tcp, address: "$at:2051"}
  - {network: rdma, provider: iwarp, address: "$at:20052"}
  backend: {nfs: {server: 127.0.0.1, port: 12049, mountPort: 12048, path: /data}}
  access: [{from: {networks: [10.0.0.0/8]}, mode: ReadWrite, squash: None}]
- name: linux
  listeners:
  - {network: rdma, provider: verbs, address: "$at:20053"}
  backend: {rdma: {server: $at, port: 20049, provider: verbs, path: /data, versions: ["4.1"]}}
  access: [{from: {networks: [10.0.0.0/8]}, mode: ReadWrite, squash: None}]
Y
listeners=6
gateway=("$bin/gateway" --config /run/gateway.yaml)

attach() {                                  # EXPORT VERSION
  local port mount
  case $1 in volume) port=20050 mount=2050 ;; ganesha) port=20051 mount=2051 ;; linux) port=20053 ;; esac
  case $2 in
    3) mount -t nfs -o "vers=3,proto=rdma,port=$port,mountport=$mount,mountproto=tcp,nolock" "$at:/" /mnt ;;
    *) mount -t nfs -o "vers=$2,proto=rdma,port=$port" "$at:/" /mnt ;;
  esac
}

# moved EXPORT PATH: whether data were sent by chunks.
moved() {
  get /metrics | awk -v export="export=\"$1\"" -v path="path=\"$2\"" \
    '/^sluice_bytes_total/ && index($0, export) && index($0, path) {n += $NF} END {exit !(n > 1000000)}'
}

mounted() {                                 # EXPORT VERSION FILES
  attach "$1" "$2"
  cp /run/noise "/mnt/file-$1-$2"
  # As another user: the gateway's threads assume that identity.
  setpriv --reuid=1234 --regid=1234 --clear-groups cp /run/noise "/mnt/open/other-$1-$2"
  umount /mnt                               # which writes what is not written
  cmp /run/noise "$3/file-$1-$2"
  cmp /run/noise "$3/open/other-$1-$2"
  [ "$(stat -c %u "$3/open/other-$1-$2")" = 1234 ]
  attach "$1" "$2"                          # with nothing in the cache
  cmp /run/noise "/mnt/file-$1-$2"
  umount /mnt
  # A page that takes longer than 10 s is cut: ask again, and show the counters if they stay low.
  until_ok 60 moved "$1" read_chunk || { get /metrics | grep bytes_total; return 1; }
  until_ok 60 moved "$1" write_chunk || { get /metrics | grep bytes_total; return 1; }
}

# transfer URL FLAG...: there and back.
transfer() {
  local url=$1; shift
  "$bin/sluicectl" "$@" put /run/noise "${url/PATH/moved}"
  "$bin/sluicectl" "$@" get "${url/PATH/moved}" /run/back
  cmp /run/noise /run/back
}
knfs="nfs+rdma://$at:20049/PATH?export=/data&mountport=20048"

well() {
  "$bin/sluicectl" doctor >/run/doctor; cat /run/doctor
  grep "${device}0" /run/doctor; grep 'at most .* connections' /run/doctor
  "$bin/sluicectl" doctor --client "$at:20050" >/run/doctor; cat /run/doctor
  grep "link *${device}1" /run/doctor       # the way there is by the client's
}
told() {
  status >/run/status; cat /run/status
  grep "\"name\": \"${device}0\"" /run/status; grep '"connections"' /run/status; grep '"state": "ACTIVE"' /run/status
  if grep problems /run/status; then return 1; fi
}

# objects counts the kernel's objects of each kind and device.
objects() { rdma resource show | sed 's/^[0-9]*: //' | sort; }

objects >/run/before
check Start start "${gateway[@]}"
check Listening until_ok 180 listening $listeners
check Doctor well
check Status told
check VolumeVersion3 mounted volume 3 /run/vol
check GaneshaVersion3 mounted ganesha 3 /data
check GaneshaVersion4.1 mounted ganesha 4.1 /data
check LinuxVersion4.1 mounted linux 4.1 /data
check RequesterLinux transfer "$knfs" --provider verbs
check RequesterGateway transfer "nfs+rdma://$at:20050/PATH" --provider verbs
if [ "$device" = siw ]; then
  check SoftwareDials transfer "nfs+rdma://$at:20051/PATH" --provider iwarp
  check DeviceDials transfer "nfs+rdma://$at:20052/PATH" --provider verbs
fi
