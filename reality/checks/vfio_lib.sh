# What checks of VFIO are made of.

first=0000:00:08.0
second=0000:00:08.1

# bind_vfio BDF: from whatever driver has it to vfio-pci.
bind_vfio() {
    echo vfio-pci >/sys/bus/pci/devices/$1/driver_override || return 1
    unbind $1 || return 1
    echo $1 >/sys/bus/pci/drivers_probe
    [ "$(driver $1)" = vfio-pci ]
}
# From whatever driver has it, if one has.
unbind() { [ ! -e /sys/bus/pci/devices/$1/driver ] || echo $1 >/sys/bus/pci/devices/$1/driver/unbind; }
# Back to the driver of its ids.
bind_kernel() {
    echo >/sys/bus/pci/devices/$1/driver_override
    unbind $1 || return 1
    echo $1 >/sys/bus/pci/drivers_probe
}
driver() { basename "$(readlink /sys/bus/pci/devices/$1/driver)"; }
group() { basename "$(readlink /sys/bus/pci/devices/$1/iommu_group)"; }

add_user() { printf '%s:x:%s::/:/bin/sh\n' root 0:0 user 1000:1000 >/etc/passwd; }
# as_user COMMAND…: as somebody with no rights and the limits of a login.
as_user() { su -s /bin/sh user -c "ulimit -l ${memlock:-64}; $*"; }

# Pages that something holds for DMA.
pinned() { awk '$1 == "nr_foll_pin_acquired" { n += $2 } $1 == "nr_foll_pin_released" { n -= $2 } END { print n }' /proc/vmstat; }

# Killed at random moments, from before it has opened anything until traffic flows; it opens again each time, and the
# kernel holds nothing of it.
killed() {
    sleep 2
    before=$(pinned)
    time=0
    while [ $time -lt "${kills:-40}" ]; do
        time=$((time + 1))
        mlx5 bw --device $card --op write --iters 100000000 --qps 3 >/tmp/out.killed 2>&1 &
        pid=$!
        usleep $((($(od -An -N2 -tu2 /dev/urandom) % 1200) * 1000))
        kill -9 $pid
        wait $pid 2>/dev/null
        mlx5 info --device $card >/tmp/again 2>&1 || { echo "time $time"; cat /tmp/again; return 1; }
    done
    # Each processor counts for itself for a while.
    sleep 2
    echo "$time times; pages pinned before $before, after $(pinned)"
    [ "$(pinned)" -le "$before" ]
}

# removed VALUE FILE: taken away in the middle of traffic by writing to a file of sysfs. The kernel asks for it, and waits
# until it is given back.
removed() {
    sleep 2
    before=$(pinned)
    mlx5 bw --device $card --op write --iters 100000000 --qps 3 >/tmp/traffic 2>&1 &
    pid=$!
    sleep 2
    started=$(seconds)
    timeout 60 sh -c "echo $1 >$2" || { kill -9 $pid; return 1; }
    wait $pid
    code=$?
    cat /tmp/traffic
    # Each processor counts for itself for a while.
    sleep 2
    echo "ended with $code; $(($(seconds) - started)) s; pages pinned before $before, after $(pinned)"
    [ $code = 1 ] && grep -q "the kernel wants the function back" /tmp/traffic && [ "$(pinned)" -le "$before" ]
}
