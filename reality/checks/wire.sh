# RC over the wire, by programs that check what arrives or what went wrong.

pingpong() { each "$1" "$@" -g "$(gid)" -n 100; }
perf() { each "$1" "$@" -F -x "$(gid)" -n 100; }

pingpong ibv_rc_pingpong -c
for test in ib_send_lat ib_send_bw ib_write_lat ib_write_bw ib_read_lat ib_read_bw ib_atomic_lat; do
    perf $test
done
