# mlx5_core and mlx5_ib take a card with an InfiniBand port, which the card configures itself.

show_devinfo() { until_ok port_active; ibv_devinfo -v; port_active; }

setup "mlx5_core loads" modprobe mlx5_core
setup "mlx5_ib loads" modprobe -a mlx5_ib ib_uverbs rdma_ucm
setup "ibv_devinfo: PORT_ACTIVE" show_devinfo
