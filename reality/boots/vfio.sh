# Our own driver in guests whose kernels have a virtual IOMMU, on those kernels' own vfio-pci. Intel's IOMMU comes before
# the card on QEMU's line, or DMA goes past it. QEMU makes each page that the guest maps a mapping of the stand-in.
# The functions of a card in one slot of the root complex are in one group. no_timer_check, since a kernel that finds its
# timer slow gives up, and without it some guests ended before their first line. `kills` in append= says how often the driver
# is killed, 40 times if not said. The guest of two functions has no BlueFlame: QEMU before 8.1 may end with SIGSEGV when one
# processor moves a BAR between two stores of another that are translated together, as BlueFlame's eight are.
iommu="-device intel-iommu,caching-mode=on,aw-bits=48"
guest one model=part=cx5 checks="vfio" images=mlx5 memory_mib=2048 seconds=1200 \
    append="intel_iommu=on iommu.passthrough=0 no_timer_check hugepages=64" qemu="$iommu"
[ -n "$filter" ] || after "hw-tests: the scenarios end as on the model in one process" agree "$dir/one/results"
guest two model=part=cx6,ports=2,bf=off checks="vfio_ports tests" images="mlx5 tests" memory_mib=2048 breaks="CqOverrun ObjectInUse" \
    append="intel_iommu=on iommu.passthrough=0 no_timer_check hugepages=64 backend=vfio:0000:00:08.0,vfio:0000:00:08.1" qemu="$iommu"
# No IOMMU: what the doctor says then.
guest none model=part=cx5 checks="vfio_none" images=mlx5
