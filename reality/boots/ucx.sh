# UCX, which builds WQEs and reads CQEs itself, and wants of a card what libmlx5 does not.
guest ucx model=part=cx6,bar=sparse checks="kernel ucx" images=ucx memory_mib=2048
[ -n "$filter" ] || after "UCX's CQEs are compressed" grep -aqE '^model: [1-9][0-9]+ sessions' "$dir/ucx/console.log"
guest tags model=part=cx6,link=ib,bar=sparse checks="infiniband_port ucx_tags" images=ucx memory_mib=2048
[ -n "$filter" ] || after "UCX's tags are matched" grep -aqE '^model: [1-9][0-9]+ messages by tag' "$dir/tags/console.log"
