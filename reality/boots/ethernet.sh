# One card of two ports: its functions are the ends of a cable, in two network namespaces of one guest.
guest ethernet model=part=cx5,ports=2,bf=off checks="kernel ethernet" pcap=yes
[ -n "$filter" ] || after "every frame is right to tshark, IP packets of 8900 bytes among them" frames "$dir/ethernet/card.pcap" \
    "icmp && ip.len == 8900 && ip.flags.df == 1"
