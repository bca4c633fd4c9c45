# What libmlx5 copies into a BlueFlame register: one short request a post; inline data, and lists for the contrast.

for test in ib_send_lat ib_write_lat; do
    check "$test, BlueFlame" perf $test -n 200 -s 8
    check "$test, BlueFlame, inline of several lines" perf $test -n 100 -I 200 -s 200
done
check "ib_write_bw, inline" perf ib_write_bw -n 200 -I 64 -s 64
check "ib_send_bw, lists of 8" perf ib_send_bw -n 104 -l 8
check "ib_write_bw, 16 queue pairs" perf ib_write_bw -n 100 -q 16
check "ib_send_bw, 4 queue pairs, events" perf ib_send_bw -n 100 -q 4 -e
check "ib_send_lat, datagrams, inline" perf ib_send_lat -c UD -n 100 -I 64 -s 64
