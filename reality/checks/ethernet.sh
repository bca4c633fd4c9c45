# mlx5e as a network card: two netdevs with a cable between them, the second in a network namespace of its own.

# The shell prefers busybox's own, which knows no namespaces.
ip() { /bin/ip "$@"; }
tc() { /bin/tc "$@"; }
near=$(netdev)
far() { ip netns exec far "$@"; }
far_netdev() { far ls /sys/class/net | grep -v lo | head -n 1; }
make_far() {
    mkdir -p /var/run/netns && ip netns add far &&
        ip link set "$(netdev 1)" netns far &&
        far ip link set lo up && far ip link set "$(far_netdev)" up && far ip addr add 10.0.0.2/24 dev "$(far_netdev)" &&
        until_ok far grep -q 1 "/sys/class/net/$(far_netdev)/carrier"
}
# What the far netdev has received.
n_received() { far cat "/sys/class/net/$(far_netdev)/statistics/rx_packets"; }
near_counters() { ethtool -S "$near"; }
far_counters() { far ethtool -S "$(far_netdev)"; }
netdevs near_counters far_counters

# transfer MIB: both ways, by TCP. A server whose input ends would end the connection, so it never does.
transfer() {
    [ -e /tmp/sent ] || dd if=/dev/urandom of=/tmp/sent bs=1M count=16 2>/dev/null
    dd if=/tmp/sent of=/tmp/part bs=1M count="$1" 2>/dev/null
    [ -e /tmp/never ] || mkfifo /tmp/never
    one_way /tmp/part && two_way /tmp/part
}
# listens COMMAND PORT: in the namespace that the command enters, on a port in hexadecimal.
listens() { $1 cat /proc/net/tcp /proc/net/tcp6 | grep -q ":$2 .* 0A "; }
one_way() {
    far nc -l -p 5001 <>/tmp/never >/tmp/received &
    until_ok listens far 1389
    timeout 60 nc 10.0.0.2 5001 <"$1" && wait $! && cmp "$1" /tmp/received
}
two_way() {
    nc -l -p 5002 <>/tmp/never >/tmp/received &
    until_ok listens eval 138A
    far timeout 60 nc 10.0.0.1 5002 <"$1" && wait $! && cmp "$1" /tmp/received
}
both_mtu() { ip link set "$near" mtu "$1" && far ip link set "$(far_netdev)" mtu "$1" && until_ok grep -q 1 "/sys/class/net/$near/carrier" && until_ok ping -c 1 -W 1 10.0.0.2; }
offloads() { ethtool -K "$near" "$@" && far ethtool -K "$(far_netdev)" "$@"; }

