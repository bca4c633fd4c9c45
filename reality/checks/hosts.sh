# Our driver in a process of the host is the peer of libmlx5 here, each with a card of its own. TCP goes over a network
# beside that: the host is 10.0.2.2, and 10.0.2.100:7 runs `mlx5` there with the arguments that it is sent.

tcp_netdev() { basename "$(ls -d /sys/bus/pci/drivers/e1000/0000:*/net/* 2>/dev/null)"; }
has_tcp_netdev() { [ -n "$(tcp_netdev)" ]; }
tcp_up() {
    modprobe e1000 && until_ok has_tcp_netdev && ip link set "$(tcp_netdev)" up &&
        ip addr add 10.0.2.15/24 dev "$(tcp_netdev)" && until_ok ping -c 1 -W 1 10.0.2.2
}

# there ARGUMENTS…: mlx5 on the host, what it prints in /tmp/there, its exit code last.
there() { echo "$*" | nc 10.0.2.100 7 >/tmp/there 2>&1; }
they_listen() { grep -q '^listen' /tmp/there || grep -q '^exit' /tmp/there; }

# What both said, and whether both ended well.
judge() {
    cat /tmp/here /tmp/there
    echo "here $here"
    # ibv_rc_pingpong -c says so, and ends with 0.
    ! grep -q 'invalid data' /tmp/here || return 1
    [ $here = 0 ] && grep -q '^exit 0' /tmp/there && grep -q '^model: 0 violations' /tmp/there
}

# split "$@": what is before `--` to $mlx5; says how many words that and the `--` are.
split() {
    mlx5= n=1
    while [ "$1" != -- ]; do mlx5="$mlx5 $1" n=$((n + 1)); shift; done
}

# asks_mlx5 MLX5… -- PROGRAM…: mlx5 listens there, the program here is the client.
asks_mlx5() {
    split "$@"
    shift $n
    : >/tmp/there
    there $mlx5 --listen 127.0.0.1:18515 &
    pid=$!
    until_ok they_listen
    timeout 60 "$@" 10.0.2.2 >/tmp/here 2>&1
    here=$?
    wait $pid
    judge
}

# answers_mlx5 MLX5… -- PROGRAM…: the program listens here, mlx5 there is the client.
answers_mlx5() {
    split "$@"
    shift $n
    timeout 60 "$@" >/tmp/here 2>&1 &
    pid=$!
    until_ok ready
    there $mlx5 --connect 127.0.0.1:18516
    wait $pid
    here=$?
    judge
}

# peers NAME MLX5… -- PROGRAM…: both ways round.
peers() {
    name_of=$1
    shift
    check "$name_of here asks mlx5 on the host" asks_mlx5 "$@"
    check "mlx5 on the host asks $name_of here" answers_mlx5 "$@"
}

setup "TCP to the host" tcp_up

rc="ibv_rc_pingpong -d mlx5_0 -g 1 -c"
ping="pingpong --exchange ibv_rc_pingpong"
peers "ibv_rc_pingpong" $ping --size 4096 --iters 200 -- $rc -s 4096 -n 200
peers "ibv_rc_pingpong, 1 MB" $ping --size 1048576 --iters 10 -- $rc -s 1048576 -n 10
peers "ibv_rc_pingpong, both asleep on events" $ping --size 64 --iters 100 --events -- $rc -s 64 -n 100 -e

perf="-F -x 1"
for size in 2 10000; do
    for op in send write read; do
        peers "ib_${op}_lat, $size bytes" lat --exchange perftest --op $op --size $size --iters 200 -- \
            ib_${op}_lat $perf -s $size -n 200
        peers "ib_${op}_bw, $size bytes" bw --exchange perftest --op $op --size $size --iters 1000 -- \
            ib_${op}_bw $perf -s $size -n 1000
    done
done
for type in faa=FETCH_AND_ADD cas=CMP_AND_SWAP; do
    op=${type%%=*} type=${type#*=}
    peers "ib_atomic_lat, $type" lat --exchange perftest --op $op --iters 200 -- ib_atomic_lat $perf -A $type -n 200
    peers "ib_atomic_bw, $type" bw --exchange perftest --op $op --iters 1000 -- ib_atomic_bw $perf -A $type -n 1000
done
check "no warning in dmesg" no_warning
