# A computer without an IOMMU, whose kernel lets VFIO do without.
. /checks/vfio_lib.sh

unprotected=vfio-noiommu:$first

setup "VFIO loads, and may do without an IOMMU" modprobe vfio enable_unsafe_noiommu_mode=1
setup "vfio-pci loads" modprobe vfio-pci
setup "bound to vfio-pci" bind_vfio $first
check "refused unless asked for by name" says 1 "$unprotected" mlx5 info --device vfio:$first
check "info" says 0 PORT_ACTIVE mlx5 info --device $unprotected
check "pingpong" mlx5 pingpong --device $unprotected --iters 2000
check "pingpong, asleep until MSI-X" mlx5 pingpong --device $unprotected --iters 500 --events
check "bw write" mlx5 bw --device $unprotected --op write --iters 1000 --qps 4
check "hw-tests" hw-tests --device $unprotected --json /dev/ttyS1
setup "no call trace" no_splat
