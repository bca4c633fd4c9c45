# DPDK on one card of two ports: its code wants SSE 4.2.
guest dpdk model=part=cx6,ports=2,bar=sparse checks="kernel dpdk" images=dpdk memory_mib=1024 qemu="-cpu Nehalem"
