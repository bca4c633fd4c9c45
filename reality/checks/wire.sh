# RDMA over the wire, by programs that check what arrives or what went wrong.

pingpong() { each "$1" "$@" -g "$(gid)" -n 100; }
# A process that shares its processors may be away for longer than the usual 8 times 67 ms (-u 14).
perf() { each "$*" "$@" -F -x "$(gid)" -n 100 -u 17; }

pingpong ibv_rc_pingpong -c
pingpong ibv_uc_pingpong -c
pingpong ibv_ud_pingpong
for test in ib_send_lat ib_send_bw ib_write_lat ib_write_bw; do
    perf $test
done

# perftest asks its device for as many requests at once as the other's serves, and rdma_rxe serves 128: said with -o, both
# ends ask for 8.
for test in ib_read_lat ib_read_bw; do
    perf $test -o 8
done
for type in FETCH_AND_ADD CMP_AND_SWAP; do
    for test in ib_atomic_lat ib_atomic_bw; do
        perf $test -o 8 -A $type
    done
done
if [ "$boot" != rxe ]; then
    perf ib_read_bw
    perf ib_atomic_bw
fi

perf ib_send_lat -c UC
perf ib_write_lat -c UC
perf ib_write_bw -c UC
perf ib_send_lat -c UD
skip "ib_send_bw, -c UC and UD" "the network between the guests drops what comes too fast, and nobody sends it again"
