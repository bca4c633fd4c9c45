# DPDK on one card of two ports: its code wants SSE 4.2.
guest dpdk model=part=cx6,ports=2,bar=sparse checks="kernel dpdk" images=dpdk memory_mib=1024 qemu="-cpu Nehalem"
[ -n "$filter" ] || after "DPDK's CQEs are compressed" grep -aqE '^model: [1-9][0-9]{2,} sessions' "$dir/dpdk/console.log"
