# Two guests, each with its own card, joined by UDP: all that one sends is for the other.
guest a model="part=cx5,bf=off,mac=02:00:00:00:0a:00,wire=udp:127.0.0.1:$ports/127.0.0.1:$((ports + 1))" \
    checks="kernel pair wire wire_ip" append="side=a" pcap=yes qemu="$(nic control-a 52:54:00:c0:00:0a $((ports + 2)) $((ports + 3)))"
guest b model="part=cx6,bf=off,mac=02:00:00:00:0b:00,wire=udp:127.0.0.1:$((ports + 1))/127.0.0.1:$ports" \
    checks="kernel pair wire wire_ip" append="side=b address=10.0.0.2" qemu="$(nic control-b 52:54:00:c0:00:0b $((ports + 3)) $((ports + 2)))"
after "every packet of RDMA that a sends is right, to us and to tshark" packets "$dir/a/card.pcap"
after "every frame that a sends is right to tshark, TCP in large ones among them" frames "$dir/a/card.pcap" "tcp && ip.len == 9000"
