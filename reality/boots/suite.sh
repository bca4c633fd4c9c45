# rdma-core's own tests, in Python: with every store trapped, and those that this leaves out with mapped UAR pages and BlueFlame.
guest suite model=part=cx6,bf=off checks="kernel suite" images=suite memory_mib=2048 seconds=600
guest mapped model=part=cx6,bar=sparse checks="kernel suite" images=suite memory_mib=2048
