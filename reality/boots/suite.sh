# rdma-core's own tests, in Python.
guest suite model=part=cx6,bf=off checks="kernel suite" images=suite memory_mib=2048 seconds=600
