# InfiniBand: opensm finds both ports by directed routes and configures them; then everything goes by LID.

devices() { ls /sys/class/infiniband; }
two_devices() { [ "$(devices | wc -l)" = 2 ]; }
in_state() { ibv_devinfo >/tmp/devinfo; cat /tmp/devinfo; [ "$(grep -c "$1" /tmp/devinfo)" = 2 ]; }
port_guid() { tr -d : <"/sys/class/infiniband/$1/node_guid" | sed 's/^/0x/'; }
both_active() { in_state PORT_ACTIVE >/dev/null; }
start_opensm() {
    mkdir -p /var/log /var/cache/opensm
    opensm -g "$(port_guid mlx5_0)" -f /tmp/opensm.log -p 0 >/tmp/opensm.out 2>&1 &
    until_ok both_active || until_ok both_active || { cat /tmp/opensm.out /tmp/opensm.log; return 1; }
}
opensm_gone() { ! pidof opensm; }
# It writes its log when it ends.
no_opensm_error() {
    killall opensm && until_ok opensm_gone
    cat /tmp/opensm.log
    grep -q 'SUBNET UP' /tmp/opensm.log && ! grep -qE ' ERR | 0x01 ' /tmp/opensm.log
}
two_adapters() { ibnetdiscover >/tmp/net; cat /tmp/net; [ "$(grep -c '^Ca' /tmp/net)" = 2 ]; }
# The second port's interface is in a namespace of its own, so that packets between them take the wire.
ipoib_up() {
    ip=/bin/ip # not the shell's own
    modprobe ib_ipoib && $ip netns add far && $ip link set ib1 netns far &&
        $ip addr add 10.1.0.1/24 dev ib0 && $ip link set ib0 up &&
        $ip -n far addr add 10.1.0.2/24 dev ib1 && $ip -n far link set ib1 up
}
# Both ways across: server and client on different functions.
across() { both "$1" -d mlx5_0 $2 -- "$1" -d mlx5_1 $2 127.0.0.1 && both "$1" -d mlx5_1 $2 -- "$1" -d mlx5_0 $2 127.0.0.1; }

in_sysfs() { (cd "/sys/class/infiniband/$1/ports/1/counters" && grep . * | sed 's|:|: |'); }
first_counters() { in_sysfs mlx5_0; }
second_counters() { in_sysfs mlx5_1; }
pingpong_counted() {
    count_from && across ibv_rc_pingpong "-c -n 200" &&
        until_ok counted_alike 400 port_xmit_packets port_rcv_packets port_rcv_packets port_xmit_packets &&
        until_ok counted_alike 409600 port_xmit_data port_rcv_data port_rcv_data port_xmit_data
}

setup "mlx5_core loads" modprobe mlx5_core
setup "mlx5_ib loads" modprobe -a mlx5_ib ib_uverbs ib_umad rdma_ucm
setup "two devices" until_ok two_devices
setup "loopback interface" ip link set lo up
check "ports wait for a subnet manager" in_state PORT_INIT
setup "opensm: both PORT_ACTIVE" start_opensm
check "ibnetdiscover: two adapters" two_adapters
check "smpquery portinfo by LID" smpquery portinfo 2 1
check "sminfo" sminfo
check "ibv_rc_pingpong by LID" across ibv_rc_pingpong "-c -n 200"
netdevs first_counters second_counters
check "it is counted at both ends" pingpong_counted
check "ibv_rc_pingpong with a GRH" across ibv_rc_pingpong "-c -n 200 -g 0"
check "ibv_uc_pingpong by LID" across ibv_uc_pingpong "-c -n 200"
check "ibv_ud_pingpong by LID" across ibv_ud_pingpong "-c -n 200"
for test in ib_send_bw ib_write_bw ib_read_bw ib_atomic_lat; do
    check "$test by LID" across $test "-F -n 100"
done
setup "IP over InfiniBand: interfaces" ipoib_up
check "IP over InfiniBand: ping" until_ok ping -c 3 -W 2 10.1.0.2
check "IP over InfiniBand: ping of 1900 bytes" ping -c 3 -W 2 -s 1900 10.1.0.2
check "opensm: no error" no_opensm_error
check "no warning, no call trace" no_warning
