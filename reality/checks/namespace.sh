# Our driver is in this guest, in a network namespace of its own. Its packets are UDP datagrams of the guest's kernel, which
# makes their IP headers, finds the neighbour and sends them over a veth pair. The other end of that is rdma_rxe's, whose
# sockets are always in the first namespace.

where="in a namespace"
rdma=rxe1
far=10.0.0.2
listens=18515
listen=$far:$listens
connect=10.0.0.1:18515

far_up() {
    ip=/bin/ip # not the shell's own
    modprobe veth && $ip netns add far &&
        $ip link add near address 02:00:00:00:0c:00 type veth peer name far netns far &&
        $ip addr add 10.0.0.1/24 dev near && $ip link set near up &&
        $ip -n far addr add $far/24 dev far && $ip -n far link set far up && $ip -n far link set lo up &&
        until_ok ping -c 1 -W 1 $far &&
        rdma link add $rdma type rxe netdev near && until_ok gid_of 0a00:0001
}

# there ARGUMENTS…: mlx5 there, what it prints in /tmp/there, its exit code last. The wire's address is its GID.
there() {
    /bin/ip netns exec far timeout 60 mlx5 "$@" --ip $far --peer-mac 02:00:00:00:0c:00 --device model:wire=roce:$far \
        >/tmp/there 2>&1
    echo "exit $?" >>/tmp/there
}

setup "rdma_rxe on a veth pair" far_up
gid=$(gid_of 0a00:0001)
