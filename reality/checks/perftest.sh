# perftest: the exit code decides, not the timings. -a is every size, -q queue pairs, -l a list of requests a post,
# -I inline, -e sleeping on events, -C cycles: without it each size of -a measures the processor's clock, for half a second.

# each PROGRAM SERVICE OPTIONS…: a check for each string of options.
each() {
    program=$1 service=$2
    shift 2
    for options in "$@"; do
        check "$program -c $service $options" perf "$program" -c "$service" $options
    done
}

# The latencies with -e arm a CQ before they take the completion that the event told of, and count on one event a
# completion; ib_send_lat besides on the order of the events of its two CQs, which share a channel: what it sent is
# acknowledged before the answer comes (linux-rdma/perftest pull request 127).
for service in RC UC; do
    each ib_send_lat $service "-n 100" "-n 100 -I 64 -s 64" "-n 100 -e"
    each ib_send_bw $service "-a -n 10" "-n 100 -q 16" "-n 100 -e" "-n 104 -l 8" "-n 100 -I 64 -s 64" "-n 100 -b"
    each ib_write_lat $service "-n 100" "-n 100 -I 64 -s 64"
    each ib_write_bw $service "-a -n 10" "-n 100 -q 16" "-n 104 -l 8" "-n 100 -I 64 -s 64" "-n 100 -b"
done
each ib_send_lat RC "-a -n 5 -C"
each ib_write_lat RC "-a -n 5 -C"
each ib_read_lat RC "-a -n 5 -C" "-n 100 -e"
each ib_read_bw RC "-a -n 10" "-n 100 -q 16" "-n 100 -e" "-n 104 -l 8" "-n 100 -b"
for type in FETCH_AND_ADD CMP_AND_SWAP; do
    each ib_atomic_lat RC "-n 100 -A $type" "-n 100 -e -A $type"
    each ib_atomic_bw RC "-n 100 -A $type" "-n 100 -q 16 -A $type" "-n 100 -e -A $type" "-n 104 -l 8 -A $type"
done
each ib_send_lat UD "-a -n 20 -C" "-n 100 -I 64 -s 64" "-n 100 -e"
each ib_send_bw UD "-a -n 20" "-n 100 -q 16" "-n 100 -e" "-n 104 -l 8" "-n 100 -I 64 -s 64" "-n 100 -b"
each ib_send_bw RC "-n 100 --use-srq -q 4"
for test in send write read atomic; do
    each ib_${test}_lat XRC "-n 100"
    each ib_${test}_bw XRC "-n 100"
done
skip "ib_write_lat and ib_write_bw with -e" "perftest: Events feature not available on WRITE verb"
skip "-I of READ and atomics" "perftest: Inline feature not available on READ/Atomic verbs"
skip "-a of atomics" "perftest has them with 8 bytes only"
skip "-q and -l of latencies" "perftest: only available on bw tests"

# What the device counts, as Linux shows it.
counter() { cat "/sys/class/infiniband/$(ls /sys/class/infiniband | head -n 1)/ports/1/hw_counters/$1"; }
counts() {
    before=$(counter "$1")
    name=$1
    shift
    perf "$@" && echo "$name: $before before, $(counter "$name") after" && [ "$(counter "$name")" -gt "$before" ]
}
check "hw_counters/rx_read_requests" counts rx_read_requests ib_read_lat -n 5
check "hw_counters/rx_write_requests" counts rx_write_requests ib_write_lat -n 5
check "hw_counters/rx_atomic_requests" counts rx_atomic_requests ib_atomic_lat -n 5
