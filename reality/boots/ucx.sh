# UCX, which builds WQEs and reads CQEs itself, and wants of a card what libmlx5 does not.
guest ucx model=part=cx6,bar=sparse checks="kernel ucx" images=ucx memory_mib=2048
