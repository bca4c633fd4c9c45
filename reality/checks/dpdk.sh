# DPDK's mlx5 driver, which builds WQEs and reads CQEs for Ethernet by itself: testpmd on both ports of the card, a cable between
# them. A first burst goes out of each port, and what comes in at one goes out of the other.

# Flow rules are the kernel's: DPDK's own (dv_flow_en=1) are tables in the card's memory. CQEs are compressed, if nothing is said.
for function in 0 1; do
    functions="$functions -a $(basename "$(readlink -f "/sys/class/net/$(netdev $function)/device")"),dv_flow_en=0"
done
# testpmd DEVARGS OPTIONS…: until packets have come in; what it counts as it ends decides.
testpmd() {
    devices=$(echo "$functions" | sed "s/dv_flow_en=0/&$1/g")
    shift
    dpdk-testpmd -l 0,1 --no-telemetry --no-huge -m 256 $devices -- --no-mlockall --total-num-mbufs=4096 \
        --stats-period=1 --tx-first "$@" >/tmp/testpmd 2>&1 &
    pid=$!
    until_ok receives
    kill -INT $pid
    wait $pid
    ended=$?
    cat /tmp/testpmd
    [ $ended = 0 ] && counts_alike 0 1 && counts_alike 1 0
}
receives() { [ "$(grep -cE 'RX-packets: [1-9]' /tmp/testpmd)" -ge 2 ] || ! kill -0 $pid 2>/dev/null; }
# count PORT NAME: of the statistics at the end.
count() { sed -n "/Forward statistics for port $1/,/---$/s/.*$2: *\([0-9]*\).*/\1/p" /tmp/testpmd; }
# counts_alike FROM TO: nothing was dropped, and what one sent the other received, but for what was under way at the end.
counts_alike() {
    [ "$(count "$1" RX-dropped)" = 0 ] && [ "$(count "$1" TX-dropped)" = 0 ] && [ "$(count "$2" RX-packets)" -ge 100 ] &&
        [ "$(count "$2" RX-packets)" -le "$(count "$1" TX-packets)" ] &&
        [ "$(count "$2" RX-packets)" -ge $(($(count "$1" TX-packets) - 256)) ]
}

check "testpmd, io" testpmd "" --forward-mode=io
check "testpmd, io, data in WQEs" testpmd ",txq_inline_max=128,txqs_min_inline=1" --forward-mode=io
check "testpmd, io, packets of three pieces" testpmd "" --forward-mode=io --txpkts=128,300,1000 --tx-offloads=0x8000
check "testpmd, io, CQEs one at a time" testpmd ",rx_vec_en=0" --forward-mode=io
check "testpmd, io, whole CQEs" testpmd ",rxq_cqe_comp_en=0" --forward-mode=io
check "testpmd, io, two queues a port" testpmd "" --forward-mode=io --rxq=2 --txq=2
# The card writes those of IP and UDP, and says whether what it received has the right ones.
checksums() {
    testpmd "" --forward-mode=csum --tx-offloads=0x6 --rx-offloads=0x6 &&
        [ "$(grep -c 'Bad-ipcsum: 0 .*Bad-l4csum: 0 ' /tmp/testpmd)" = 2 ]
}
check "testpmd, checksums by the card" checksums
setup "no call trace" no_splat
