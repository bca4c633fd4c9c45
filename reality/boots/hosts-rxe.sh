# Two hosts: the kernel's RoCE in software in a guest, our driver with its card in a process of the host, a UDP wire to the
# guest's plain virtio NIC; then our driver in the guest too, where our packets are datagrams of the guest's own kernel.
here=127.0.0.1:$ports there=127.0.0.1:$((ports + 1))
guest rxe model=none checks="rxe outside hosts namespace hosts" append="gid=0 sizes=10000" images=mlx5 \
    qemu="$(outside "udp:$there/$here") $(nic wire 02:00:00:00:0b:00 "$ports" "$((ports + 1))")"
after "every packet is right, to us and to tshark" packets "$dir/wire.pcap"
