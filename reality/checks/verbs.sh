# The ibverbs examples, which check what arrives (-c).

pingpong() { both "$@" -- "$@" 127.0.0.1; }
# Its server wants to know how many clients will come; it checks no data.
pingpong_xsrq() { both ibv_xsrq_pingpong -g 1 -c 1 "$@" -- ibv_xsrq_pingpong -g 1 "$@" 127.0.0.1; }

check "ibv_rc_pingpong" pingpong ibv_rc_pingpong -g 1 -c
check "ibv_rc_pingpong, events" pingpong ibv_rc_pingpong -g 1 -c -e
check "ibv_rc_pingpong, 1 MiB" pingpong ibv_rc_pingpong -g 1 -c -s 1048576 -n 20
check "ibv_ud_pingpong" pingpong ibv_ud_pingpong -g 1 -c -n 200
check "ibv_uc_pingpong" pingpong ibv_uc_pingpong -g 1 -c -n 200
check "ibv_uc_pingpong, 64 KiB, events" pingpong ibv_uc_pingpong -g 1 -c -e -s 65536 -n 50
check "ibv_srq_pingpong" pingpong ibv_srq_pingpong -g 1 -c -n 50
check "ibv_srq_pingpong, 2 queue pairs, events" pingpong ibv_srq_pingpong -g 1 -c -e -q 2 -n 50
check "ibv_xsrq_pingpong" pingpong_xsrq -n 20
