# Our own driver in guests, on the kernel's mlx5_ib and Debian's libmlx5: the verbs backend. In the second its tests, between
# the two functions of a card.
guest one model=part=cx5 checks="kernel direct" images=mlx5
[ -n "$filter" ] || after "hw-tests: the scenarios end as on the model in one process" agree "$dir/one/results"
guest two model=part=cx6,ports=2,bar=sparse checks="kernel tests" images=tests memory_mib=1536 breaks=CqOverrun \
    append="backend=verbs:mlx5_0,verbs:mlx5_1 mlx5_core=prof_sel=1"
# Nothing but our tests posts there in great number.
[ -n "$filter" ] || after "our verbs backend posts by BlueFlame, on registers of its own" \
    grep -aqE '^model: [1-9][0-9]{4,} WQEs by BlueFlame' "$dir/two/console.log"
