# One function, and what may be wrong with it.
. /checks/vfio_lib.sh

card=vfio:$first

setup "a user without rights" add_user
setup "mlx5_core has the function" sh -c "modprobe mlx5_core && [ -e /sys/bus/pci/drivers/mlx5_core/$first ]"
check "list: bound to mlx5_core" says 0 mlx5_core mlx5 list
check "refused: bound to mlx5_core" says 1 "is bound to mlx5_core, not to vfio-pci" mlx5 pingpong --device $card
check "doctor: bound to mlx5_core" says 1 "drivers/mlx5_core/unbind" mlx5 doctor --device $card
setup "VFIO loads" modprobe -a vfio vfio_iommu_type1 vfio-pci
setup "bound to vfio-pci" bind_vfio $first
check "list: bound to vfio-pci" says 0 $card mlx5 list
check "doctor: no problem" says 0 "is active" mlx5 doctor --device $card
check "doctor: of all devices" says 0 "is bound to vfio-pci" mlx5 doctor
check "info" says 0 PORT_ACTIVE mlx5 info --device $card

check "pingpong" mlx5 pingpong --device $card --iters 2000
check "pingpong, asleep until MSI-X" mlx5 pingpong --device $card --iters 500 --events
for op in send write write-imm read cas faa; do
    check "lat $op" mlx5 lat --device $card --op $op --iters 500
    check "bw $op, 5 QPs" mlx5 bw --device $card --op $op --iters 1001 --qps 5 --batch 7 --depth 20
done
for transport in uc ud; do
    check "pingpong, $transport" mlx5 pingpong --device $card --transport $transport --iters 1000
    check "pingpong, $transport, asleep until MSI-X" mlx5 pingpong --device $card --transport $transport --iters 200 --events
    check "bw, $transport, 5 QPs" mlx5 bw --device $card --transport $transport --size 1k --iters 1001 --qps 5 --batch 7 --depth 20
done
check "lat write over UC" mlx5 lat --device $card --transport uc --op write --iters 500
check "lat send, 1 B to 1 MiB" mlx5 lat --device $card --op send --size 1..1m --iters 20
check "lat read, 1 B to 1 MiB" mlx5 lat --device $card --op read --size 1..1m --iters 20
check "bw write, 4 MiB messages" mlx5 bw --device $card --op write --size 4m --iters 16 --depth 4
check "hw-tests" hw-tests --device $card --json /dev/ttyS1

check "refused: no such function" says 1 "there is no PCI function" mlx5 info --device vfio:0000:00:1e.0
check "refused: not an mlx5 device" says 1 "not an mlx5 device" mlx5 info --device vfio:0000:00:1f.2
check "doctor: not an mlx5 device" says 1 "not an mlx5 device" mlx5 doctor --device vfio:0000:00:1f.2
# The other one is in traffic when it is tried.
busy() {
    mlx5 pingpong --device $card --iters 100000000 >/tmp/busy 2>&1 &
    pid=$!
    until_ok grep -q SEND /tmp/busy && says 1 "fuser -v" mlx5 info --device $card
    result=$?
    kill -9 $pid
    wait $pid 2>/dev/null
    return $result
}
check "refused: another process has the group" busy
check "and after its end by SIGKILL it opens" until_ok mlx5 info --device $card
node=/dev/vfio/$(group $first)
check "refused: a user who may not open the group" says 1 "chown 1000 $node" as_user mlx5 info --device $card
check "doctor: a user who may not" says 1 "Permission denied" as_user mlx5 doctor --device $card
setup "the group is the user's" chown user $node
check "refused: 64 KiB of locked memory" says 1 "ulimit -l unlimited" as_user mlx5 info --device $card
check "doctor: 64 KiB of locked memory" says 1 "65536 bytes of memory may be locked" as_user mlx5 doctor --device $card
memlock=262144
check "a user with rights to the group and 256 MiB" as_user mlx5 pingpong --device $card --iters 500
memlock=

check "killed at random moments, and opened again" killed

setup "mlx5_ib loads" modprobe -a mlx5_ib ib_uverbs
# Nobody resets it for the next driver, while whoever unbinds or removes it holds its lock: mlx5_core finds it as it was left.
back() { bind_kernel $first && back_again; }
check "unbound in the middle of traffic" removed $first /sys/bus/pci/drivers/vfio-pci/unbind
check "refused: bound to nothing" says 1 "bound to no driver" mlx5 info --device $card
check "to mlx5_core: PORT_ACTIVE" back
setup "bound to vfio-pci again" bind_vfio $first
check "and it works" mlx5 pingpong --device $card --iters 100

check "unplugged in the middle of traffic" removed 1 /sys/bus/pci/devices/$first/remove
check "refused: unplugged" says 1 "there is no PCI function" mlx5 info --device $card
rescan() { echo 1 >/sys/bus/pci/rescan && [ "$(driver $first)" = mlx5_core ] && back_again; }
check "plugged in again, to mlx5_core: PORT_ACTIVE" rescan
setup "bound to vfio-pci once more" bind_vfio $first
check "and it works again" mlx5 pingpong --device $card --iters 100
check "at last to mlx5_core: PORT_ACTIVE" back
check "no warning in dmesg" no_warning
