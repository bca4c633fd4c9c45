# Our driver is on the host, reached by TCP over a network of its own: the host is 10.0.2.2, and 10.0.2.100:7 runs `mlx5`
# there with the arguments that it is sent (`outside` of reality/run).

where="on the host"
rdma=$(ls /sys/class/infiniband)
far=10.0.2.2
listens=$((ports + 14))
listen=127.0.0.1:$listens
connect=127.0.0.1:$((ports + 15))

tcp_netdev() { basename "$(ls -d /sys/bus/pci/drivers/e1000/0000:*/net/* 2>/dev/null)"; }
has_tcp_netdev() { [ -n "$(tcp_netdev)" ]; }
tcp_up() {
    modprobe e1000 && until_ok has_tcp_netdev && ip link set "$(tcp_netdev)" up &&
        ip addr add 10.0.2.15/24 dev "$(tcp_netdev)" && until_ok ping -c 1 -W 1 $far
}

# there ARGUMENTS…: mlx5 there, what it prints in /tmp/there, its exit code last.
there() { echo "$*" | nc 10.0.2.100 7 >/tmp/there 2>&1; }

setup "TCP to the host" tcp_up
