# What checks are made of.

n_checks=0

# setup NAME COMMAND…: runs it; its exit code decides. Output is shown if it fails.
setup() {
    name=$1
    n_checks=$((n_checks + 1))
    shift
    start=$(seconds)
    if "$@" >/tmp/out 2>&1; then
        echo "check: ok $name ($(($(seconds) - start)) s)"
    else
        echo "check: FAILED $name: $*"
        tail -n 30 /tmp/out | sed 's/^/check:         /'
    fi
}

# check NAME COMMAND…: the same, unless the filter leaves it out.
check() { ! wanted "$1" || setup "$@"; }
# skip NAME REASON: a check that is not made.
skip() {
    ! wanted "$1" || { n_checks=$((n_checks + 1)) && echo "check: skipped $1: $2"; }
}
wanted() { echo "$file: $1" | grep -qE "${filter:-.}"; }

seconds() { cut -d. -f1 /proc/uptime; }

# Waits for a command to succeed, 20 s at most.
until_ok() {
    # One may wait in another.
    local give_up=$(($(seconds) + 20))
    until "$@"; do
        [ "$(seconds)" -lt $give_up ] || return 1
        usleep 50000
    done
}

# repeat N COMMAND…: one after the other, up to the first that fails.
repeat() {
    n_repeats=$1
    shift
    time=0
    while [ $time -lt "$n_repeats" ]; do
        time=$((time + 1))
        "$@" || { echo "time $time of $n_repeats"; return 1; }
    done
}

# says CODE TEXT COMMAND…: it ends with that code, and says that on either output.
says() {
    code=$1 text=$2
    shift 2
    "$@" >/tmp/said 2>&1
    ended=$?
    cat /tmp/said
    [ $ended = "$code" ] || { echo "ended with $ended, not $code"; return 1; }
    grep -qF -- "$text" /tmp/said || { echo "does not say: $text"; return 1; }
}

# Somebody listens on the port of ibverbs examples and perftest (18515), or by librdmacm.
listening() {
    cat /proc/net/tcp /proc/net/tcp6 | grep -q ':4853 .* 0A ' ||
        rdma resource show cm_id | grep -q LISTEN
}

# So does the server that was started, unless it is gone.
ready() { listening || ! kill -0 $pid 2>/dev/null; }

# both SERVER… -- CLIENT…: two programs at once; both must end well.
both() {
    server=
    while [ "$1" != -- ]; do server="$server $1"; shift; done
    shift
    timeout 120 $server >/tmp/server 2>&1 &
    pid=$!
    until_ok ready
    timeout 120 "$@" >/tmp/client 2>&1
    client=$?
    wait $pid
    served=$?
    cat /tmp/server /tmp/client
    echo "server $served, client $client"
    [ $served = 0 ] && [ $client = 0 ]
}

# perf TEST OPTIONS…: perftest with itself.
perf() { both "$@" -F -x 1 -- "$@" -F -x 1 127.0.0.1; }

# The netdev with this MAC, or one that begins so.
has_mac() { grep -q "^$1" /sys/class/net/*/address; }
with_mac() { basename "$(dirname "$(grep -l "^$1" /sys/class/net/*/address)")"; }
# netdev [FUNCTION]: the Ethernet interface of the card's function, the first by default.
netdev() { basename "$(ls -d /sys/bus/pci/drivers/mlx5_core/0000:*."${1:-0}"/net/* 2>/dev/null)"; }
has_netdev() { [ -n "$(netdev)" ]; }
# Addresses are usable once the guest has found nobody else with them.
settled() { [ -n "$(ip -6 addr show dev "$(netdev)" scope link)" ] && [ -z "$(ip -6 addr show dev "$(netdev)" tentative)" ]; }
link_up() { ip link set lo up; ip link set "$(netdev)" up && until_ok grep -q 1 "/sys/class/net/$(netdev)/carrier" && until_ok settled; }
port_active() { ibv_devinfo >/tmp/devinfo && grep -q PORT_ACTIVE /tmp/devinfo; }
# gid_of XXXX:XXXX: index of the RoCE v2 GID of this IPv4 address, in hexadecimal, of the device $rdma or the only one.
gid_of() {
    for at in $(seq 0 15); do
        port=$(echo /sys/class/infiniband/${rdma:-*}/ports/1)
        grep -q "ffff:$1" "$port/gids/$at" && grep -q v2 "$port/gid_attrs/types/$at" && echo "$at" && return
    done 2>/dev/null
    return 1
}
rocev2_gids() { ibv_devinfo -v | grep -q 'GID.*RoCE v2'; }
back_again() { until_ok has_netdev && link_up && until_ok port_active; }

# What two netdevs count, A and B: `count_from` makes it 0, `counted SIDE NAME` reads it, `count_now` brings it up to date.
# netdevs A B: which they are, as commands of ethtool: "ethtool -S eth0".
netdevs() { read_a=$1 read_b=$2; }
read_both() { $read_a >"/tmp/count.a$1" && $read_b >"/tmp/count.b$1"; }
# They are read one after the other, and the kernel may send a frame of its own in between: read until they stand still.
stand_still() { read_both .first && read_both "" && cmp -s /tmp/count.a.first /tmp/count.a && cmp -s /tmp/count.b.first /tmp/count.b; }
count_now() { until_ok stand_still; }
count_from() { count_now && cp /tmp/count.a /tmp/count.a.before && cp /tmp/count.b /tmp/count.b.before; }
counter() { sed -n "s/^ *$2: //p" "/tmp/count.$1"; }
# Of one name, or the sum of several: NAME+NAME.
counted() {
    total=0
    for one in $(echo "$2" | tr + ' '); do total=$((total + $(counter "$1" "$one") - $(counter "$1.before" "$one"))); done
    echo $total
}
# counted_alike AT-LEAST A-NAME B-NAME…: each thing that A counts is counted by B as well, and so often.
counted_alike() {
    at_least=$1
    shift
    count_now || return 1
    while [ $# -gt 0 ]; do
        echo "$1 $(counted a "$1"), $2 $(counted b "$2")"
        [ "$(counted a "$1")" = "$(counted b "$2")" ] && [ "$(counted a "$1")" -ge "$at_least" ] || return 1
        shift 2
    done
}

# The kernel's own alarms.
no_splat() { ! dmesg | grep -E 'WARNING|Call Trace|BUG:|Oops:'; }
# Nor a complaint of its drivers. The model has no vendor-specific capability, which mlx5_core mentions.
no_warning() {
    no_splat &&
        ! dmesg | grep -v mlx5_pci_vsc_init | grep -iE '(mlx5|infiniband).*(err|fail|timeout|syndrome|leak)'
}
