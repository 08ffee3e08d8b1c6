# Helpers of the guest's scripts. What they print is like what Go's tests print: each check is a case.
# shellcheck shell=bash

at=10.0.2.15
failed=0
exec 3>&1                                   # where a check, whose own output is held back, can say something

say() { echo "$*" >&3; }                    # say WORD...: shown while the check runs

# check NAME COMMAND...: runs it up to the first command in it that fails, and shows what it said if one does.
check() {
  local name=$1 status begun=$SECONDS; shift
  set +e
  ( set -e; "$@" ) >/run/check.log 2>&1 </dev/null; status=$?
  set -e
  if [ $status = 0 ]; then echo "--- PASS: Test$name ($((SECONDS - begun))s)"; return; fi
  tail -n 60 /run/check.log
  echo "--- FAIL: Test$name ($((SECONDS - begun))s)"
  failed=1
}

# until_ok SECONDS COMMAND...: until the command succeeds; in time it has to.
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
  until_ok 60 ready
}
stop() { kill "$(cat /run/gateway.pid)"; until_ok 60 gone; }
