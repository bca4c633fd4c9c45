# RC over the wire, by programs that check what arrives or what went wrong.

pingpong() { each "$1" "$@" -g "$(gid)" -n 100; }
perf() { each "$1" "$@" -F -x "$(gid)" -n 100; }

pingpong ibv_rc_pingpong -c
for test in ib_send_lat ib_send_bw ib_write_lat ib_write_bw; do
    perf $test
done
# perftest asks the card for as many outstanding requests as the other device serves: 128 of rdma_rxe, and the card has 16.
if [ "$boot" != rxe ]; then
    for test in ib_read_lat ib_read_bw ib_atomic_lat; do
        perf $test
    done
fi
