# mlx5e as a network card: two netdevs with a cable between them, the second in a network namespace of its own.

# The shell prefers busybox's own, which knows no namespaces.
ip() { /bin/ip "$@"; }
near=$(netdev)
far() { ip netns exec far "$@"; }
far_netdev() { far ls /sys/class/net | grep -v lo | head -n 1; }
make_far() {
    mkdir -p /var/run/netns && ip netns add far &&
        ip link set "$(netdev 1)" netns far &&
        far ip link set lo up && far ip link set "$(far_netdev)" up && far ip addr add 10.0.0.2/24 dev "$(far_netdev)" &&
        until_ok far grep -q 1 "/sys/class/net/$(far_netdev)/carrier"
}
# What a netdev has counted.
counted() { far cat "/sys/class/net/$(far_netdev)/statistics/$1"; }

# transfer MIB: both ways, by TCP. A server whose input ends would end the connection, so it never does.
transfer() {
    [ -e /tmp/sent ] || dd if=/dev/urandom of=/tmp/sent bs=1M count=16 2>/dev/null
    dd if=/tmp/sent of=/tmp/part bs=1M count="$1" 2>/dev/null
    [ -e /tmp/never ] || mkfifo /tmp/never
    one_way /tmp/part && two_way /tmp/part
}
one_way() {
    far nc -l -p 5001 <>/tmp/never >/tmp/received &
    sleep 0.2
    timeout 60 nc 10.0.0.2 5001 <"$1" && wait $! && cmp "$1" /tmp/received
}
two_way() {
    nc -l -p 5002 <>/tmp/never >/tmp/received &
    sleep 0.2
    far timeout 60 nc 10.0.0.1 5002 <"$1" && wait $! && cmp "$1" /tmp/received
}
both_mtu() { ip link set "$near" mtu "$1" && far ip link set "$(far_netdev)" mtu "$1" && until_ok grep -q 1 "/sys/class/net/$near/carrier" && until_ok ping -c 1 -W 1 10.0.0.2; }
offloads() { ethtool -K "$near" "$@" && far ethtool -K "$(far_netdev)" "$@"; }

vlan() {
    modprobe 8021q && ip link add link "$near" name tagged type vlan id 100 && ip link set tagged up &&
        ip addr add 10.0.100.1/24 dev tagged &&
        far ip link add link "$(far_netdev)" name tagged type vlan id 100 && far ip link set tagged up &&
        far ip addr add 10.0.100.2/24 dev tagged && until_ok ping -c 1 -W 1 10.0.100.2 && ping -c 3 -s 1400 10.0.100.2
}
# Another VLAN's frames do not come through.
other_vlan() {
    ip link add link "$near" name other type vlan id 200 && ip link set other up && ip addr add 10.0.200.1/24 dev other &&
        ! ping -c 2 -W 1 10.0.200.2
}
# Frames to an address that is nobody's: only a promiscuous netdev sees them.
stranger() { before=$(counted rx_packets); ping -c 3 -W 1 -i 0.2 10.0.0.77 >/dev/null; echo "$before, then $(counted rx_packets)"; [ "$(counted rx_packets)" -ge $((before + $1)) ] && [ "$(counted rx_packets)" -le $((before + $1 + 1)) ]; }
promiscuous() {
    ip neigh replace 10.0.0.77 lladdr 02:00:00:00:00:77 dev "$near" && stranger 0 &&
        far ip link set "$(far_netdev)" promisc on && sleep 0.5 && stranger 3 &&
        far ip link set "$(far_netdev)" promisc off && sleep 0.5 && stranger 0
}
multicast() { far sh -c 'echo 0 >/proc/sys/net/ipv4/icmp_echo_ignore_broadcasts' && ip route replace 224.0.0.0/4 dev "$near" && ping -c 3 224.0.0.1 && ping -6 -c 3 "ff02::1%$near"; }
down_and_up() {
    far ip link set "$(far_netdev)" down && ! ping -c 1 -W 1 10.0.0.2 && ! far grep -q 1 "/sys/class/net/$(far_netdev)/carrier"
    far ip link set "$(far_netdev)" up && until_ok ping -c 1 -W 1 10.0.0.2
}
setup "second function in a namespace, link up" make_far
check "ping" ping -c 5 10.0.0.2
check "ping of 1400 bytes" ping -c 5 -s 1400 10.0.0.2
check "ping of 20,000 bytes, in fragments" ping -c 3 -s 20000 10.0.0.2
check "ping, IPv6" ping -6 -c 3 "$(far ip -6 addr show dev "$(far_netdev)" scope link | sed -n 's/.*inet6 \([^/]*\).*/\1/p')%$near"
check "TCP, 8 MiB each way" transfer 8
check "MTU 8200" both_mtu 8200
check "ping of 8000 bytes in one frame" ping -c 3 -s 8000 10.0.0.2
check "TCP, 8 MiB each way, MTU 8200" transfer 8
check "MTU 1500" both_mtu 1500
check "VLAN" vlan
check "another VLAN" other_vlan
check "offloads off" offloads tx off rx off tso off gso off gro off rxvlan off txvlan off
check "TCP without offloads" transfer 2
check "VLAN without offloads" ping -c 3 -s 1400 10.0.100.2
check "offloads on" offloads tx on rx on tso on gso on gro on rxvlan on txvlan on
check "promiscuous" promiscuous
check "multicast" multicast
check "link down, link up" down_and_up
check "TCP after that" transfer 2
check "no warning, no call trace" no_warning
