# rdma-core's own tests, in Python: with every store trapped; those that this leaves out with mapped UAR pages and BlueFlame; and those of
# tag matching on InfiniBand, since libmlx5 makes its queue pair for the list of tags without a GRH, which Linux refuses on RoCE.
guest suite model=part=cx6,bf=off checks="kernel suite" images=suite memory_mib=2048 append="gid=1" seconds=600
guest mapped model=part=cx6,bar=sparse checks="kernel suite" images=suite memory_mib=2048 append="gid=1"
guest tags model=part=cx6,link=ib,bf=off checks="infiniband_port suite" images=suite memory_mib=2048 append="gid=0"