# In frames of priority 5.
vlan() {
    modprobe 8021q && ip link add link "$near" name tagged type vlan id 100 egress-qos-map 0:5 && ip link set tagged up &&
        ip addr add 10.0.100.1/24 dev tagged &&
        far ip link add link "$(far_netdev)" name tagged type vlan id 100 egress-qos-map 0:5 && far ip link set tagged up &&
        far ip addr add 10.0.100.2/24 dev tagged && until_ok ping -c 1 -W 1 10.0.100.2 && ping -c 3 -s 1400 10.0.100.2
}
# Another VLAN's frames do not come through.
other_vlan() {
    ip link add link "$near" name other type vlan id 200 && ip link set other up && ip addr add 10.0.200.1/24 dev other &&
        ! ping -c 2 -W 1 10.0.200.2
}
# Frames to an address that is nobody's: only a promiscuous netdev sees them. Others, of the kernel's own, may come between.
stranger() {
    before=$(n_received)
    ping -c 20 -W 1 -i 0.05 10.0.0.77 >/dev/null
    n=$(($(n_received) - before))
    echo "$n frames"
    [ $n -ge "$1" ] && [ $n -lt $(($1 + 10)) ]
}
to_stranger() { ip neigh replace 10.0.0.77 lladdr 02:00:00:00:00:77 dev "$near"; }
promiscuous() {
    to_stranger && stranger 0 &&
        far ip link set "$(far_netdev)" promisc on && sleep 0.5 && stranger 20 &&
        far ip link set "$(far_netdev)" promisc off && sleep 0.5 && stranger 0
}
to_groups() { far sh -c 'echo 0 >/proc/sys/net/ipv4/icmp_echo_ignore_broadcasts' && ip route replace 224.0.0.0/4 dev "$near"; }
multicast() { to_groups && ping -c 3 224.0.0.1 && ping -6 -c 3 "ff02::1%$near"; }
down_and_up() {
    far ip link set "$(far_netdev)" down && ! ping -c 1 -W 1 10.0.0.2 && ! far grep -q 1 "/sys/class/net/$(far_netdev)/carrier"
    far ip link set "$(far_netdev)" up && until_ok ping -c 1 -W 1 10.0.0.2
}
# What tools ask a card for, and what they say.
asks() { ethtool "$@" >/tmp/said; code=$?; cat /tmp/said; return $code; }
tells() { line=$1; shift; asks "$@" && grep -qE "$line" /tmp/said; }
# What the driver counts itself is what it says that the vport has counted.
driver_agrees() {
    for side in a b; do
        for way in rx tx; do
            vport=${way}_vport
            sum=$(counted $side ${vport}_unicast_packets+${vport}_multicast_packets+${vport}_broadcast_packets)
            echo "$side: ${way}_packets $(counted $side ${way}_packets), of the vport $sum"
            [ "$(counted $side ${way}_packets)" = "$sum" ] || return 1
        done
    done
}
alike_both_ways() {
    counted_alike "$1" "tx_$2" "rx_$2" "rx_$2" "tx_$2"
}
tcp_counted() {
    count_from && transfer 4 &&
        until_ok alike_both_ways 2000 packets_phy && until_ok alike_both_ways 4194304 bytes_phy &&
        until_ok alike_both_ways 2000 vport_unicast_packets && until_ok alike_both_ways 4194304 vport_unicast_bytes &&
        until_ok alike_both_ways 2000 prio0_packets && driver_agrees
}
# The vport counts what steering gives it, and that of a group that it has not joined is missed: all routers, whom the kernel
# asks now and then too.
cast_counted() {
    to_groups && count_from && ping -c 3 224.0.0.1 && ping -c 3 10.0.0.255 && ! ping -6 -c 3 -W 1 "ff02::2%$near"
    until_ok counted_alike 3 tx_multicast_phy rx_multicast_phy tx_broadcast_phy rx_broadcast_phy \
        tx_vport_multicast_packets rx_vport_multicast_packets+rx_steer_missed_packets \
        tx_vport_broadcast_packets rx_vport_broadcast_packets && [ "$(counted b rx_steer_missed_packets)" -ge 3 ]
}
priority_counted() { count_from && ping -c 5 10.0.100.2 && until_ok alike_both_ways 5 prio5_packets && until_ok alike_both_ways 500 prio5_bytes; }
# Only one end takes frames as long as the other sends.
too_long_counted() {
    ip link set "$near" mtu 9000 && until_ok ping -c 1 -W 1 10.0.0.2 && count_from
    ! ping -c 3 -W 1 -s 4000 10.0.0.2 && count_now && ip link set "$near" mtu 1500 && until_ok ping -c 1 -W 1 10.0.0.2 &&
        [ "$(counted b rx_oversize_pkts_phy)" = 3 ]
}
large_counted() { count_now && [ "$(counted a rx_8192_to_10239_bytes_phy)" -ge 3 ] && [ "$(counted b rx_8192_to_10239_bytes_phy)" -ge 3 ]; }
large_ping() { count_from && ping -c 3 -s 8872 10.0.0.2 && large_counted; }
missed_counted() { to_stranger && count_from && ping -c 20 -W 1 -i 0.05 10.0.0.77 >/dev/null; count_now; counted b rx_steer_missed_packets; [ "$(counted b rx_steer_missed_packets)" -ge 20 ]; }
downs_counted() { count_from; down_and_up && count_now && [ "$(counted b link_down_events_phy)" = 1 ] && [ "$(counted a link_down_events_phy)" = 0 ]; }
# compress on|off: CQEs, at both ends.
compress() {
    ethtool --set-priv-flags "$near" rx_cqe_compress "$1" && far ethtool --set-priv-flags "$(far_netdev)" rx_cqe_compress "$1" &&
        until_ok ping -c 1 -W 1 10.0.0.2
}
# Packets that came in sessions, of those that came, to each end.
n_compressed() {
    count_from && transfer 4 && count_now
    for side in a b; do
        echo "$side: $(counted $side rx_cqe_compress_pkts) of $(counted $side rx_packets), sessions: $(counted $side rx_cqe_compress_blks)"
    done
}
compressed() { compress on && n_compressed && [ "$(counted a rx_cqe_compress_pkts)" -ge 200 ] && [ "$(counted b rx_cqe_compress_pkts)" -ge 200 ]; }
whole() { compress off && n_compressed && [ "$(counted a rx_cqe_compress_pkts)" = 0 ] && [ "$(counted b rx_cqe_compress_pkts)" = 0 ]; }
# Classes of traffic that the card schedules: a tree of elements, whose leaf has a send queue of its own.
classes() {
    modprobe sch_htb && ethtool -K "$near" hw-tc-offload on &&
        tc qdisc replace dev "$near" root handle 1: htb default 10 offload &&
        tc class add dev "$near" parent 1: classid 1:1 htb rate 1Gbit ceil 2Gbit &&
        tc class add dev "$near" parent 1:1 classid 1:10 htb rate 500Mbit ceil 1Gbit &&
        tc class change dev "$near" parent 1:1 classid 1:10 htb rate 700Mbit ceil 1Gbit && transfer 2 || return 1
    tc -s class show dev "$near" | tee /tmp/classes
    grep -A 1 'htb 1:10 ' /tmp/classes | grep 'Sent [1-9]' && tc qdisc del dev "$near" root && ethtool -K "$near" hw-tc-offload off
}
# A cable without a memory. The driver says so in the log; to ethtool it gives no bytes and no error.
no_module() { ethtool -m "$near"; dmesg | grep -E '(mcia|module_eeprom).*failed'; }

