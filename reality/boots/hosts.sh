# Two hosts: libmlx5 in a guest, our driver in a process of the host, each with a card of its own, a UDP wire between the
# cards. The guest has a second network for TCP; on it, one port starts our end, with the line that it is sent as
# arguments.
wire_here=127.0.0.1:14791 wire_there=127.0.0.1:14792
cat >"$dir/mlx5" <<END
#!/usr/bin/env bash
unset LD_PRELOAD
read -r arguments
timeout 60 "$PWD/target/release/mlx5" \$arguments --device model:wire=udp:$wire_there/$wire_here 2>&1
echo "exit \$?"
END
chmod +x "$dir/mlx5"
guest libmlx5 model=part=cx5,bf=off,wire=udp:$wire_here/$wire_there checks="kernel hosts" \
    qemu="-netdev user,id=tcp,hostfwd=tcp:127.0.0.1:18516-:18515,guestfwd=tcp:10.0.2.100:7-cmd:$dir/mlx5 -device e1000,netdev=tcp,romfile="
