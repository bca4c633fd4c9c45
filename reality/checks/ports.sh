# Both functions of a card of two ports, beside each other.

second_up() { ip link set "$(netdev 1)" up && until_ok grep -q 1 "/sys/class/net/$(netdev 1)/carrier"; }
both_active() { ibv_devinfo >/tmp/devinfo; cat /tmp/devinfo; [ "$(grep -c PORT_ACTIVE /tmp/devinfo)" = 2 ]; }
# Each function has a GUID and a MAC of its own.
identities_differ() {
    [ "$(cat /sys/class/infiniband/*/node_guid | sort -u | wc -l)" = 2 ] &&
        [ "$(cat "/sys/class/net/$(netdev 0)/address")" != "$(cat "/sys/class/net/$(netdev 1)/address")" ]
}

setup "second function: link up" second_up
check "ibv_devinfo: both functions PORT_ACTIVE" until_ok both_active
check "identities differ" identities_differ
