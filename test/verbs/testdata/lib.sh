# Helpers of the guest's scripts. They print like Go's tests: each check is a case.
# shellcheck shell=bash

at=10.0.2.15
failed=0; : >/run/failed.log
exec 3>&1                                   # where a check, whose own output is held back, can say something

say() { echo "$*" >&3; }                    # say WORD...: shown while the check runs

# check NAME COMMAND...: runs it up to the first command in it that fails, and then prints its
# output.
check() {
  local name=$1 status begun=$SECONDS; shift
  set +e
  ( set -eE; trap 'echo "failed: $BASH_COMMAND"' ERR; "$@" ) >/run/check.log 2>&1 </dev/null; status=$?
  set -e
  if [ $status = 0 ]; then echo "--- PASS: Test$name ($((SECONDS - begun))s)"; return; fi
  { echo "output of $name:"; tail -n 60 /run/check.log; } | tee -a /run/failed.log
  echo "--- FAIL: Test$name ($((SECONDS - begun))s)"
  failed=1
}

# try PROGRAM TEST FLAG...: the test must exist, and pass.
try() {
  "$bin/$1.test" -test.v -test.timeout 20m -address $at:0 -test.run "^Test$2\$" "${@:3}" 2>&1 | tee /run/try.log || failed=1
  if grep -q 'no tests to run' /run/try.log; then failed=1; fi
}

# until_ok SECONDS COMMAND...: repeats the command until it succeeds; fails after that time.
until_ok() {
  local end=$((SECONDS + $1)); shift
  until "$@"; do
    [ $SECONDS -lt $end ] || { echo "not in time: $*"; return 1; }
    sleep 0.3
  done
}

# get PATH: a page of the gateway.
get() (
  exec 4<>/dev/tcp/127.0.0.1/9180 || exit
  printf 'GET %s HTTP/1.0\r\n\r\n' "$1" >&4
  read -r _ code _ <&4
  cat <&4
  [ "$code" = 200 ]
)
status() { get /status; }
ready() { get /readyz >/run/ready 2>&1; }
listening() { [ "$(status | grep -c '"state": "Listening"')" = "$1" ]; }
gone() { ! [ -e "/proc/$(cat /run/gateway.pid)" ]; }

# start COMMAND...: runs the gateway by that, and waits until it is ready.
start() {
  "$@" >>/run/gateway.log 2>&1 & echo $! >/run/gateway.pid
  until_ok 180 ready
}
stop() { kill "$(cat /run/gateway.pid)"; until_ok 180 gone; }

# apart: two interfaces, g0 for the gateway, 10.9.0.1, and c0 for its clients, 10.9.0.2. Packets
# between them cross a switch, although both are the guest's: so a device on g0 can disappear, with
# the gateway's connections, while the clients keep theirs.
apart() {
  local n
  modprobe -a veth bridge
  sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.all.arp_ignore=1  # answer on the owner only
  ip link add switch type bridge
  for n in g c; do
    ip link add ${n}0 type veth peer name ${n}1
    ip link set ${n}1 master switch
    sysctl -qw net.ipv4.conf.${n}0.rp_filter=0 net.ipv4.conf.${n}0.accept_local=1
  done
  for n in switch g1 c1 g0 c0; do ip link set $n mtu 4500 up; done
  ip addr add 10.9.0.1/24 dev g0
  ip addr add 10.9.0.2/24 dev c0
  # These rules come before the local table, which would keep the packets inside the guest. The
  # second rule of each pair matches lookups by interface only.
  for n in 'iif lo' 'oif c0'; do ip rule add pref 10 $n to 10.9.0.1 lookup 101; done
  for n in 'iif lo' 'oif g0'; do ip rule add pref 10 $n to 10.9.0.2 lookup 102; done
  ip rule add pref 20 lookup local
  ip rule del pref 0
  ip route add 10.9.0.1 dev c0 src 10.9.0.2 table 101
  way_back
}
way_back() { ip route replace 10.9.0.2 dev g0 src 10.9.0.1 table 102; }
