# Our own driver over the kernel's verbs: libmlx5 makes the queues, and we post to them. Then with unmodified programs of
# libmlx5 at the other end, on the same card.

dev="--device verbs:mlx5_0"

check "mlx5 list of devices: one that is not there" says 1 'no verbs device `mlx5_7`: there are mlx5_0' mlx5 info --device verbs:mlx5_7

# value NAME FILE: as ibv_devinfo -v and mlx5 info print it.
value() { grep -m 1 "[[:space:]]$1:" "$2" | sed 's/[^:]*:[[:space:]]*//'; }
same_as_devinfo() {
    mlx5 info $dev >/tmp/ours && ibv_devinfo -v >/tmp/theirs && cat /tmp/ours || return 1
    grep -q PORT_ACTIVE /tmp/ours && grep -q 'RoCE v2' /tmp/ours || return 1
    for field in fw_ver node_guid sys_image_guid vendor_part_id board_id max_mr_size max_qp max_qp_wr max_sge max_cq max_mr \
        max_pd max_qp_rd_atom max_pkeys hca_core_clock active_mtu max_msg_sz gid_tbl_len pkey_tbl_len; do
        [ "$(value $field /tmp/ours)" = "$(value $field /tmp/theirs)" ] && continue
        echo "$field: $(value $field /tmp/ours), and in ibv_devinfo $(value $field /tmp/theirs)"
        return 1
    done
}
check "mlx5 info says what ibv_devinfo says" same_as_devinfo
check "addresses are the kernel's: the command is named" \
    says 1 "ip addr add 10.9.9.9/24 dev $(netdev)" mlx5 pingpong $dev --ip 10.9.9.9 --listen
check "mlx5 pingpong between two processes, over an address of the kernel's" \
    both mlx5 pingpong $dev --iters 100 --ip 10.0.0.1 --listen 127.0.0.1:18515 -- \
    mlx5 pingpong $dev --iters 100 --ip 10.0.0.1 --connect 127.0.0.1

check "mlx5 pingpong" mlx5 pingpong $dev --iters 300
check "mlx5 pingpong, 64 KiB" mlx5 pingpong $dev --iters 50 --size 64k
check "mlx5 pingpong, asleep on events" mlx5 pingpong $dev --iters 100 --events
for op in send write write-imm read faa cas; do
    size="--size 4k"
    case $op in faa | cas) size= ;; esac
    check "mlx5 lat, $op" mlx5 lat $dev --op $op --iters 100
    check "mlx5 bw, $op, 4 queue pairs" mlx5 bw $dev --op $op --iters 1000 --qps 4 --batch 8 $size
done
check "mlx5 bw, inline, signalled now and then" mlx5 bw $dev --op send --iters 2000 --inline --size 64 --signal-every 16
for transport in uc ud; do
    check "mlx5 pingpong, $transport" mlx5 pingpong $dev --transport $transport --iters 300
    check "mlx5 bw, $transport, 4 queue pairs" mlx5 bw $dev --transport $transport --iters 1000 --size 1k --qps 4 --batch 8
done
check "mlx5 lat, write over UC" mlx5 lat $dev --transport uc --op write --iters 100 --size 4k
check "mlx5 pingpong, ud, asleep on events" mlx5 pingpong $dev --transport ud --iters 100 --events
check "mlx5 pingpong, ud, more than a packet is refused" says 2 "limit active_mtu of one packet is 1024" \
    mlx5 pingpong $dev --transport ud --size 1025
check "hw-tests: all scenarios of one function" says 0 "passed, 0 failed, 1 skipped" hw-tests $dev --json /dev/ttyS1

# with NAME MLX5… -- PROGRAM…: an unmodified program at the other end, both ways round.
with() {
    what=$1 ours= n=2
    shift
    while [ "$1" != -- ]; do ours="$ours $1" n=$((n + 1)); shift; done
    shift
    check "$what asks mlx5" both mlx5 $ours $dev --listen 127.0.0.1:18515 -- "$@" 127.0.0.1
    check "mlx5 asks $what" both "$@" -- mlx5 $ours $dev --connect 127.0.0.1:18515
}

rc="ibv_rc_pingpong -d mlx5_0 -g 1 -c"
ping="pingpong --exchange ibv_rc_pingpong"
with "ibv_rc_pingpong" $ping --size 4096 --iters 200 -- $rc -s 4096 -n 200
with "ibv_rc_pingpong, 1 MB" $ping --size 1048576 --iters 10 -- $rc -s 1048576 -n 10
with "ibv_rc_pingpong, both asleep on events" $ping --size 64 --iters 100 --events -- $rc -s 64 -n 100 -e
for transport in uc ud; do
    pong="ibv_${transport}_pingpong -d mlx5_0 -g 1"
    ping="pingpong --exchange ibv_${transport}_pingpong"
    with "ibv_${transport}_pingpong" $ping --size 1024 --iters 200 -- $pong -s 1024 -n 200
    with "ibv_${transport}_pingpong, both asleep on events" $ping --size 64 --iters 100 --events -- $pong -s 64 -n 100 -e
done
with "ibv_uc_pingpong, 1 MB" pingpong --exchange ibv_uc_pingpong --size 1048576 --iters 10 -- \
    ibv_uc_pingpong -d mlx5_0 -g 1 -s 1048576 -n 10
perf="-F -x 1"
for op in send write read; do
    with "ib_${op}_lat" lat --exchange perftest --op $op --size 2 --iters 200 -- ib_${op}_lat $perf -s 2 -n 200
    with "ib_${op}_bw" bw --exchange perftest --op $op --size 10000 --iters 500 -- ib_${op}_bw $perf -s 10000 -n 500
done
check "queue pairs of librdmacm, our rings" says 0 'client: request 3 and all before it are done: "read through rdma_cm' rdma_cm 10.0.0.1
check "all made by libibverbs, our rings" says 0 'written "all made by them", received "all made by them"' adopt mlx5_0
check "and handed out again" says 0 "all pointers are theirs: true" adopt mlx5_0

# The kernel's driver tells of its ports.
port_events() {
    watch_events mlx5_0 8 >/tmp/events &
    pid=$!
    until_ok grep -q watching /tmp/events
    ip link set "$(netdev)" down && sleep 1 && link_up
    wait $pid
    watched=$?
    cat /tmp/events
    [ $watched = 0 ] && grep -q "PortChange { port: 1, up: false }" /tmp/events && grep -q "PortChange { port: 1, up: true }" /tmp/events
}
check "asynchronous events: port down, port up" port_events
check "no warning in dmesg" no_warning
