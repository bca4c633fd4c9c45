# What stock drivers and programs must be able to do in the guest. One line a check, for reality/run to read.

# check NAME COMMAND…: runs it; its exit code decides. Output is shown if it fails.
check() {
    name=$1
    shift
    start=$(cut -d. -f1 /proc/uptime)
    if "$@" >/tmp/out 2>&1; then
        echo "check: ok $name ($(($(cut -d. -f1 /proc/uptime) - start)) s)"
    else
        echo "check: FAILED $name: $*"
        tail -n 30 /tmp/out | sed 's/^/check:         /'
    fi
}

# skip NAME REASON
skip() { echo "check: skipped $1: $2"; }

netdev() { ls /sys/bus/pci/drivers/mlx5_core/0000:*/net 2>/dev/null | head -n 1; }

# Waits for a command to succeed, 20 s at most.
until_ok() {
    n=0
    until "$@"; do
        n=$((n + 1))
        [ $n -lt 100 ] || return 1
        usleep 100000
    done
}

# both SERVER… -- CLIENT…: two programs at once; both must end well.
both() {
    server=
    while [ "$1" != -- ]; do server="$server $1"; shift; done
    shift
    timeout 60 $server >/tmp/server 2>&1 &
    pid=$!
    sleep 0.3
    timeout 60 "$@" >/tmp/client 2>&1
    client=$?
    wait $pid
    served=$?
    cat /tmp/server /tmp/client
    echo "server $served, client $client"
    [ $served = 0 ] && [ $client = 0 ]
}

has_netdev() { [ -n "$(netdev)" ]; }
link_up() { ip link set lo up; ip link set "$(netdev)" up && until_ok grep -q 1 "/sys/class/net/$(netdev)/carrier"; }
port_active() { ibv_devinfo >/tmp/devinfo && grep -q PORT_ACTIVE /tmp/devinfo; }
rocev2_gids() { ibv_devinfo -v | grep -q 'GID.*RoCE v2'; }
show_devinfo() { until_ok port_active; ibv_devinfo -v; port_active && rocev2_gids; }
no_warning() { ! dmesg | grep -iE 'WARNING|Call Trace|BUG:|oops|mlx5.*(err|fail|timeout|syndrome|leak)' | grep -v 'mce:'; }



check "mlx5_core loads" modprobe mlx5_core
check "netdev" until_ok has_netdev
check "mlx5_ib loads" modprobe -a mlx5_ib ib_uverbs
check "link up" link_up
check "ibv_devinfo: PORT_ACTIVE, RoCE v2 GIDs" show_devinfo
check "ibv_rc_pingpong" both ibv_rc_pingpong -g 1 -c -- ibv_rc_pingpong -g 1 -c 127.0.0.1
dmesg | grep -v ACPI | tail -40
echo "check: done"
