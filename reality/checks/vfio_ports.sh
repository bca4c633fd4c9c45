# Both functions of a card, which are in one group: one address space, and one process's.
. /checks/vfio_lib.sh

cards=vfio:$first,vfio:$second

setup "VFIO loads" modprobe -a vfio vfio_iommu_type1 vfio-pci mlx5_core
setup "one group" test "$(group $first)" = "$(group $second)"
setup "the first is bound to vfio-pci" bind_vfio $first
check "refused: the second is mlx5_core's, so the group is not viable" says 1 "is not viable" mlx5 info --device vfio:$first
check "doctor: not viable" says 1 "give those to vfio-pci too" mlx5 doctor --device vfio:$first
setup "the second is bound to vfio-pci" bind_vfio $second
check "list: both" says 0 vfio:$second mlx5 list
check "doctor: both" mlx5 doctor --device $cards
check "pingpong from one to the other" mlx5 pingpong --device $cards --iters 2000
check "asleep until MSI-X" mlx5 pingpong --device $cards --iters 500 --events
check "bw write" mlx5 bw --device $cards --op write --iters 1000 --qps 4
check "lat read" mlx5 lat --device $cards --op read --size 1..64k --iters 50
check "hw-tests" hw-tests --device $cards
