# UCX with tags that the card matches, by UCX's own reading of lists, headers and CQEs. Any size goes so: short and copied messages,
# and from 8 kB on rendezvous, whose data the card reads by itself.

setup "loopback interface" ip link set lo up
export UCX_TLS=rc_x UCX_RC_MLX5_TM_ENABLE=y UCX_TM_THRESH=1
# tags TEST OPTIONS…
tags() { check "UCP rc_x, tags matched by the card: $*" both ucx_perftest -p 18515 -w 5 -t "$@" -- ucx_perftest -p 18515 -w 5 -t "$@" 127.0.0.1; }
tags tag_lat -n 200 -s 8
tags tag_lat -n 100 -s 2000
tags tag_lat -n 50 -s 20000
tags tag_bw -n 200 -s 8
tags tag_bw -n 100 -s 2000
tags tag_bw -n 50 -s 100000
tags tag_sync_lat -n 100 -s 64
# More than a list has room for.
tags tag_bw -n 1000 -s 64 -O 300
setup "no call trace" no_splat
