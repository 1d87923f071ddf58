# shellcheck shell=bash
# Hosts on one machine, to measure and test over a network: network namespaces joined by a bridge, each with a link of a
# given rate in both directions. To be sourced. Everything is in namespaces of the script, with its files in a memory
# file system. So the kernel removes everything however the script ends. No root is needed where users may make
# namespaces.
#
#   virtual_hosts_possible                   returns 1, with a line on stderr, if they cannot be made
#   enter_virtual_hosts SCRIPT ARGUMENT...   runs the script again inside with these arguments, and exits with its
#                                            status; returns at once if it is inside already; returns 1, with a line on
#                                            stderr, if virtual hosts cannot be made
#   make_hosts K RATE                        makes h1 to hK; RATE in tc's units, e.g. 100mbit
#   remove_hosts
#   on_host NAME COMMAND...                  runs a command in the network of a host
#   sent_bytes NAME                          bytes sent by a host's interface since it was made
#   sent_on_wire NAME                        likewise with the headers of every frame, as the rate limit counts them
#   virtual_mpirun                           prints mpirun with the options that it needs there
#   mpirun_on_hosts K COMMAND...             one process on each host; killed after $virtual_hosts_seconds, default 60
#   $TMPDIR/by_address ADDRESS LINE          for owt launch --ssh: runs a shell's line on the host with this address
#                                            (10.99.0.1 is h1), with its own process numbers. Its output goes to
#                                            $virtual_hosts_output/NAME if this variable is set
#   make_share NAME PERCENT                  makes a control group with this share of a core; needs root. The empty
#                                            group remains when the script has ended
#   share_file NAME                          the file to which a process writes 0 to enter the group
#
# Inside, $TMPDIR is a folder that disappears with the namespaces.

virtual_network=10.99.0
virtual_tools="ip:iproute2 tc:iproute2 unshare:util-linux setpriv:util-linux mpirun:openmpi-bin"

virtual_hosts_error() {
  echo "virtual hosts: error: $*" >&2
  return 1
}

# Sets `virtual_spaces`, the options for unshare.
virtual_hosts_possible() {
  export PATH=$PATH:/usr/sbin:/sbin
  local tool
  virtual_spaces=(--net --mount --pid --fork --kill-child --mount-proc)
  for tool in $virtual_tools; do
    command -v "${tool%:*}" >/dev/null ||
      virtual_hosts_error "there is no '${tool%:*}' here; install what Debian calls ${tool#*:}" || return 1
  done
  unshare "${virtual_spaces[@]}" true 2>/dev/null || virtual_spaces+=(--map-root-user)
  unshare "${virtual_spaces[@]}" true 2>/dev/null ||
    virtual_hosts_error "this user may not make namespaces ('unshare -rn true' fails); run as root, or allow it with" \
      "sysctl kernel.unprivileged_userns_clone=1 or, on Ubuntu, kernel.apparmor_restrict_unprivileged_userns=0" ||
    return 1
  unshare "${virtual_spaces[@]}" sh -c 'ip link add br0 type bridge && ip link add v0 type veth peer name e0 &&
    tc qdisc add dev e0 root tbf rate 1gbit burst 64k latency 50ms && mount -t tmpfs none /run' 2>/dev/null ||
    virtual_hosts_error "no bridge, veth pair, tbf queue or memory file system could be made; the kernel modules are" \
      "called bridge, veth and sch_tbf"
}

enter_virtual_hosts() {
  [ -z "${inside_virtual_hosts:-}" ] || return 0
  virtual_hosts_possible || return 1
  # Open MPI names its shared memory after the host and the number of mpirun's process. These numbers are the same in
  # every such namespace, so two scripts would use the same memory in /dev/shm. The parameters are of Open MPI 4 and 5.
  inside_virtual_hosts=1 setpriv --pdeathsig KILL unshare "${virtual_spaces[@]}" bash -c '
    mount -t tmpfs none /run && mkdir -p /run/netns /run/tmp &&
      export TMPDIR=/run/tmp {OMPI_MCA_btl_vader,OMPI_MCA_btl_sm}_backing_directory=/run/tmp && exec bash "$@"' bash "$@" &
  virtual_hosts_child=$!
  # The child is the first process of its namespaces, which end with it.
  trap 'kill -KILL "$virtual_hosts_child" 2>/dev/null || true' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  wait "$virtual_hosts_child"
  exit
}

