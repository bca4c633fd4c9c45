# mlx5_core, mlx5e and mlx5_ib take the card and bring its link up.

show_devinfo() { until_ok port_active; ibv_devinfo -v; port_active && rocev2_gids; }

setup "mlx5_core loads" modprobe mlx5_core $mlx5_core
setup "netdev" until_ok has_netdev
setup "mlx5_ib loads" modprobe -a mlx5_ib ib_uverbs rdma_ucm
setup "link up" link_up
setup "ibv_devinfo: PORT_ACTIVE, RoCE v2 GIDs" show_devinfo
setup "address" ip addr add "${address:-10.0.0.1}/24" dev "$(netdev)"
