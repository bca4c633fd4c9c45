# Two hosts: libmlx5 in a guest, our driver in a process of the host, each with a card of its own, a UDP wire between the
# cards.
here=127.0.0.1:$ports there=127.0.0.1:$((ports + 1))
guest libmlx5 model="part=cx5,bf=off,wire=udp:$here/$there" checks="kernel outside hosts" \
    append="gid=1 sizes=2,10000" qemu="$(outside "udp:$there/$here")"
