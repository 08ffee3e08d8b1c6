# Checks of a client on an export, for scripts that source this after lib.sh. The environment has
#
#   SERVER, VERS              the server's address, and the version of NFS
#   PROTO                     tcp, if not rdma
#   TESTDATA, PROBE, TREE     this folder, the program probe, an archive of a source tree
#   MANY                      the number of files in the folder "many", if not 5000
#   FIO                       the jobs of fio, if not verify.fio
#   OPTIONS                   further options of mount(8)
#   LACKS                     known gaps of the server: acl (NFSACL), symlink-times,
#                             long-symlinks, enotempty
#
# An export is the name of a variable with its RDMA port, its TCP port, also of MOUNT, and its path.
# shellcheck shell=bash disable=SC2317  # functions that check calls
umask 022
PROTO=${PROTO:-rdma}

# begin: sets up the network, the RDMA device and a trace of the kernel, and unpacks the tree if
# TREE is not empty. end: prints the kernel's log, and the script's last word.
begin() {
  net_up
  rdma_up siw
  ln -sf /proc/self/fd /dev/fd              # for <(COMMAND)
  mkdir -p /run/local /run/tracing
  mount -t tracefs tracefs /run/tracing
  echo 1 >/run/tracing/events/rpcrdma/xprtrdma_marshal_failed/enable
  [ -n "$TREE" ] || return 0
  tar -C /run/local --one-top-level=tree -xf "$TREE"
  head -c 16M /dev/urandom >/run/local/noise
}
end() { cp /run/tracing/trace /run/out/trace; dmesg >/run/out/dmesg; echo "done"; }

# attach EXPORT [DIR]: mounts it, by default at /mnt. detach NAME [DIR]: unmounts it, and saves the
# mount's statistics for the test.
attach() {
  local rdma tcp path dir=${2:-/mnt} options port
  read -r rdma tcp path <<<"${!1}"
  port=$rdma
  [ "$PROTO" = rdma ] || port=$tcp
  options=vers=$VERS,proto=$PROTO,port=$port${OPTIONS:+,$OPTIONS}
  [ "$VERS" != 3 ] || options+=,mountport=$tcp,mountproto=tcp,nolock
  [[ $VERS != 3 || " ${LACKS:-} " != *" acl "* ]] || options+=,noacl
  mount -t nfs -o "$options" "$SERVER:$path" "$dir"
  grep -q " $dir nfs4\? .*vers=$VERS,.*proto=$PROTO" /proc/mounts
}
detach() { cp /proc/self/mountstats "/run/out/mountstats.$VERS-$1"; umount "${2:-/mnt}"; }
# client NAME: the next mount by version 4 is that of another client.
client() { echo "$1" >/sys/module/nfs/parameters/nfs4_unique_id; }
# anew EXPORT: a new mount with empty caches.
anew() { umount /mnt; attach "$1"; }

# -- a source tree in and out --
tree_in() { mkdir /mnt/tree; tar -xf "$TREE" -C /mnt/tree; }
tree_copy() { cp -r --preserve=mode,timestamps /run/local/tree /mnt/copy; }
tree_out() {
  rm -rf /run/local/out; mkdir /run/local/out
  tar -cf - -C /mnt/tree . | tar -xf - -C /run/local/out
  diff -r /run/local/tree /run/local/out
}
tree_on_host() { ask compare tree; ask compare copy; }

# -- files of every length --
sizes() { local dir=${*: -1}; mkdir -p "$dir"; "$PROBE" files "$@"; }
sizes_on_host() { ask files buffered 0; ask files direct 1; }

# -- random reads and writes, verified by fio --
verify() { mkdir /mnt/fio; fio --output-format=terse --directory=/mnt/fio "$TESTDATA/${FIO:-verify.fio}"; rm -r /mnt/fio; }

# -- directories --
many() { ls -U /mnt/many >/run/out/many; ask listing many; }
many_attributes() { [ "$(find /mnt/many -type f -size 7c | wc -l)" = "${MANY:-5000}" ]; }

# same NAME: compares stat(2) here and on the server.
same() { list "/mnt/$1" >"/run/out/$1"; ask same "$1"; }

# empty removes everything except "many".
empty() {
  find /mnt -mindepth 1 -maxdepth 1 ! -name many -exec rm -r {} +
  equal "$(ls -A /mnt)" many
}

# -- locks and ACLs of version 4, also seen by another mount --
# locked HERE THERE: a range locked HERE is refused THERE, until it is unlocked.
locked() {
  : >"$1/locked"
  exec 8<>"$1/locked" 9<>"$2/locked"
  flock -n 8
  if flock -n 9; then echo "got what the other has locked"; return 1; fi
  exec 8>&-
  flock -n 9
  exec 9>&-
  rm "$1/locked"
}

acl_of() { nfs4_getfacl "$1" | grep -v '^#'; }
set_acl() {
  local mode=$1 file=$2 who
  { echo 'A::OWNER@:rwatTcCy'
    for ((who = 2000; who < 2200; who++)); do echo "A::$who:$mode"; done
    echo 'A::GROUP@:tcy'; echo 'A::EVERYONE@:tcy'; } >/run/local/acl
  nfs4_setfacl -S /run/local/acl "$file"
}
may() { setpriv --reuid="$1" --regid="$1" --clear-groups cat "$2" >/dev/null; }
# acls THERE: an ACL of 200 users, longer than the inline threshold. It is set here, and seen there.
acls() {
  echo text >/mnt/acl
  set_acl rtcy /mnt/acl
  acl_of "$1/acl" >/run/local/there
  diff <(acl_of /mnt/acl) /run/local/there
  equal "$(grep -c '^A::2[01]..:r' /run/local/there)" 200
  may 2199 /mnt/acl
  refused 'Permission denied' may 2200 /mnt/acl

  set_acl watcy "$1/acl"
  anew DATA
  diff <(acl_of /mnt/acl) <(acl_of "$1/acl")
  refused 'Permission denied' may 2199 /mnt/acl
}

# -- all of them --
# everything EXPORT: the export has the folder "many". It leaves tree, copy, buffered, direct, names
# and users.
everything() {
  attach "$1"
  check tree/in tree_in
  check tree/copy tree_copy
  check sizes/write-buffered sizes write /mnt/buffered
  check sizes/write-direct sizes -direct write /mnt/direct
  check sizes/overwrite-direct sizes -direct -round 1 write /mnt/direct
  detach written

  attach "$1"
  check tree/out tree_out
  check tree/on-host tree_on_host
  check sizes/read-buffered sizes -round 1 read /mnt/direct
  check sizes/read-direct sizes -direct read /mnt/buffered
  check sizes/on-host sizes_on_host
  check fio/verify verify
  check directory/names many
  check directory/attributes many_attributes
  if wanted names/; then "$PROBE" names /mnt/names; fi
  if wanted users/; then "$PROBE" users /mnt/users; fi
  detach names

  attach "$1"
  check names/on-host same names
  check users/on-host same users
  detach names-again
}
