# Functions that are opened one by one, by iommufd: /dev/iommu, /dev/vfio/devices/vfioN.
. /checks/vfio_lib.sh

card=vfio:$first

setup "a user without rights" add_user
setup "mlx5_core has both functions" sh -c "modprobe mlx5_core && [ -e /sys/bus/pci/drivers/mlx5_core/$second ]"
check "its link comes up" link_up
setup "no warning of the newer kernel's mlx5_core" no_warning
setup "VFIO and iommufd load" modprobe -a vfio iommufd vfio-pci
setup "the first is bound to vfio-pci" bind_vfio $first
check "refused: the second is mlx5_core's, so the group is not viable" says 1 "is not viable" mlx5 info --device $card
setup "the second is bound to vfio-pci" bind_vfio $second
setup "each has a file of its own" sh -c "ls -l /dev/iommu /dev/vfio/devices/vfio0 /dev/vfio/devices/vfio1"
check "doctor: no problem" says 0 "is active" mlx5 doctor --device $card
check "info" says 0 PORT_ACTIVE mlx5 info --device $card
check "pingpong" mlx5 pingpong --device $card --iters 2000
check "pingpong, asleep until MSI-X" mlx5 pingpong --device $card --iters 500 --events
check "pingpong from one to the other" mlx5 pingpong --device $card,vfio:$second --iters 2000
for op in send write read faa; do
    check "lat $op" mlx5 lat --device $card --op $op --iters 300
    check "bw $op, 5 QPs" mlx5 bw --device $card --op $op --iters 1001 --qps 5 --batch 7 --depth 20
done
check "hw-tests" hw-tests --device $card --json /dev/ttyS1

traffic() {
    mlx5 bw --device $card --op write --iters 100000000 >/tmp/traffic 2>&1 &
    pid=$!
    sleep 2
    ls -l /proc/$pid/fd >/tmp/fds
}
by_iommufd() {
    traffic
    cat /tmp/fds /tmp/traffic
    says 1 "fuser -v /dev/vfio/devices/vfio" mlx5 info --device $card
    result=$?
    kill -9 $pid
    wait $pid 2>/dev/null
    [ $result = 0 ] && grep -q /dev/iommu /tmp/fds && grep -q /dev/vfio/devices/vfio /tmp/fds && ! grep -q /dev/vfio/vfio /tmp/fds
}
check "by iommufd, and busy to others meanwhile" by_iommufd
check "and after its end by SIGKILL it opens" until_ok mlx5 info --device $card
node=/dev/vfio/devices/vfio0
check "refused: a user who may not open them" says 1 "chown 1000" as_user mlx5 info --device $card
setup "the files are the user's" chown user /dev/iommu $node
check "refused: 64 KiB of locked memory" says 1 "ulimit -l unlimited" as_user mlx5 info --device $card
memlock=262144
check "a user with rights to the files and 256 MiB" as_user mlx5 pingpong --device $card --iters 500
memlock=
kills=${kills:-10}
check "killed at random moments, and opened again" killed
check "unbound in the middle of traffic" removed
setup "bound to vfio-pci again" bind_vfio $first
check "and it works" mlx5 pingpong --device $card --iters 100
setup "no call trace" no_splat
