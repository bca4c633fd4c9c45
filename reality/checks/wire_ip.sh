# IP between the two guests, over the wire that the checks of RDMA take: what one sends, the other has.

dev=$(with_mac $my_mac)
ip() { /bin/ip "$@"; }
mkfifo /tmp/never
seq 1 500000 >/tmp/sent

# The address of the other end is asked of it, not given.
resolved() { ip neigh del "$peer_address" dev "$dev"; until_ok ping -c 1 -W 1 "$peer_address" && ip neigh show "$peer_address" dev "$dev" | grep "lladdr $mac"; }
in_one_frame() { until_ok ping -c 1 -W 1 -s "$1" "$peer_address" && ping -c 3 -s "$1" "$peer_address"; }
offloads() { ethtool -K "$dev" tx "$1" rx "$1" tso "$1" gso "$1" gro "$1"; }
mtu() { ip link set "$dev" mtu "$1" && until_ok grep -q 1 "/sys/class/net/$dev/carrier"; }
vlan() {
    modprobe 8021q && ip link add link "$dev" name tagged type vlan id 100 && ip link set tagged up &&
        ip addr add "10.0.100.${my#0}/24" dev tagged && until_ok ping -c 1 -W 1 "10.0.100.${peer#0}" && ping -c 3 -s 1400 "10.0.100.${peer#0}"
}

# What `serves` starts with an address is the client. A server whose input ends would end the connection: its never does.
tcp() {
    each "$1" sh -c 'if [ -n "$1" ]; then exec nc "$0" 18515 </tmp/sent; fi
        nc -l -p 18515 <>/tmp/never >/tmp/received && cmp /tmp/sent /tmp/received' "$peer_address"
}
# By librdmacm, at the addresses on the wire.
cm() {
    program=$1 server="$2 $my_address" client="$3 $peer_address"
    shift 3
    each "$program" sh -c "if [ -n \"\$1\" ]; then exec $program $client $*; fi; exec $program $server $*" "$program"
}

check "ARP" resolved
check "ping" ping -c 5 "$peer_address"
check "ping of 1472 bytes" in_one_frame 1472
tcp "TCP, 3 MiB"
check "offloads off" offloads off
tcp "TCP without offloads"
check "offloads on" offloads on
check "MTU 9000" mtu 9000
check "ping of 8972 bytes in one frame" in_one_frame 8972
tcp "TCP, MTU 9000"
check "MTU 1500" mtu 1500
check "VLAN" vlan
cm rping "-s -a" "-c -a" -C 10 -V
cm ucmatose "-b" "-s" -c 4 -C 20 -S 5000
check "no warning, no call trace" no_warning
