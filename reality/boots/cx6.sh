# ConnectX-6, and connections by librdmacm. All UAR pages but the kernel's first are mapped, as a card's are: doorbells are
# memory that the model looks at, and libmlx5 posts by BlueFlame. Without Linux's cache of memory keys (`prof_sel` 1).
guest cx6 model=part=cx6,bar=sparse checks="kernel verbs blueflame cm restart" append="restarts=20 mlx5_core=prof_sel=1"
# Linux has found that writes are combined, and told libmlx5. A boot of some checks only may have posted nothing.
[ -n "$filter" ] || after "libmlx5 posts by BlueFlame" grep -aqE '^model: [1-9][0-9]{2,} WQEs by BlueFlame' "$dir/cx6/console.log"