make_hosts() {
  local count=$1 rate=$2 i
  ip link set lo up
  ip link add br0 type bridge
  ip link set br0 up
  ip addr add "$virtual_network.254/24" dev br0
  for ((i = 1; i <= count; i++)); do
    ip netns add "h$i"
    ip link add "v$i" type veth peer name e0 netns "h$i"
    ip link set "v$i" master br0 up
    ip -n "h$i" link set lo up
    ip -n "h$i" addr add "$virtual_network.$i/24" dev e0
    ip -n "h$i" link set e0 up
    limit_link ip "v$i" tc "$rate"
    limit_link "ip -n h$i" e0 "tc -n h$i" "$rate"
  done
  write_agent
  write_by_address
}

# Short bursts, so that small messages are limited too. Packets that fit into a burst, because the kernel would split
# them. A queue long enough that nothing is dropped.
limit_link() {
  local ip=$1 device=$2 tc=$3 rate=$4
  $ip link set "$device" gso_max_size 16384
  $tc qdisc add dev "$device" root tbf rate "$rate" burst 20k latency 1s
}

remove_hosts() {
  local host
  for host in $(ip netns list | cut -d ' ' -f 1); do
    ip link delete "v${host#h}"
    ip netns delete "$host"
  done
  ip link delete br0
}

on_host() {
  local host=$1
  shift
  ip netns exec "$host" "$@"
}

sent_bytes() { on_host "$1" cat /sys/class/net/e0/statistics/tx_bytes; }

sent_on_wire() { tc -n "$1" -s qdisc show dev e0 | awk '/Sent/ { print $2; exit }'; }

# The command that mpirun uses in place of ssh. Every host has its own name, so that Open MPI uses no shared memory.
write_agent() {
  cat >"$TMPDIR/agent" <<'END'
#!/bin/sh
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0" && eval "$@"' "$host" "$@"
END
  chmod +x "$TMPDIR/agent"
}

# Each call has its own session, as over ssh and with mpirun, because the kernel may share its cores among sessions.
write_by_address() {
  cat >"$TMPDIR/by_address" <<'END'
#!/bin/sh
name=h${1##*.}
[ -z "$virtual_hosts_output" ] || exec >>"$virtual_hosts_output/$name" 2>&1
exec setsid --wait ip netns exec "$name" unshare --uts --pid --fork --kill-child --mount-proc \
  sh -c 'hostname "$0" && eval "$1"' "$name" "$2"
END
  chmod +x "$TMPDIR/by_address"
}

# btl_tcp_flags 1: with its other protocol Open MPI sends large messages in one direction at a time (half the rate of
# the link, measured with 4.1.4).
virtual_mpirun() {
  local network=$virtual_network.0/24
  echo "mpirun --bind-to none --mca plm_rsh_agent $TMPDIR/agent --mca plm_rsh_no_tree_spawn 1" \
    "--mca oob_tcp_if_include $network --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include $network" \
    "--mca btl_tcp_flags 1"
}

mpirun_on_hosts() {
  local count=$1 hosts=h1:1 i words
  shift
  for ((i = 2; i <= count; i++)); do hosts+=,h$i:1; done
  read -ra words <<<"$(virtual_mpirun)"
  MPIEXEC_TIMEOUT=${virtual_hosts_seconds:-60} OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    timeout -s KILL $((${virtual_hosts_seconds:-60} + 10)) "${words[@]}" -np "$count" --host "$hosts" "$@"
}

share_file() { echo "$TMPDIR/shares/$1/cgroup.procs"; }

# Uses control groups version 2, or version 1 if that has the cpu controller. They are mounted at a separate place,
# because every host has its own /sys. The periods are so short that no message waits long.
make_share() {
  local root=/sys/fs/cgroup shares=$TMPDIR/shares period=5000
  local group=$shares/$1 quota=$(($2 * period / 100))
  [ ! -d $root/cpu ] || root=$root/cpu
  if [ ! -d "$shares" ]; then mkdir "$shares" && mount --bind $root "$shares"; fi
  mkdir -p "$group" 2>/dev/null ||
    virtual_hosts_error "no control group '$1' could be made in $root; run this as root" || return 1
  if [ -e "$group/cpu.cfs_quota_us" ]; then
    echo $period >"$group/cpu.cfs_period_us" && echo $quota >"$group/cpu.cfs_quota_us"
  else
    echo +cpu >"$shares/cgroup.subtree_control" && echo "$quota $period" >"$group/cpu.max"
  fi
}
