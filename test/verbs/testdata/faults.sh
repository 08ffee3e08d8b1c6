# Faults under a live mount. The gateway of gateway.sh runs.
# shellcheck shell=bash disable=SC2154,SC2317  # see device.sh; functions that check calls

# load: writes and reads until /run/enough exists. No call fails, and all data are right.
# /run/rounds has one byte per round.
load() {
  : >/run/rounds
  until [ -e /run/enough ]; do
    cp /run/little /mnt/load
    dd if=/mnt/load bs=1M iflag=direct status=none >/run/read
    cmp /run/read /run/little
    printf . >>/run/rounds
  done
}
# goes_on: waits for a whole round from here.
goes_on() { until_ok 300 past $(($(stat -c %s /run/rounds) + 2)); }
past() { [ "$(stat -c %s /run/rounds)" -ge "$1" ]; }

# under_load COMMAND...: runs it while the export ganesha is written to and read.
under_load() {
  local loader
  rm -f /run/enough /run/rounds
  attach ganesha 3
  load & loader=$!
  trap 'kill $loader; umount -l /mnt' EXIT  # when something fails; this is a shell of its own
  until_ok 180 test -e /run/rounds
  goes_on
  "$@"
  goes_on
  touch /run/enough
  wait $loader
  trap - EXIT
  umount /mnt
}

restarted() {
  kill -9 "$(cat /run/gateway.pid)"
  until_ok 60 gone
  start "${gateway[@]}"
  until_ok 180 listening $listeners
}

# peers_killed: a killed peer leaves nothing behind, and disturbs no other. The kernel disconnects
# on its behalf, but sends that only once. If it is lost, the gateway's adapter notices by
# requesting acknowledgements, for the better part of a minute.
peers_killed() {
  local before; before=$(peers)
  for _ in 1 2; do
    timeout -s KILL 5 "$bin/sluicectl" --provider verbs bench --op READ --size 64K --depth 8 --duration 1m "nfs+rdma://$at:20051/" || true
  done
  until_ok 300 as_many "$before"
}
peers() { status | grep -c '"provider": "verbs",'; }                # and listeners
as_many() { [ "$(peers)" = "$1" ]; }

link_down() {
  ip link set g0 down
  until_ok 90 says DOWN
  sleep 2                                   # so that what is under way meets it
  ip link set g0 up
  way_back
  until_ok 90 says ACTIVE
  until_ok 180 listening $listeners
  # Messages of the connection manager during the outage permanently break rxe's queue pair for such
  # messages. Nobody can connect to it any more, not even the kernel's client to the kernel's
  # server, until the device is created again.
  [ "$device" != rxe ] || anew
}
says() { status >/run/status; grep "\"state\": \"$1\"" /run/status; }

# anew: removes and adds the device again. Prints the time of the removal, in milliseconds.
anew() {
  local begun=$EPOCHREALTIME
  rdma link delete "${device}0"             # the kernel's own server has to let go of it too
  took=$(((${EPOCHREALTIME/./} - ${begun/./}) / 1000))
  say "rdma link delete: $took ms"
  until_ok 90 listening 3
  status | grep -A 3 '"provider": "verbs"'
  rdma link add "${device}0" type "$device" netdev g0
  until_ok 180 listening $listeners
}
# removed: the removal takes at most 5 s. A busy machine may take longer, but not each time.
removed() {
  local try
  for try in 1 2 3; do
    anew
    [ "$took" -gt 5000 ] || return 0
    goes_on
  done
  return 1
}

# unprivileged COMMAND...: without the right to lock more memory than the limit, which is too low.
unprivileged() { ulimit -l 64; exec setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock "$@"; }
memlock() {
  mv /run/gateway.log /run/gateway.log.before
  start unprivileged "${gateway[@]}"
  until_ok 180 listening $listeners
  status >/run/status; cat /run/status
  grep 'may lock 64 KiB' /run/status
  if timeout 60 "$bin/sluicectl" --provider verbs --timeout 5s ping "nfs+rdma://$at:20051/"; then return 1; fi
  cat /run/gateway.log
  grep memlock /run/gateway.log
  "$bin/sluicectl" ls "nfs+tcp://$at:2051/"           # the others go on
  "$bin/sluicectl" --provider iwarp ls "nfs+rdma://$at:20052/"
}

# resources: the kernel has as many objects as before the gateway's start.
resources() { stop; until_ok 180 same; }
same() { objects >/run/after; diff /run/before /run/after; }

check GatewayKilled under_load restarted
check PeersKilled under_load peers_killed
check LinkDown under_load link_down
check DeviceRemoved under_load removed
check Resources resources
check Memlock memlock
check ResourcesAgain resources
