# UCX's own transports for these cards, each by itself (UCT) and under the protocols that choose among them (UCP). The exit
# code of ucx_perftest decides; io_demo compares what it gets with what was sent.

ucx="-p 18515 -n 50 -w 5"
device="-d $(ls /sys/class/infiniband | head -n 1):1"
# uct TRANSPORT TEST OPTIONS…: between two processes.
uct() {
    transport=$1 test=$2
    shift 2
    check "UCT $transport $test $*" both ucx_perftest $ucx $device -x "$transport" -t "$test" "$@" -- \
        ucx_perftest $ucx $device -x "$transport" -t "$test" "$@" 127.0.0.1
}
# ucp TRANSPORTS TEST OPTIONS…
ucp() {
    tls=$1
    shift
    check "UCP $tls $*" both env UCX_TLS=$tls ucx_perftest $ucx -t "$@" -- env UCX_TLS=$tls ucx_perftest $ucx -t "$@" 127.0.0.1
}

# Answers of up to 64 bytes are in CQEs of 128, if nothing is said; of up to 32 in CQEs of 64, or in memory.
for room in 0 32; do
    export UCX_RC_MLX5_TX_INLINE_RESP=$room UCX_RC_MLX5_RX_INLINE=$room
    uct rc_mlx5 am_lat -s 24
    uct rc_mlx5 get -D bcopy -s 24
    uct rc_mlx5 fadd
done
unset UCX_RC_MLX5_TX_INLINE_RESP UCX_RC_MLX5_RX_INLINE

# Completions of a kind in one session, of both queues: so many messages that some arrive together.
export UCX_RC_MLX5_CQE_ZIPPING_ENABLE=yes
uct rc_mlx5 am_bw -D bcopy -s 200 -n 2000
uct rc_mlx5 put_bw -D bcopy -s 200
uct rc_mlx5 fadd
unset UCX_RC_MLX5_CQE_ZIPPING_ENABLE

# short is inline data, bcopy a copy in registered memory, zcopy the caller's own. A datagram is one packet.
uct ud_mlx5 am_lat
uct ud_mlx5 am_bw -D bcopy -s 900
uct ud_mlx5 am_bw -D zcopy -s 900
for transport in rc_mlx5 dc_mlx5; do
    uct $transport am_lat
    uct $transport am_bw -D bcopy -s 2000
    uct $transport am_bw -D zcopy -s 3000
    uct $transport put_lat
    uct $transport put_bw -D bcopy -s 2000
    uct $transport put_bw -D zcopy -s 100000
    uct $transport get -D bcopy -s 2000
    uct $transport get -D zcopy -s 100000
    # 8 bytes as in verbs; a swap, and whatever is of 4 bytes, under masks.
    for atomic in add_lat add_mr fadd cswap swap; do uct $transport $atomic; done
    for atomic in add_lat fadd cswap swap; do uct $transport $atomic -s 4; done
done
for tls in rc_x dc_x ud_x; do
    ucp $tls tag_lat -s 8
    ucp $tls tag_bw -s 100000
    ucp $tls ucp_am_lat -s 20000
    ucp $tls ucp_get -s 20000
    ucp $tls ucp_cswap
    ucp $tls ucp_add -s 4
    ucp $tls ucp_swap
done

# demo TRANSPORTS OPTIONS…: READs and WRITEs of any size by a server that listens until it is killed. By librdmacm: where TCP
# connects, UCX 1.13 plans the sends that it has before it is connected for TCP, and loses those that the card does not take so.
demo() {
    export UCX_TLS=$1 UCX_SOCKADDR_TLS_PRIORITY=rdmacm
    shift
    io_demo -q -d 1:200000 "$@" >/tmp/server 2>&1 &
    pid=$!
    until_ok ready
    timeout 60 io_demo -q -d 1:200000 -o read,write -i 50 -t 10 "$@" 10.0.0.1 >/tmp/client 2>&1
    ended=$?
    kill $pid
    wait $pid
    cat /tmp/client
    # It goes on after sends that failed and replies that did not come, with a new connection.
    [ $ended = 0 ] && ! grep 'timeout waiting\|ERROR' /tmp/client || { cat /tmp/server && return 1; }
}
for tls in rc_x dc_x ud_x; do
    check "io_demo over $tls, by tags: data compared" demo $tls
    check "io_demo over $tls, by active messages: data compared" demo $tls -A
done
setup "no call trace" no_splat