setup "second function in a namespace, link up" make_far
check "ping" ping -c 5 10.0.0.2
check "ping of 1400 bytes" ping -c 5 -s 1400 10.0.0.2
check "ping of 20,000 bytes, in fragments" ping -c 3 -s 20000 10.0.0.2
check "ping, IPv6" ping -6 -c 3 "$(far ip -6 addr show dev "$(far_netdev)" scope link | sed -n 's/.*inet6 \([^/]*\).*/\1/p')%$near"
check "TCP, 8 MiB each way" transfer 8
check "TCP is counted at both ends" tcp_counted
check "MTU 9000" both_mtu 9000
check "ping of 8872 bytes, not fragmented" large_ping
check "TCP, 8 MiB each way, MTU 9000" transfer 8
check "MTU 1500" both_mtu 1500
check "frames too long are counted" too_long_counted
setup "VLAN" vlan
check "priorities are counted" priority_counted
check "another VLAN" other_vlan
check "offloads off" offloads tx off rx off tso off gso off gro off rxvlan off txvlan off
check "TCP without offloads" transfer 2
check "VLAN without offloads" ping -c 3 -s 1400 10.0.100.2
check "offloads on" offloads tx on rx on tso on gso on gro on rxvlan on txvlan on
check "promiscuous" promiscuous
check "frames for nobody are counted" missed_counted
check "multicast" multicast
check "multicasts and broadcasts are counted" cast_counted
check "link down, link up" downs_counted
check "TCP after that" transfer 2
check "TCP, CQEs compressed at both ends" compressed
check "TCP, CQEs whole again" whole
check "TCP by a class that the card schedules" classes
check "TCP by none after that" transfer 1
check "ethtool: speed, duplex, connector" tells 'Speed: 100000Mb/s' "$near"
check "ethtool -i" tells 'driver: mlx5_core' -i "$near"
for option in -c -g -k -l -n -x -T -P; do
    check "ethtool $option" asks $option "$near"
done
check "ethtool -S: groups of the standard" tells 'etherStatsPkts|rx-rmon' -S "$near" --groups eth-phy eth-mac eth-ctrl rmon
check "ethtool -a: pauses are sent" tells 'TX:[[:space:]]*on' -a "$near"
check "ethtool -a: pauses are obeyed" tells 'RX:[[:space:]]*on' -a "$near"
check "ethtool -K: frames with a wrong check sequence taken, and not" eval 'ethtool -K $near rx-all on && ethtool -K $near rx-all off'
check "ethtool: error correction" tells 'Active FEC encoding: RS' --show-fec "$near"
check "no warning, no call trace" no_warning
check "ethtool -m: no module" no_module
