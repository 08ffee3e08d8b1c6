# Helpers of the guest's scripts. They print for the test outside:
#
#   run NAME             a check begins
#   pass NAME            it passed
#   fail NAME            it failed, after its output
#   ask WORD...          a request to the test; its answer in /run/out/answer is "ok" or the error
#   done                 the script is complete
#
# Every other line is for people.
# shellcheck shell=bash

exec 3>&1                                   # where checks, whose own output is held back, speak to the test

# wanted NAME: whether to run a check of this name; ONLY is a regular expression of their names.
wanted() { [[ $1 =~ ${ONLY:-} ]]; }

# check NAME COMMAND...: runs it, usually a function, up to the first command in it that fails.
# Prints its output if it fails.
# PREFIX goes before the names of checks, including those of the program probe.
export PREFIX=''
check() {
  local name=$PREFIX$1 status log=/run/check.log; shift
  wanted "$name" || return 0
  echo "run $name"
  set +e
  ( set -e; "$@" ) >"$log" 2>&1 </dev/null; status=$?
  set -e
  if [ $status = 0 ]; then echo "pass $name"; else tail -n 60 "$log"; echo "fail $name"; fi
}

# ask WORD...: requests it from the host, and waits for the end. A script may handle some requests
# itself, and pass the others to ask_host.
ask_host() {
  local answer
  rm -f /run/out/answer
  echo "ask $*" >&3
  until [ -e /run/out/answer ]; do sleep 0.05; done
  answer=$(cat /run/out/answer)
  [ "$answer" = ok ] || { echo "on the host: $answer"; return 1; }
}
ask() { ask_host "$@"; }

# say WORD...: shown while the check runs.
say() { echo "$*" >&3; }

# refused WANT COMMAND...: the command must fail, and print WANT.
refused() {
  local want=$1 said; shift
  if said=$("$@" 2>&1); then echo "not refused: $*"; return 1; fi
  case $said in *"$want"*) ;; *) echo "$*: said \"$said\", must say \"$want\""; return 1 ;; esac
}

# equal GOT WANT
equal() { [ "$1" = "$2" ] || { echo "is \"$1\", must be \"$2\""; return 1; }; }

# list DIR: the stat(2) fields of its files, except those that differ between a server and its
# clients.
list() { (cd "$1" && find . -mindepth 1 -print0 | LC_ALL=C sort -z | xargs -0r stat -c '%N %F size %s mode %a owner %u:%g links %h device %t:%T mtime %.9Y ctime %.9Z'); }
