# The ibverbs examples, which check what arrives (-c).

pingpong() { both "$@" -- "$@" 127.0.0.1; }

check "ibv_rc_pingpong" pingpong ibv_rc_pingpong -g 1 -c
check "ibv_rc_pingpong, events" pingpong ibv_rc_pingpong -g 1 -c -e
check "ibv_rc_pingpong, 1 MiB" pingpong ibv_rc_pingpong -g 1 -c -s 1048576 -n 20
check "ibv_ud_pingpong" pingpong ibv_ud_pingpong -g 1 -c -n 200
