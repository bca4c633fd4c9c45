# The kernel's RoCE in software, on a NIC without any.

rxe_up() {
    modprobe -a crc32_generic virtio_pci virtio_net rdma_rxe ib_uverbs rdma_ucm && ip link set lo up &&
        until_ok has_mac 02:00:00:00:0b:00 && ip link set "$(with_mac 02:00:00:00:0b:00)" up &&
        rdma link add rxe0 type rxe netdev "$(with_mac 02:00:00:00:0b:00)" && until_ok port_active
}
setup "rdma_rxe" rxe_up
