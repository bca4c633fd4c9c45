# A computer without an IOMMU.
. /checks/vfio_lib.sh

setup "VFIO loads" modprobe -a vfio vfio_iommu_type1 vfio-pci
check "doctor: the IOMMU is off" says 1 "intel_iommu=on" mlx5 doctor
check "doctor: of the device" says 1 "is in no IOMMU group" mlx5 doctor --device vfio:$first
check "list" says 0 $first mlx5 list
