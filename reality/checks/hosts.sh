# Our driver in another process, with a card of its own, is the peer of the programs here. What comes before says where that is
# and how it is started: `there`, $where, $far, $listen, $listens, $connect; and what device the programs take: $rdma, $gid.

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
    there $mlx5 --listen $listen &
    pid=$!
    until_ok they_listen
    timeout 60 "$@" -p $listens $far >/tmp/here 2>&1
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
    there $mlx5 --connect $connect
    wait $pid
    here=$?
    judge
}

# peers NAME MLX5… -- PROGRAM…: both ways round.
peers() {
    name_of=$1
    shift
    check "$name_of here asks mlx5 $where" asks_mlx5 "$@"
    check "mlx5 $where asks $name_of here" answers_mlx5 "$@"
}

rc="ibv_rc_pingpong -d $rdma -g $gid -c"
ping="pingpong --exchange ibv_rc_pingpong"
peers "ibv_rc_pingpong" $ping --size 4096 --iters 100 -- $rc -s 4096 -n 100
peers "ibv_rc_pingpong, 1 MB" $ping --size 1048576 --iters 10 -- $rc -s 1048576 -n 10
peers "ibv_rc_pingpong, both asleep on events" $ping --size 64 --iters 100 --events -- $rc -s 64 -n 100 -e

# A process that shares its processors may be away for longer than the usual 8 times 67 ms (-u 14).
perf="-F -d $rdma -x $gid -u 17"
for size in $(echo "$sizes" | tr , ' '); do
    for op in send write read; do
        peers "ib_${op}_lat, $size bytes" lat --exchange perftest --op $op --size $size --iters 50 -- \
            ib_${op}_lat $perf -s $size -n 50
        peers "ib_${op}_bw, $size bytes" bw --exchange perftest --op $op --size $size --iters 300 -- \
            ib_${op}_bw $perf -s $size -n 300
    done
done
for type in faa=FETCH_AND_ADD cas=CMP_AND_SWAP; do
    op=${type%%=*} type=${type#*=}
    peers "ib_atomic_lat, $type" lat --exchange perftest --op $op --iters 50 -- ib_atomic_lat $perf -A $type -n 50
    peers "ib_atomic_bw, $type" bw --exchange perftest --op $op --iters 300 -- ib_atomic_bw $perf -A $type -n 300
done
check "no warning in dmesg" no_warning
