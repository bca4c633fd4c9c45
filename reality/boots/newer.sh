# Our own driver on the vfio-pci of a newer kernel, if there is one (reality/build-newer): by iommufd, both functions of a card;
# and in no-IOMMU mode. That kernel's mlx5_core before and after.
if [ -s "$out/newer.gz" ] && [ -s "$out/vmlinux-newer" ]; then
    guest iommufd kernel=vmlinux-newer model=part=cx6,ports=2 checks="iommufd tests" images="newer mlx5 tests" memory_mib=2048 \
        breaks="CqOverrun ObjectInUse" qemu="-device intel-iommu,caching-mode=on,aw-bits=48" \
        append="intel_iommu=on,sm_off iommu.passthrough=0 no_timer_check hugepages=64 backend=vfio:0000:00:08.0,vfio:0000:00:08.1"
    [ -n "$filter" ] || after "hw-tests by iommufd: the scenarios end as on the model in one process" agree "$dir/iommufd/results"
    guest noiommu kernel=vmlinux-newer model=part=cx5 checks=noiommu images="newer mlx5" memory_mib=2048 append="hugepages=128"
    [ -n "$filter" ] || after "hw-tests without an IOMMU: the scenarios end as on the model in one process" agree "$dir/noiommu/results"
else
    say skipped "iommufd and no-IOMMU mode: no newer kernel: $(tail -n 1 "$out/build-newer.log")"
fi
