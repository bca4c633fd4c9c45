# Two guests, $side a and b, do the checks of later files together: the same ones in the same order. Programs find each
# other over a network of its own, so that what they carry over the wire is their own affair.

case $side in
a) my=01 peer=02 my_mac=02:00:00:00:0a:00 mac=02:00:00:00:0b:00 ;;
b) my=02 peer=01 my_mac=02:00:00:00:0b:00 mac=02:00:00:00:0a:00 ;;
esac
# Addresses on the network for programs, and on the wire.
here=10.9.0.${my#0} there=10.9.0.${peer#0}
my_address=10.0.0.${my#0} peer_address=10.0.0.${peer#0}

# Index of the RoCE v2 GID of the address on the wire.
gid() { gid_of 0a00:00$my; }
has_gid() { gid >/dev/null; }

met=
control_up() {
    modprobe -a virtio_pci virtio_net && until_ok has_mac 52:54:00:c0:00:0 && dev=$(with_mac 52:54:00:c0:00:0) &&
        ip link set lo up && ip link set "$dev" up && ip addr add "$here/24" dev "$dev" &&
        until_ok ping -c 1 -W 1 "$there" && met=yes
}
# Nobody else is on the wire, and some NICs there cannot answer. The shell's own ip has no neighbours.
wire_up() {
    ip addr add "$my_address/24" dev "$(with_mac $my_mac)" 2>/dev/null
    /bin/ip neigh replace "$peer_address" lladdr "$mac" dev "$(with_mac $my_mac)" && until_ok has_gid
}

told() { [ "$(nc "$there" 7000 </dev/null)" = "$1" ]; }

# serves SIDE COMMAND…: the command at this side, and the command with the side's address at the other.
serves() {
    [ -n "$met" ] || return 1
    if [ "$1" = "$side" ]; then
        shift
        timeout 60 "$@" >/tmp/server 2>&1 &
        pid=$!
        until_ok ready
        echo "$name" | timeout 30 nc -l -p 7000 || kill $pid
        wait $pid
        served=$?
        cat /tmp/server
        echo "server $served"
        return $served
    fi
    shift
    until_ok told "$name" && timeout 60 "$@" "$there"
}

# each NAME COMMAND…: a check with the server at each side in turn.
each() {
    what=$1
    shift
    check "$what, a serves" serves a "$@"
    check "$what, b serves" serves b "$@"
}

setup "a network to find each other" control_up
setup "an address on the wire" wire_up
