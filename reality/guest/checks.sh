# What stock drivers and programs must be able to do in the guest. One line a check, for reality/run to read.

n_checks=0

# check NAME COMMAND…: runs it; its exit code decides. Output is shown if it fails.
check() {
    name=$1
    n_checks=$((n_checks + 1))
    shift
    start=$(cut -d. -f1 /proc/uptime)
    if "$@" >/tmp/out 2>&1; then
        echo "check: ok $name ($(($(cut -d. -f1 /proc/uptime) - start)) s)"
    else
        echo "check: FAILED $name: $*"
        tail -n 30 /tmp/out | sed 's/^/check:         /'
    fi
}

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

# Addresses are usable once the guest has found nobody else with them.
settled() { [ -n "$(ip -6 addr show dev "$(netdev)" scope link)" ] && [ -z "$(ip -6 addr show dev "$(netdev)" tentative)" ]; }

has_netdev() { [ -n "$(netdev)" ]; }
link_up() { ip link set lo up; ip link set "$(netdev)" up && until_ok grep -q 1 "/sys/class/net/$(netdev)/carrier" && until_ok settled; }
port_active() { ibv_devinfo >/tmp/devinfo && grep -q PORT_ACTIVE /tmp/devinfo; }
rocev2_gids() { ibv_devinfo -v | grep -q 'GID.*RoCE v2'; }
show_devinfo() { until_ok port_active; ibv_devinfo -v; port_active && rocev2_gids; }
back_again() { until_ok has_netdev && link_up && until_ok port_active; }
rebind() {
    cd /sys/bus/pci/drivers/mlx5_core && set -- 0000:* && echo "$1" >unbind && echo "$1" >bind && back_again
}
# A reset under a live driver is the end of it; Linux resets a function that it gives away.
reset_function() {
    cd /sys/bus/pci/drivers/mlx5_core && set -- 0000:* && echo "$1" >unbind &&
        grep flr "/sys/bus/pci/devices/$1/reset_method" && echo 1 >"/sys/bus/pci/devices/$1/reset" &&
        echo "$1" >bind && back_again
}
reload() { rmmod mlx5_ib && rmmod mlx5_core && modprobe mlx5_core && modprobe mlx5_ib && back_again; }
# The model has no vendor-specific capability, which mlx5_core mentions.
no_warning() {
    ! dmesg | grep -v mlx5_pci_vsc_init |
        grep -iE 'WARNING|Call Trace|BUG:|Oops:|(mlx5|infiniband).*(err|fail|timeout|syndrome|leak)'
}



check "mlx5_core loads" modprobe mlx5_core
check "netdev" until_ok has_netdev
check "mlx5_ib loads" modprobe -a mlx5_ib ib_uverbs rdma_ucm
check "link up" link_up
check "ibv_devinfo: PORT_ACTIVE, RoCE v2 GIDs" show_devinfo
check "address" ip addr add 10.0.0.1/24 dev "$(netdev)"
check "ibv_rc_pingpong" both ibv_rc_pingpong -g 1 -c -- ibv_rc_pingpong -g 1 -c 127.0.0.1
check "ibv_rc_pingpong, events" both ibv_rc_pingpong -g 1 -c -e -- ibv_rc_pingpong -g 1 -c -e 127.0.0.1
check "ibv_rc_pingpong, 1 MiB" both ibv_rc_pingpong -g 1 -c -s 1048576 -n 20 -- ibv_rc_pingpong -g 1 -c -s 1048576 -n 20 127.0.0.1
check "ibv_ud_pingpong" both ibv_ud_pingpong -g 1 -c -n 200 -- ibv_ud_pingpong -g 1 -c -n 200 127.0.0.1
for test in ib_send_lat ib_send_bw ib_write_lat ib_write_bw ib_read_lat ib_read_bw ib_atomic_lat; do
    check "$test" both $test -F -x 1 -n 100 -- $test -F -x 1 -n 100 127.0.0.1
done
check "ib_send_bw, 4 queue pairs" both ib_send_bw -F -x 1 -n 100 -q 4 -- ib_send_bw -F -x 1 -n 100 -q 4 127.0.0.1
check "ib_send_lat, UD" both ib_send_lat -c UD -F -x 1 -n 100 -- ib_send_lat -c UD -F -x 1 -n 100 127.0.0.1
check "rping" both rping -s -a 10.0.0.1 -C 10 -V -- rping -c -a 10.0.0.1 -C 10 -V
check "unbind and bind" rebind
check "function-level reset" reset_function
check "modules out and in" reload
check "ibv_rc_pingpong after all this" both ibv_rc_pingpong -g 1 -c -- ibv_rc_pingpong -g 1 -c 127.0.0.1
check "no warning, no call trace" no_warning
# A line that was lost among others is noticed by its absence.
echo "check: done $n_checks"
