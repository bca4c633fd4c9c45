# Both functions of a card of two ports, beside each other.

second_up() { ip link set "$(netdev 1)" up && until_ok grep -q 1 "/sys/class/net/$(netdev 1)/carrier"; }
both_active() { ibv_devinfo >/tmp/devinfo; cat /tmp/devinfo; [ "$(grep -c PORT_ACTIVE /tmp/devinfo)" = 2 ]; }
# Each function has a GUID and a MAC of its own.
identities_differ() {
    [ "$(cat /sys/class/infiniband/*/node_guid | sort -u | wc -l)" = 2 ] &&
        [ "$(cat "/sys/class/net/$(netdev 0)/address")" != "$(cat "/sys/class/net/$(netdev 1)/address")" ]
}

first_counters() { ethtool -S "$(netdev 0)" && in_sysfs mlx5_0; }
second_counters() { ethtool -S "$(netdev 1)" && in_sysfs mlx5_1; }
# Names are regular expressions: counters.port_rcv_data is of counters/port_rcv_data.
in_sysfs() { (cd "/sys/class/infiniband/$1/ports/1" && grep . counters/* hw_counters/* | sed 's|:|: |'); }
netdevs first_counters second_counters
counted_both_ways() { counted_alike "$1" "$2" "$3" "$3" "$2"; }
# The GID at index 0 has the MAC in it.
across() { both "$1" -d mlx5_0 $2 -- "$1" -d mlx5_1 $2 127.0.0.1; }
pingpong_counted() {
    count_from && across ibv_rc_pingpong "-g 0 -c -n 200" &&
        counted_both_ways 200 tx_vport_rdma_unicast_packets rx_vport_rdma_unicast_packets &&
        counted_both_ways 819200 tx_vport_rdma_unicast_bytes rx_vport_rdma_unicast_bytes &&
        counted_both_ways 200 tx_packets_phy rx_packets_phy &&
        counted_both_ways 200 counters.port_xmit_packets counters.port_rcv_packets &&
        counted_both_ways 204800 counters.port_xmit_data counters.port_rcv_data &&
        [ "$(counted a counters.port_xmit_packets)" = "$(counted a tx_vport_rdma_unicast_packets)" ]
}
requests_counted() {
    count_from && across ib_write_bw "-x 0 -F -n 100" && across ib_read_bw "-x 0 -F -n 100" && across ib_atomic_bw "-x 0 -F -n 100" && count_now &&
        for kind in write read atomic; do
            counter=hw_counters.rx_${kind}_requests
            echo "$counter $(counted a "$counter")" && [ "$(counted a "$counter")" -ge 100 ] || return 1
        done &&
        for counter in out_of_buffer out_of_sequence packet_seq_err local_ack_timeout_err rx_icrc_encapsulated req_cqe_error; do
            echo "$counter $(counted a "hw_counters.$counter")" && [ "$(counted a "hw_counters.$counter")" = 0 ] || return 1
        done
}

setup "second function: link up" second_up
check "ibv_devinfo: both functions PORT_ACTIVE" until_ok both_active
check "identities differ" identities_differ
check "a pingpong is counted at both ends, by ethtool and in sysfs" pingpong_counted
check "requests are counted" requests_counted
check "rdma statistic" rdma statistic show link mlx5_0/1
check "no warning, no call trace" no_warning
