# What checks of VFIO are made of.

first=0000:00:08.0
second=0000:00:08.1

# bind_vfio BDF: from whatever driver has it to vfio-pci.
bind_vfio() {
    echo vfio-pci >/sys/bus/pci/devices/$1/driver_override || return 1
    if [ -e /sys/bus/pci/devices/$1/driver ]; then
        echo $1 >/sys/bus/pci/devices/$1/driver/unbind || return 1
    fi
    echo $1 >/sys/bus/pci/drivers_probe
    [ "$(driver $1)" = vfio-pci ]
}
# Back to the driver of its ids.
bind_kernel() {
    echo >/sys/bus/pci/devices/$1/driver_override
    echo $1 >/sys/bus/pci/devices/$1/driver/unbind
    echo $1 >/sys/bus/pci/drivers_probe
}
driver() { basename "$(readlink /sys/bus/pci/devices/$1/driver)"; }
group() { basename "$(readlink /sys/bus/pci/devices/$1/iommu_group)"; }

# says CODE TEXT COMMAND…: it ends with that code, and says that on either output.
says() {
    code=$1 text=$2
    shift 2
    "$@" >/tmp/said 2>&1
    ended=$?
    cat /tmp/said
    [ $ended = "$code" ] || { echo "ended with $ended, not $code"; return 1; }
    grep -qF -- "$text" /tmp/said || { echo "does not say: $text"; return 1; }
}
# as_user COMMAND…: as somebody with no rights and the limits of a login.
as_user() { su -s /bin/sh user -c "ulimit -l ${memlock:-64}; $*"; }
