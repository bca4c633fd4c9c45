# The ibverbs examples, which check what arrives (-c) where they can.

pingpong() { both "$@" -g 1 -- "$@" -g 1 127.0.0.1; }

check "ibv_rc_pingpong" pingpong ibv_rc_pingpong -c -n 200
check "ibv_rc_pingpong, events" pingpong ibv_rc_pingpong -c -e
check "ibv_rc_pingpong, 1 MiB" pingpong ibv_rc_pingpong -c -s 1048576 -n 20
check "ibv_rc_pingpong, ibv_wr_* calls and time stamps" pingpong ibv_rc_pingpong -c -N -t -n 200
check "ibv_rc_pingpong, paging on demand" pingpong ibv_rc_pingpong -c -o -s 65536 -n 50
check "ibv_rc_pingpong, paging on demand in all of memory" pingpong ibv_rc_pingpong -c -O -s 65536 -n 50
check "ibv_uc_pingpong" pingpong ibv_uc_pingpong -c -n 200
check "ibv_uc_pingpong, 64 KiB, events" pingpong ibv_uc_pingpong -c -e -s 65536 -n 50
check "ibv_ud_pingpong" pingpong ibv_ud_pingpong -c -n 200
check "ibv_ud_pingpong, events" pingpong ibv_ud_pingpong -c -e -n 200
check "ibv_srq_pingpong" pingpong ibv_srq_pingpong -c -n 20
check "ibv_srq_pingpong, 2 queue pairs, events" pingpong ibv_srq_pingpong -c -e -q 2 -n 50
check "ibv_xsrq_pingpong" pingpong ibv_xsrq_pingpong -n 20
check "ibv_xsrq_pingpong, events" pingpong ibv_xsrq_pingpong -e
