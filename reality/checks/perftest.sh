# perftest: the exit code decides, not the timings.

perf() { both "$@" -F -x 1 -n 100 -- "$@" -F -x 1 -n 100 127.0.0.1; }

for test in ib_send_lat ib_send_bw ib_write_lat ib_write_bw ib_read_lat ib_read_bw ib_atomic_lat; do
    check "$test" perf $test
done
check "ib_send_bw, 4 queue pairs" perf ib_send_bw -q 4
check "ib_send_lat, UD" perf ib_send_lat -c UD
for test in ib_send_lat ib_send_bw ib_write_lat ib_write_bw; do
    check "$test, UC" perf $test -c UC
done
check "ib_send_bw, shared receive queue" perf ib_send_bw --use-srq -q 4
check "ib_send_lat, XRC" perf ib_send_lat -c XRC
check "ib_read_bw, XRC" perf ib_read_bw -c XRC
check "ib_write_bw, XRC" perf ib_write_bw -c XRC
check "ib_atomic_bw, XRC" perf ib_atomic_bw -c XRC
check "ib_send_bw, UD" perf ib_send_bw -c UD
