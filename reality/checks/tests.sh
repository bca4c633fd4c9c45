# The driver's own tests, of tests/card: each by itself, on the functions that $backend
# names. What a test needs and cannot have here it says itself, and is skipped.

# A netdev's MTU of 9000 gives RoCE its largest, 4096.
both_large() {
    for function in 0 1; do
        ip link set "$(netdev $function)" mtu 9000 up && until_ok grep -q 1 "/sys/class/net/$(netdev $function)/carrier" || return 1
    done
    until_ok settled && until_ok both_are_4096
}
both_are_4096() { ibv_devinfo >/tmp/devinfo; cat /tmp/devinfo; [ "$(grep -c 'active_mtu:.*4096' /tmp/devinfo)" = 2 ]; }
case $backend in
verbs:*) setup "both functions: link up, MTU of RoCE 4096" both_large ;;
esac

# one_test SUBJECT::TEST: a line of its own.
one_test() {
    wanted "$1" || return
    n_checks=$((n_checks + 1))
    start=$(seconds)
    MLX5_TEST_BACKEND=$backend timeout 120 /tests/card --exact "$1" --show-output --test-threads=1 >/tmp/out 2>&1
    code=$?
    took="($(($(seconds) - start)) s)"
    lack=$(sed -n "s/^skipped: ${1##*::}: //p" /tmp/out)
    if [ $code != 0 ] || ! grep -q '^test result: ok. 1 passed' /tmp/out; then
        echo "check: FAILED $1: exit code $code $took"
        grep -vE '^(running 1|successes:|failures:|$)' /tmp/out | tail -n 20 | sed 's/^/check:         /'
    elif [ -n "$lack" ]; then
        echo "check: skipped $1: $lack"
    else
        echo "check: ok $1 $took"
    fi
}
# Subjects that need nothing but a card.
for subject in addresses async_events completion device memory memory_sharing qp_lifecycle qp_states \
    rc_errors rc_load rc_operations rc_rings uc ud windows; do
    for test in $(/tests/card --list "$subject::" | sed -n 's/: test$//p'); do one_test "$test"; done
done
